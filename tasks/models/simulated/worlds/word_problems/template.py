"""How does a prompt become values again? Item texts with named slots, filled when generated and read back when put."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

Slots: TypeAlias = Mapping[str, str]
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """The text of one kind of item."""

    name: str
    text: str
    """With ``{slots}``; every slot stands once and takes one word."""
    draw: Callable[[random.Random], Slots]
    pattern: re.Pattern[str] = field(init=False)
    anchor: str = field(init=False)
    """Longest piece of fixed text: what is looked for first."""

    def __post_init__(self) -> None:
        pieces = _SLOT.split(self.text)
        parts = [re.escape(piece) if i % 2 == 0 else rf"(?P<{piece}>[\w.:-]*\w)" for i, piece in enumerate(pieces)]
        object.__setattr__(self, "pattern", re.compile("".join(parts)))
        object.__setattr__(self, "anchor", max(pieces[::2], key=len))

    def filled(self, slots: Slots) -> str:
        """The prompt with these values."""
        return _SLOT.sub(lambda match: slots[match.group(1)], self.text)

    def read(self, text: str) -> dict[str, str] | None:
        """The values in a text that holds this prompt, or None."""
        if self.anchor not in text:
            return None
        match = self.pattern.search(text)
        return None if match is None else match.groupdict()


def find(templates: Iterable[Template], text: str) -> tuple[Template, dict[str, str]] | None:
    """The template a text was made from, with the values, or None."""
    for template in templates:
        slots = template.read(text)
        if slots is not None:
            return template, slots
    return None


def numbers(slots: Slots, *names: str) -> Iterator[Decimal]:
    """The named slots as exact numbers."""
    return (Decimal(slots[name]) for name in names)
