"""Options of a simulated server, and the choice of the calls that break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

from tfgrpo.pipelines.settings.model import FaultSettings, SimulatedSettings
from tfgrpo.stores.seeds import derive_seed
from tfgrpo.tasks.models.simulated.worlds import WorldName

FaultKind: TypeAlias = Literal["rate_limit", "server_error", "hang", "reset", "bad_json", "empty", "truncated"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = (
    "rate_limit", "server_error", "hang", "reset", "bad_json", "empty", "truncated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Everything a simulated server depends on apart from its requests."""

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
        """Return the options of a settings section."""
        return cls(settings.world, settings.seed, settings.latency_s, settings.faults, api_key)


def any_faults(faults: FaultSettings) -> bool:
    """Whether any share is above zero."""
    return any(getattr(faults, kind) > 0.0 for kind in FAULT_KINDS)


def choose_fault(faults: FaultSettings, seed: int, digest: str, seen: int) -> FaultKind | None:
    """Return how this call breaks, or None. ``seen``: earlier arrivals of the same request, so a retry may succeed."""
    point = derive_seed(seed, "fault", digest, seen) / 2.0**53
    for kind in FAULT_KINDS:
        point -= getattr(faults, kind)
        if point < 0.0:
            return kind
    return None
