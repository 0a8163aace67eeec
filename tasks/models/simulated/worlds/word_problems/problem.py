"""What is one kind of word problem? Its text, the pitfalls it holds, and how it is worked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, Template


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of word problem."""

    template: Template
    pitfalls: tuple[Pitfall, ...]
    solve: Callable[[Slots, Mind], str]
    """The worked solution, ending in ``Answer: …``."""
