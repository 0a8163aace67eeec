"""What did the gate decide, run by run? An append-only file; the champion is what was promoted last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError, field_validator

from stores.atomic import append_lines, read_lines
from stores.errors import CorruptFile
from stores.line_file import exclusively
from stores.models import Strict

Decision: TypeAlias = Literal["promote", "reject", "undecided"]


class Promotion(Strict):
    """One decision of the gate about one run's candidate library."""

    schema_version: Literal[1] = 1
    run_id: str
    decided_at: datetime
    decision: Decision
    experience_ids: tuple[str, ...]
    """The candidate, in its order."""
    library_id: str
    estimate: float | None
    """Mean difference candidate minus champion; None when nothing could be compared."""
    low: float | None
    high: float | None
    pairs: int
    """Held-out items that both arms were scored on."""
    simulated: bool

    @field_validator("decided_at")
    @classmethod
    def _aware(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("decided_at must carry a time zone")
        return value


def record_promotion(path: Path, promotion: Promotion) -> None:
    """Append a decision; it is on the disk when this returns. Raises ``StoreError`` when the disk refuses."""
    append_lines(path, [promotion.model_dump_json()], fsync=True)


def record_decided(path: Path, decide: Callable[[Sequence[Promotion]], Promotion | None]) -> Promotion | None:
    """Append what ``decide`` makes of the decisions so far, and return it; nobody else decides meanwhile.

    None, and one of those that it was given, add nothing. Raises as ``record_promotion`` and ``promotions`` do.
    """
    with exclusively(path) as file:
        earlier = tuple(_parsed(path, (line.data for line in file.lines())))
        decided = decide(earlier)
        if decided is not None and not any(decided is one for one in earlier):
            file.append([decided.model_dump_json()], fsync=True)
    return decided


def promotions(path: Path) -> Iterator[Promotion]:
    """All decisions, oldest first; none when there is no file. Raises ``CorruptFile`` for a line that is no decision."""
    return _parsed(path, read_lines(path))


def _parsed(path: Path, lines: Iterable[str | bytes]) -> Iterator[Promotion]:
    for number, line in enumerate(lines, start=1):
        try:
            yield Promotion.model_validate_json(line)
        except ValidationError as error:
            raise CorruptFile(
                f"{path}: line {number} is no decision of the gate: {error.errors()[0]['msg']}"
            ) from error


def champion_ids(path: Path, *, simulated: bool | None = None) -> tuple[str, ...]:
    """Experiences of the library in force; empty when none ever was. ``simulated`` as in ``in_force``."""
    return champion_among(promotions(path), simulated=simulated)


def champion_among(decisions: Iterable[Promotion], *, simulated: bool | None = None) -> tuple[str, ...]:
    """As ``champion_ids``, of these decisions, oldest first."""
    promoted = in_force(decisions, simulated=simulated)
    return () if promoted is None else promoted.experience_ids


def in_force(decisions: Iterable[Promotion], *, simulated: bool | None = None) -> Promotion | None:
    """What was promoted last of these decisions, oldest first; None when nothing was.

    ``simulated`` True or False looks only at decisions about simulated or about real models: what helped the one is no
    evidence for the other. None is what a person wants: of the real model, and of the simulated one only where there is
    nothing else, so that a rehearsal in a task pushes nothing out of force.
    """
    last: dict[bool, Promotion] = {}
    for promotion in decisions:
        if promotion.decision == "promote":
            last[promotion.simulated] = promotion
    if simulated is None:
        return last.get(False) or last.get(True)
    return last.get(simulated)
