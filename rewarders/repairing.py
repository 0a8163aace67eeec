"""How is a usable answer had of one who may err? Asked, read, and asked again with what was refused; then given up.

The one loop behind every answer that has to have a form: learned operations, candidates of a selection, votes of judges.
It knows no model and no format; who asks says what is asked again, who reads says what is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tfgrpo.stores.errors import RepairExhausted
from tfgrpo.stores.text import pluralize

T = TypeVar("T")


async def corrected(
    parse: Callable[[str], T],
    fix: Callable[[Sequence[tuple[str, str]]], Awaitable[str]],
    max_attempts: int,
    name: str = "answer",
) -> T:
    """Take texts from ``fix`` until ``parse`` accepts one, at most ``max_attempts`` in all (the first one included).

    ``fix`` is given every (text, reason) that was refused so far, none at first. ``parse`` raises ``ValueError``
    (pydantic's is one) for a text it does not accept. Errors of ``fix`` pass through. Raises ``RepairExhausted`` with
    every pair; ``name`` says there what was asked for.
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
