"""Confine a fault to the smallest thing that has it: one value of many, before all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from tfgrpo.stores.errors import RewardError

_LONGEST: Final = 300

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
    """An exception in one line, whatever its ``__str__`` does; without its type where that adds nothing."""
    kind = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  a user's exception class; its name has to do
        return kind
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return shown if isinstance(error, RewardError) and text else f"{kind}: {shown}" if text else kind
