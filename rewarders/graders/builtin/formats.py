"""Graders of the form of a completion: its length, its JSON, its LaTeX, its reasoning block. The content is not graded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.graders.base import final_answer, metadata
from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, accepts
from tfgrpo.rewarders.scorer import CLOSE, OPEN, GraderInput, ItemScorer

_LATEX_ENDS: Final = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), (r"\boxed{", "}"))
_ENVIRONMENT: Final = re.compile(r"\\begin\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class CompletionLengthCap(Options, ItemScorer):
    """1.0 up to the cap, ``min_reward`` above it. Raises ``PipelineError`` for unusable options."""

    max_completion_tokens: Annotated[FiniteNumber, Field(gt=0), accepts("a finite number greater than 0")]
    """The cap, inclusive; greater than 0."""
    treat_missing_as_fail: Flag = True
    """A completion without a token count gets ``min_reward``, else 1.0."""
    min_reward: Annotated[FiniteNumber, Field(ge=0, le=1), accepts("a finite number of at least 0 and at most 1")] = 0.0
    """Reward of a completion above the cap, 0 to 1."""

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item, by its ``completion_tokens`` alone."""
        if item.completion_tokens is None:
            return self.min_reward if self.treat_missing_as_fail else 1.0
        return 1.0 if item.completion_tokens <= self.max_completion_tokens else self.min_reward


@dataclass(frozen=True, slots=True)
class JsonValid(Options, ItemScorer):
    """1.0 when ``json.loads`` reads the whole completion, reasoning included, and all required is in it, else 0.0.

    ``NaN`` and ``Infinity`` pass, as they do in ``json.loads``; extreme nesting and integers of more than 4,300 digits do
    not. Required is ``metadata.expected_json_schema.required`` when that is a list, and "in" is Python's: a key of an
    object, a member of a list, a part of a string, and never in a number, true, false or null.
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
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
    r"""1.0 when the final answer starts and ends as a formula, with text between, else 0.0.

    A formula is ``$…$``, ``$$…$$``, ``\(…\)``, ``\[…\]``, ``\boxed{…}`` or ``\begin{e}…\end{e}``. Only the outermost ends
    count, so that ``$5$ and $6$`` passes.
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item; the record is ignored."""
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

    Parts, on the stripped completion and its first open and close tag: an open tag 0.125, at the very start another
    0.125; a close tag 0.125, after the open tag another 0.125, before it -0.125; text after the close tag 0.5, none
    -0.25; a space or another character immediately after the close tag -0.1; 0.15 off for each further tag. Clamped to
    [0, 1].
    """

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item; only its completion counts."""
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
