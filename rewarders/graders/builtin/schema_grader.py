"""Shared parts of the graders by schema: the schema of the record, the graded text, fenced blocks and Python literals."""

from __future__ import annotations

import ast
import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader, answer_or_completion, metadata
from tfgrpo.rewarders.graders.options import flag, number, refuse

_FENCE: Final = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_NO_LITERAL: Final = re.compile(r"""[ \t]*(?!(?:[bBrRuU]{1,2}['"]|True\b|False\b|None\b|set\b))[A-Za-z_<`]""")
_ESCAPE: Final = re.compile(r"""\\(?:[\r\n\\'"abfnrtv0-7xNuU]|(.?))""", re.DOTALL)
_RAW_STRING: Final = re.compile(r"""(?<!\w)(?:[bB]?[rR]|[rR][bB])['"]""")


@dataclass(frozen=True, slots=True)
class SchemaGrader(ItemGrader):
    """Checks a completion against ``metadata.schema``, a JSON object written as a string."""

    reward_if_no_schema: float = 0.0
    """Reward when the record has no usable schema."""
    require_answer: bool = False
    """A completion without a final answer gets 0.0, instead of being read as a whole."""

    def __post_init__(self) -> None:
        refuse(number("reward_if_no_schema", self.reward_if_no_schema), flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
        schema = _schema_of(item)
        if schema is None:
            return float(self.reward_if_no_schema)
        text = answer_or_completion(item, require_answer=self.require_answer)
        return 0.0 if text is None else self.fit(text, schema)

    @abstractmethod
    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Return the reward of a text."""


def _schema_of(item: GraderInput) -> Mapping[str, Any] | None:
    text = metadata(item, "schema")
    try:
        schema = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None


def fenced_block(text: str) -> str | None:
    """Return the stripped content of the first fenced block; None without one, or when it is empty.

    A block opens with three backticks, at most letters, digits, ``_`` or ``-``, and a line feed immediately after them; it
    ends at the next three backticks.
    """
    fence = _FENCE.search(text)
    return (fence[1].strip() or None) if fence else None


def python_literal(text: str) -> Any:
    """Return the value of a Python literal. Raises ``ValueError`` for any other text; no code is executed."""
    # Prose and markup are recognised by their first characters: the parser takes far longer to refuse them.
    if _NO_LITERAL.match(text):
        raise ValueError("no Python literal")
    try:
        return ast.literal_eval(_without_warnings(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literal") from error


def _without_warnings(text: str) -> str:
    r"""Double unknown escapes such as ``\q``, which means the same and makes the parser warn of none.

    Warnings cannot be silenced for one thread alone. In raw strings doubling would change the value.
    """
    if "\\" not in text or _RAW_STRING.search(text):
        return text
    return _ESCAPE.sub(lambda match: match[0] if match[1] is None else f"\\\\{match[1]}", text)
