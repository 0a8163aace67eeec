"""Graders of the form of a completion: its length, JSON, LaTeX and reasoning block, and the schema that it has.

The content is not graded. Text of language models is untrusted: no external entity of XML is loaded, and expat limits the
expansion of entities (since release 2.4.1; with an older one, a text that declares entities counts as no XML).
"""

from __future__ import annotations

import json
import pyexpat
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final
from xml.etree.ElementTree import ParseError, fromstring

from pydantic import Field
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, accepts
from tfgrpo.rewarders.scorer import CLOSE, OPEN, GraderInput, ItemScorer, final_answer, metadata
from tfgrpo.rewarders.text.answers import python_literal
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.json_values import json_of

_LATEX_ENDS: Final = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), (r"\boxed{", "}"))
_ENVIRONMENT: Final = re.compile(r"\\begin\{([^{}]+)\}")
_FENCE: Final = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_READ: Final = {"required", "allow_additional_properties"}
_ANNOTATIONS: Final = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "example",
    "deprecated", "readOnly", "writeOnly",
}  # fmt: skip
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
ENTITIES_ARE_LIMITED: Final = pyexpat.version_info >= (2, 4, 1)


@dataclass(frozen=True, slots=True)
class CompletionLengthCap(Options, ItemScorer):
    """1.0 up to the cap, ``min_reward`` above it. Raises ``PipelineError`` for unusable options."""

    max_completion_tokens: Annotated[FiniteNumber, Field(gt=0), accepts("a finite number greater than 0")]
    treat_missing_as_fail: Flag = True
    """A completion without a token count gets ``min_reward``, else 1.0."""
    min_reward: Annotated[FiniteNumber, Field(ge=0, le=1), accepts("a finite number of at least 0 and at most 1")] = 0.0

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item, by its ``completion_tokens`` alone."""
        if item.completion_tokens is None:
            return self.min_reward if self.treat_missing_as_fail else 1.0
        return 1.0 if item.completion_tokens <= self.max_completion_tokens else self.min_reward


@dataclass(frozen=True, slots=True)
class JsonValid(Options, ItemScorer):
    """1.0 when ``json.loads`` reads the whole completion, reasoning included, and all required is in it, else 0.0.

    Required is ``metadata.expected_json_schema.required`` when that is a list, and "in" is Python's: a key of an object, a
    member of a list, a part of a string. Extreme nesting and integers of more than 4,300 digits are not read.
    """

    def score_one(self, item: GraderInput) -> float:
        try:
            value = json.loads(item.completion)
        except (ValueError, RecursionError):
            return 0.0
        expected = metadata(item, "expected_json_schema")
        required = expected.get("required") if isinstance(expected, Mapping) else None
        if not isinstance(required, list | tuple):
            return 1.0
        try:
            return 1.0 if all(name in value for name in required) else 0.0
        except (TypeError, RecursionError):
            return 0.0


@dataclass(frozen=True, slots=True)
class LatexOnly(Options, ItemScorer):
    """1.0 when the final answer starts and ends as a formula, with text between, else 0.0: ``$5$ and $6$`` passes."""

    def score_one(self, item: GraderInput) -> float:
        text = (final_answer(item) or "").strip()
        environment = _ENVIRONMENT.match(text)
        ends = [(environment[0], f"\\end{{{environment[1]}}}")] if environment else []
        for left, right in (*_LATEX_ENDS, *ends):
            if text.startswith(left) and text.endswith(right) and len(text) > len(left) + len(right):
                return 1.0
        return 0.0


@dataclass(frozen=True, slots=True)
class ReasoningFormat(Options, ItemScorer):
    """1.0 for one ``<think>…</think>`` block at the start, a new line, and a final text; less for deviations.

    An open tag 0.125, at the very start another 0.125; a close tag 0.125, after the open tag another 0.125, before it
    -0.125; text after the close tag 0.5, none -0.25; a character but a new line immediately after it -0.1; each further
    tag -0.15.
    """

    def score_one(self, item: GraderInput) -> float:
        text = item.completion.strip()
        opened, closed = text.find(OPEN), text.find(CLOSE)
        score = 0.0 if opened < 0 else 0.125 + 0.125 * (opened == 0)
        if closed >= 0:
            score += 0.125 if opened < 0 else 0.25 if closed > opened else 0.0
            rest = text[closed + len(CLOSE) :]
            glued = bool(rest) and (rest[0] == " " or not rest[0].isspace())
            score += (0.5 if rest.strip() else -0.25) - 0.1 * glued
        opens, closes = text.count(OPEN), text.count(CLOSE)
        if opens > 1 or closes > 1:
            # A kind of tag that is absent counts as -1 here, which cancels one double of the other kind.
            score -= 0.15 * ((opens - 1) + (closes - 1))
        return min(1.0, max(0.0, score))


@dataclass(frozen=True, slots=True)
class SchemaGrader(Options, ItemScorer):
    """Checks a completion against ``metadata.schema``, a JSON object written as a string."""

    reward_if_no_schema: Annotated[FiniteNumber, accepts("a finite number")] = 0.0
    require_answer: Flag = False
    """A completion without a final answer gets 0.0, instead of being read as a whole."""

    def score_one(self, item: GraderInput) -> float:
        written = metadata(item, "schema")
        schema = json_of(written) if isinstance(written, str) else None
        if not isinstance(schema, dict):
            return self.reward_if_no_schema
        text = final_answer(item, or_completion=not self.require_answer)
        return 0.0 if text is None else self.fit(text, schema)

    @abstractmethod
    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Return the reward of a text."""


def _fenced_block(text: str) -> str | None:
    fence = _FENCE.search(text)
    return (fence[1].strip() or None) if fence else None


@dataclass(frozen=True, slots=True)
class JsonSchema(SchemaGrader):
    """1.0 for a JSON object with all required keys and no forbidden key.

    Only ``required`` and ``allow_additional_properties`` (default true) of the schema are read. A key is additional when
    it is not required. Missing keys 0.8, additional keys 0.9, both 0.7; any other JSON value 0.5; null and unreadable text
    0.0. Text that is no JSON is tried again as its first fenced block, as JSON and as a Python literal, times 0.9.
    """

    def overlooked(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the keywords of a record's schema that can be violated and that are not looked at."""
        schema = metadata(GraderInput.of("", record, ""), "schema")
        value = json_of(schema) if isinstance(schema, str) else None
        if schema is None:
            return ()
        if not isinstance(value, dict):
            return ("anything (no JSON text of an object)",)
        properties = value.get("properties")
        described = properties.values() if isinstance(properties, dict) else ()
        constrained = any(not isinstance(inner, dict) or inner.keys() - _ANNOTATIONS for inner in described)
        return tuple(key for key in value if key not in _READ | _ANNOTATIONS and (key != "properties" or constrained))

    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        value, share = _read(text)
        if value is None:
            return 0.0
        required = schema.get("required") or []
        if not isinstance(value, dict) or not isinstance(required, list):
            return 0.5 * share
        if any(isinstance(name, list | dict) for name in required):
            raise RewardError("json_schema: an entry of the schema's required is a list or an object, which is no key")
        names = set(required)
        extra = not schema.get("allow_additional_properties", True) and not value.keys() <= names
        if names <= value.keys():
            return (0.9 if extra else 1.0) * share
        return (0.7 if extra else 0.8) * share


def _read(text: str) -> tuple[Any, float]:
    try:
        return json.loads(text), 1.0
    except json.JSONDecodeError:
        block = _fenced_block(text)
    except (ValueError, RecursionError):  # too large for Python
        return None, 0.0
    if block is not None:
        with suppress(ValueError, RecursionError):
            return json.loads(block), 0.9
    with suppress(ValueError):
        return python_literal(text if block is None else block), 0.9
    return None, 0.9


@dataclass(frozen=True, slots=True)
class XmlSchema(SchemaGrader):
    """1.0 for well-formed XML whose root has the schema's ``root_tag``; 0.9 of it from a fenced block.

    Another root 0.8; no string ``root_tag`` in the schema 0.5; not well-formed 0.0. A namespace is part of the tag.
    """

    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        share, root = 1.0, _root_tag(text)
        if root is None and not _SURROGATE.search(text):
            share, root = 0.9, _root_tag(_fenced_block(text) or "")
        if root is None:
            return 0.0
        wanted = schema.get("root_tag")
        return share * (0.5 if not isinstance(wanted, str) else 1.0 if root == wanted else 0.8)


def _root_tag(text: str) -> str | None:
    text = text.strip()
    if not text or text[0] not in "<\ufeff" or (not ENTITIES_ARE_LIMITED and "<!ENTITY" in text):
        return None
    try:
        return fromstring(text).tag  # noqa: S314  see the first lines of this file
    except (ParseError, ValueError):
        return None
