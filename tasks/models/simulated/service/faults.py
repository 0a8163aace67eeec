"""Which calls break, and how? Told by seed, request and how often it was seen, so that a retry may succeed."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tfgrpo.pipelines.settings.model import FaultSettings
from tfgrpo.stores.seeds import derive_seed

FaultKind: TypeAlias = Literal["rate_limit", "server_error", "hang", "reset", "bad_json", "empty", "truncated"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = (
    "rate_limit", "server_error", "hang", "reset", "bad_json", "empty", "truncated",
)  # fmt: skip
RETRY_AFTER_S: Final = 1
"""What a rate-limited answer asks for."""


def any_faults(faults: FaultSettings) -> bool:
    """Whether any share is above zero."""
    return any(getattr(faults, kind) > 0.0 for kind in FAULT_KINDS)


def choose_fault(faults: FaultSettings, seed: int, digest: str, seen: int) -> FaultKind | None:
    """How this call breaks, if it does. ``seen`` counts earlier arrivals of the same request."""
    point = derive_seed(seed, "fault", digest, seen) / 2.0**53
    for kind in FAULT_KINDS:
        point -= getattr(faults, kind)
        if point < 0.0:
            return kind
    return None
