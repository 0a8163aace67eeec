"""Confine a fault to the smallest thing that has it: one value of many, before all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from stores.errors import RewardError

T = TypeVar("T")
L = TypeVar("L")


def each_alone(values: Iterable[object], read: Callable[[object], T], lost: Callable[[str], L]) -> list[T | L]:
    """Read every value; for one that ``read`` raises on, return what ``lost`` makes of the reason."""

    def one(value: object) -> T | L:
        try:
            return read(value)
        except Exception as error:  # noqa: BLE001  a user's value, whose class may raise anything, becomes a reason
            return lost(described(error))

    return [one(value) for value in values]


def described(error: BaseException) -> str:
    """An exception in one line, without its type where that adds nothing."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, RewardError) and text else f"{type(error).__name__}: {text}"
