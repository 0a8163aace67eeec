"""Confine an error to the one value of many that raises it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from tfgrpo.stores.errors import RewardError

_LONGEST: Final = 300

T = TypeVar("T")
L = TypeVar("L")


def each_alone(values: Iterable[object], read: Callable[[object], T], lost: Callable[[str], L]) -> list[T | L]:
    """Return ``read(value)`` for each value, or ``lost(reason)`` where that raises."""
    results: list[T | L] = []
    for value in values:
        try:
            results.append(read(value))
        except Exception as error:  # noqa: BLE001  the class of a user's value may raise anything
            results.append(lost(described(error)))
    return results


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
