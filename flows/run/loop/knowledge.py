"""What a run knows while it learns: all rows and words so far, and the credit that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfgrpo.flows.console.figures import Losses
from tfgrpo.stores.experiences.credit import CreditLine
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.tasks.learning.credit import Credit, Memory, credit_of


@dataclass(slots=True)
class LearningState:
    """Mutable learning state of one run."""

    memory: Memory
    credit: Credit
    remembered: Mapping[str, int] = field(default_factory=dict)
    """Texts of rejected proposals with how often they were rejected, shown to the curator."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Every proposal that curation refused, with the reason."""
    proposals: Counter[str] = field(default_factory=Counter)
    """What curation made of the proposals: confirmed, contradicted, new, useless."""
    stored: int = 0
    """Records stored by this run."""
    losses: Losses = field(default_factory=Losses)
    """Reflections and curations of the current epoch."""

    @classmethod
    def of(cls, memory: Memory, remembered: Mapping[str, int]) -> LearningState:
        """Return the state of a run that begins with this memory."""
        return cls(memory, credit_of(memory), remembered)

    def add(self, records: Iterable[ExperienceRecord] = (), lines: Iterable[CreditLine] = ()) -> None:
        """Take in what a batch or the sweep brought."""
        self.memory = self.memory.plus(records, lines)
        self.credit = credit_of(self.memory)
