"""Append-only decisions of the gate; the champion is the last promotion.

Each line has the digest of the line before it, so that removed and changed lines are noticed; only lines removed at
the end are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, ValidationError, field_validator

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.record import Strict
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.line_file import exclusively, read_whole_lines

Decision: TypeAlias = Literal["promote", "reject", "undecided"]


class Promotion(Strict):
    """One decision of the gate about one run's candidate library."""

    schema_version: Literal[1, 2] = 2
    """Version 1 has neither ``signatures`` nor ``previous``."""
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
    signatures: dict[str, str] = Field(default_factory=dict)
    """Stamp signatures of those records by id: digests of their content."""
    previous: str | None = None
    """SHA-256 of the line before; None in the first. Set when the decision is recorded."""

    @field_validator("decided_at")
    @classmethod
    def _aware(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("decided_at must carry a time zone")
        return value


def record_promotion(path: Path, promotion: Promotion) -> None:
    """Append a decision; it is on the disk when this returns. Raises ``StoreError`` as ``record_decided`` does."""
    record_decided(path, lambda _: promotion)


def record_decided(path: Path, decide: Callable[[Sequence[Promotion]], Promotion | None]) -> Promotion | None:
    """Append what ``decide`` makes of the decisions so far, and return it; nobody else decides meanwhile.

    None, and one of those that it was given, add nothing. Raises as ``record_promotion`` and ``promotions`` do.
    """
    with exclusively(path) as file:
        lines = [line.data for line in file.lines()]
        earlier = tuple(_parsed(path, lines))
        decided = decide(earlier)
        if decided is not None and not any(decided is one for one in earlier):
            decided = decided.model_copy(update={"previous": _digest(lines[-1]) if lines else None})
            file.append([decided.model_dump_json()], fsync=True)
    return decided


def promotions(path: Path) -> Iterator[Promotion]:
    """All decisions, oldest first; none when there is no file. Raises ``CorruptFile`` for a line that is no decision."""
    return _parsed(path, read_lines(path))


def chain_problems(path: Path) -> list[str]:
    """Return what is wrong with the file: lines removed or changed, an incomplete last line."""
    if not path.exists():
        return []
    size = path.stat().st_size
    lines = [line.data for line in read_whole_lines(path)]
    before: str | None = None
    problems: list[str] = []
    for number, (line, one) in enumerate(zip(lines, _parsed(path, lines), strict=True), start=1):
        if one.schema_version > 1 and one.previous != before:
            problems.append(
                f"{path.name}: line {number} does not continue the chain: a line before it was removed or changed"
            )
        before = _digest(line)
    if size > sum(len(line) + 1 for line in lines):
        problems.append(f"{path.name}: the last line is incomplete and does not count")
    return problems


def _digest(line: bytes) -> str:
    return sha256_hex(line.removesuffix(b"\r"))


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
    promoted = in_force(promotions(path), simulated=simulated)
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
