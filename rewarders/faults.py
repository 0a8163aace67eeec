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


def described(error: BaseException, *, whole: bool = False) -> str:
    """Return class and text of an exception, whatever its ``__str__`` does.

    The text is folded into one line of at most 300 characters, and a ``RewardError`` goes without its class; ``whole``
    leaves both as they are.
    """
    kind = type(error).__name__
    try:
        text = str(error) if whole else " ".join(str(error).split())
    except Exception:  # noqa: BLE001  a user's exception class; its name has to do
        return kind
    if not text:
        return kind
    if whole:
        return f"{kind}: {text}"
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return shown if isinstance(error, RewardError) else f"{kind}: {shown}"
