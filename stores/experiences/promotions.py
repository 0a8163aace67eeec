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
    """Decision of the gate on the candidate library of one run."""

    schema_version: Literal[1, 2] = 2
    """Version 1 has neither ``signatures`` nor ``previous``."""
    run_id: str
    decided_at: datetime
    decision: Decision
    experience_ids: tuple[str, ...]
    """The candidate, in its order."""
    library_id: str
    estimate: float | None
    """Mean difference candidate minus champion; None without a comparison."""
    low: float | None
    high: float | None
    pairs: int
    """Held-out items scored in both arms."""
    simulated: bool
    signatures: dict[str, str] = Field(default_factory=dict)
    """Stamp signatures of those records by id: digests of their content."""
    previous: str | None = None
    """SHA-256 of the line before, set when recorded; None in the first line."""

    @field_validator("decided_at")
    @classmethod
    def _aware(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("decided_at must carry a time zone")
        return value


def record_promotion(path: Path, promotion: Promotion) -> None:
    """Append a decision, durably. Raises as ``record_decided``."""
    record_decided(path, lambda _: promotion)


def record_decided(path: Path, decide: Callable[[Sequence[Promotion]], Promotion | None]) -> Promotion | None:
    """Append and return the result of ``decide`` on the decisions so far, under the lock of the file.

    None, or one of the earlier decisions, is not appended. Raises ``StoreError``, and ``CorruptFile`` as ``promotions``.
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
    """Yield all decisions, oldest first; none without a file. Raises ``CorruptFile`` for any other line."""
    return _parsed(path, read_lines(path))


def chain_problems(path: Path) -> list[str]:
    """Return the problems of the file: lines removed or changed, an incomplete last line."""
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
                f"{path}: line {number} is not a decision of the gate: {error.errors()[0]['msg']}"
            ) from error


def champion_ids(path: Path, *, simulated: bool | None = None) -> tuple[str, ...]:
    """Return the experiences of the library in force; empty when none was promoted. ``simulated`` as in ``in_force``."""
    promoted = in_force(promotions(path), simulated=simulated)
    return () if promoted is None else promoted.experience_ids


def in_force(decisions: Iterable[Promotion], *, simulated: bool | None = None) -> Promotion | None:
    """Return the last promotion of these decisions, oldest first, or None.

    ``simulated`` True or False considers only decisions about simulated or about real models: evidence for one is none
    for the other. None: the last one for a real model, and for the simulated one only without such, so that a rehearsal
    replaces no real library.
    """
    last: dict[bool, Promotion] = {}
    for promotion in decisions:
        if promotion.decision == "promote":
            last[promotion.simulated] = promotion
    if simulated is None:
        return last.get(False) or last.get(True)
    return last.get(simulated)
