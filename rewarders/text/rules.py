"""Rules by which an answer is compared with a reference: in order, and the first that holds decides.

Each has a name, which is what it says of the answer, and an example, which a test runs: the table is the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from tfgrpo.stores.errors import RewardError

_Verdict: TypeAlias = Literal["right", "wrong", "unclear", "none"]
"""``unclear``: two readings, no score. ``none``: wrong, and nothing of the kind of the reference is stated."""


class Compared(NamedTuple):
    """Whether an output states the reference, and what it states, in one line."""

    right: bool
    answered: str
    states: bool = True
    """Whether the output states anything of the kind of the reference."""
    by: str = ""
    """The name of the rule that decided."""


_R = TypeVar("_R")


@dataclass(frozen=True)
class ReadAnswer(Generic[_R]):
    """An output, or a part of it, beside a reference: what rules look at."""

    reference: _R
    text: str

    @property
    def answered(self) -> str:
        """The answer as it is read, in one line."""
        return shown(self.text)


_A_contra = TypeVar("_A_contra", bound=ReadAnswer[Any], contravariant=True)


class AnswerRule(NamedTuple, Generic[_A_contra]):
    """One reason for a verdict on an answer."""

    verdict: _Verdict
    name: str
    """What it says of the answer; the reason of what is unclear."""
    reference: str
    """With the next: an example that this rule decides."""
    output: str
    holds: Callable[[_A_contra], object]
    prompt: str = ""
    """Of the example, where the rule looks at it."""


AnswerRules: TypeAlias = tuple[AnswerRule[_A_contra], ...]


def first_of(rules: Iterable[AnswerRule[_A_contra]], answer: _A_contra) -> Compared | None:
    """Return the verdict of the first rule that holds; None where none does. Raise ``RewardError`` where it is unclear."""
    for rule in rules:
        if rule.holds(answer):
            if rule.verdict == "unclear":
                raise RewardError(f"{answer.answered} {rule.name}")
            return Compared(rule.verdict == "right", answer.answered, rule.verdict != "none", rule.name)
    return None


def verdict_by(rules: Iterable[AnswerRule[_A_contra]], answer: _A_contra) -> Compared:
    """Return the verdict of the first rule that holds, of rules of which the last always does."""
    return first_of(rules, answer) or Compared(False, answer.answered, states=False)


SHOWN: Final = 80
"""Longest value in evidence."""


def shown(text: str, most: int = SHOWN) -> str:
    """Quote a text in one line: control characters and line breaks are escaped, a long one is cut."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


class Beside(NamedTuple):
    """One reason for what is next to a place to change its meaning: a pattern that ends before it, or begins behind it."""

    name: str
    example: str
    """A text with the place in «marks»."""
    before: str = ""
    behind: str = ""


class Surroundings:
    """Rules about what is next to a place of a text."""

    def __init__(self, *rules: Beside, look: int = 60, gap: str = "", flags: int = 0) -> None:
        self.rules = rules
        self._look = look
        before = [f"(?P<{each.name}>{each.before})" for each in rules if each.before]
        behind = [f"(?P<{each.name}>{each.behind})" for each in rules if each.behind]
        self._before = re.compile(f"(?:{'|'.join(before) or '(?!)'}){gap}\\Z", flags)
        self._behind = re.compile("|".join(behind) or "(?!)", flags)

    def of(self, text: str, start: int, end: int, since: int = 0) -> str:
        """Return the name of the rule for what is next to a place, and behind ``since``; empty for none."""
        found = self._before.search(text, max(since, start - self._look), start) or self._behind.match(text, end)
        return (found.lastgroup or "") if found else ""
