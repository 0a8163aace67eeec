"""Repair loop: ask for an answer, parse it, and ask again with the refused ones, up to a limit.

Used for every answer with a required form: learned operations, candidates of a selection, votes of judges.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tfgrpo.stores.errors import RepairExhausted
from tfgrpo.stores.text import pluralize

_T = TypeVar("_T")


async def corrected(
    parse: Callable[[str], _T],
    fix: Callable[[Sequence[tuple[str, str]]], Awaitable[str]],
    max_attempts: int,
    name: str = "answer",
) -> _T:
    """Return the first text of ``fix`` that ``parse`` accepts, of at most ``max_attempts``, the first one included.

    ``fix`` gets every refused (text, reason) so far, none at first. ``parse`` raises ``ValueError`` (pydantic's is one) to
    refuse a text. Errors of ``fix`` pass through. Raises ``RepairExhausted`` with every pair; ``name`` is the answer's
    name in the message.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts must be at least 1, got {max_attempts}")
    refused: list[tuple[str, str]] = []
    while True:
        text = await fix(tuple(refused))
        try:
            return parse(text)
        except ValueError as error:
            reason = str(error)
        refused.append((text, reason))
        if len(refused) == max_attempts:
            raise RepairExhausted(f"no valid {name} after {pluralize(max_attempts, 'attempt')}: {reason}", refused)
