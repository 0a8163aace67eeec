"""Record decisions of the gate, and read the champion, in one call each."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.stores.experiences.library import Promotion, in_force, promotions, record_decided


def record_promotion(path: Path, promotion: Promotion) -> None:
    """Append a decision."""
    record_decided(path, lambda _: promotion)


def champion_ids(path: Path, *, simulated: bool | None = None) -> tuple[str, ...]:
    """The experiences of the library in force; empty when none was promoted."""
    promoted = in_force(promotions(path), simulated=simulated)
    return () if promoted is None else promoted.experience_ids
