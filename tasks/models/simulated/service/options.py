"""How is a simulated server set up? One frozen value, from the settings or by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tfgrpo.pipelines.settings.model import FaultSettings, SimulatedSettings
from tfgrpo.tasks.models.simulated.worlds.worlds import WorldName


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Everything a simulated server depends on besides the requests it gets."""

    world: WorldName = "arithmetic"
    seed: int = 0
    latency_s: float = 0.0
    """Seconds every answer takes at least."""
    faults: FaultSettings = field(default_factory=FaultSettings)
    """Share of calls that break, by kind; together at most 1."""
    api_key: str | None = field(default=None, repr=False)
    """The bearer token that requests must carry. None: any, or none."""

    def __post_init__(self) -> None:
        total = sum(self.faults.model_dump().values())
        if total > 1.0:
            raise ValueError(f"faults: got shares that sum to {total}; accepted: at most 1")

    @classmethod
    def of(cls, settings: SimulatedSettings, api_key: str | None = None) -> Self:
        """The options that a settings section asks for."""
        return cls(settings.world, settings.seed, settings.latency_s, settings.faults, api_key)
