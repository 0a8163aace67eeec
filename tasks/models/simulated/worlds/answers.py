"""When is an item sound? When every way to go wrong shows in the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import chain, combinations

_APART = Decimal("0.05")
_APART_SHARE = Decimal("0.0002")


def answer_of(text: str) -> str:
    """What a worked solution says after its last ``Answer:``."""
    return text.rsplit("Answer:", 1)[-1].strip()


def apart(right: str, wrong: str) -> bool:
    """Whether two numbers differ by more than any sensible tolerance."""
    good, bad = Decimal(right), Decimal(wrong)
    return abs(good - bad) >= max(_APART, _APART_SHARE * abs(good))


def hit_sets(pitfalls: Iterable[str]) -> list[frozenset[str]]:
    """Every way to fall into at least one of the pitfalls."""
    names = tuple(pitfalls)
    return [frozenset(some) for some in chain.from_iterable(combinations(names, n + 1) for n in range(len(names)))]


def every_mistake_shows(pitfalls: Iterable[str], answer: Callable[[frozenset[str]], str]) -> bool:
    """Whether each set of pitfalls leads to an answer apart from the right one."""
    right = answer(frozenset())
    return all(apart(right, answer(hit)) for hit in hit_sets(pitfalls))
