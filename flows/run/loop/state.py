"""What a run has learned so far: the candidate library, rejected proposals and lost learning steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfgrpo.flows.console.figures import Losses
from tfgrpo.stores.experiences.library import Library


@dataclass(slots=True)
class LearningState:
    """Mutable learning state of one run."""

    library: Library
    """The candidate library."""
    remembered: tuple[str, ...] = ()
    """Texts of rejected proposals, shown to the curator."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Every proposal that curation refused, with the reason."""
    stored: int = 0
    """Records stored by this run."""
    losses: Losses = field(default_factory=Losses)
    """Reflections and curations of the current epoch."""
