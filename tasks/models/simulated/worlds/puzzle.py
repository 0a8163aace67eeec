"""What is a world made of? The shapes that worlds, the actor role and the item generator share."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A tool call the actor wants made."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A tool call that was made, with the text that came back."""

    tool: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What happened since the item was put: the steps said so far and the calls made."""

    steps: tuple[str, ...] = ()
    calls: tuple[DoneCall, ...] = ()
    tools: frozenset[str] = frozenset()
    """Names of the tools on offer."""


@dataclass(frozen=True, slots=True)
class Speech:
    """One turn of the actor: text, and calls unless it is the last turn."""

    text: str
    calls: tuple[PlannedCall, ...] = ()


class Puzzle(Protocol):
    """One item, as recognised from the text of its prompt."""

    def attempt(self, mind: Mind, dialogue: Dialogue) -> Speech:
        """The next turn of an attempt."""
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A generated item before it has an id."""

    template: str
    prompt: str
    answer: str
    pitfalls: tuple[str, ...]


class World(Protocol):
    """A closed family of items with their pitfalls."""

    @property
    def name(self) -> str:
        """Name in the settings and of the data file."""
        ...

    @property
    def pitfalls(self) -> tuple[Pitfall, ...]:
        """Everything its items may hold, which is what its lessons can be about."""
        ...

    @property
    def lexicon(self) -> Lexicon:
        """Recognises advice on them."""
        ...

    def recognise(self, text: str) -> Puzzle | None:
        """The item a prompt puts, or None when it is none of this world's."""
        ...


class DrawnWorld(World, Protocol):
    """A world whose items are generated."""

    @property
    def domain(self) -> str:
        """Domain of its items."""
        ...

    @property
    def prefix(self) -> str:
        """Beginning of its item ids."""
        ...

    def draft(self, rng: random.Random) -> Draft | None:
        """A random item, or None when the draw does not make a sound one."""
        ...
