"""Compute the library of experiences in force, keep its promotions, and write ``state.json``.

Libraries are folded from the append-only history. Decisions of the gate are append-only too; the champion is the last
promotion. Each has the digest of the line before it, so that removed and changed lines are noticed; only lines removed at
the end are not. ``state.json`` is a view of a task for people and other programs; no decision reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import AwareDatetime, Field

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.experiences.record import ExperienceRecord, Strict
from tfgrpo.stores.files.atomic import read_json, read_lines, replace_json
from tfgrpo.stores.files.line_file import exclusively, read_whole_lines

_ID_DIGITS = 16
SCHEMA_VERSION = 1
Decision: TypeAlias = Literal["promote", "reject", "undecided", "retire", "rollback"]
IN_FORCE: Final[frozenset[Decision]] = frozenset({"promote", "retire", "rollback"})
"""Decisions that put their library in force."""


@dataclass(frozen=True, slots=True)
class Library:
    """Experiences in force, in a stable order: a modified one keeps its position, a new one is last."""

    entries: tuple[ExperienceRecord, ...]

    @classmethod
    def of_ids(cls, records: Iterable[ExperienceRecord], ids: Sequence[str]) -> Self:
        """Return the library with these experiences, in the order of ``ids``, without the ids of no record.

        Of records with one id the first counts, as in the store.
        """
        known: dict[str, ExperienceRecord] = {}
        for record in records:
            known.setdefault(record.experience_id, record)
        named = (known[name] for name in dict.fromkeys(ids) if name in known)
        return cls(tuple(record for record in named if record.operation != "delete"))

    @property
    def library_id(self) -> str:
        """Sixteen hex digits over ids, polarities and texts in their order; equal libraries have equal ids."""
        content = [[entry.experience_id, entry.polarity, entry.summary32] for entry in self.entries]
        return sha256_hex(canonical_json(content))[:_ID_DIGITS]


def fold(base: Library, records: Iterable[ExperienceRecord]) -> Library:
    """Return the library after these records, oldest first.

    A record replaces the first of its targets and removes the others; without targets in the library it is appended.
    A record that is in force already has no effect.
    """
    entries = {entry.experience_id: entry for entry in base.entries}
    for record in records:
        if record.experience_id not in entries:
            entries = _applied(entries, record)
    return Library(tuple(entries.values()))


def _applied(entries: dict[str, ExperienceRecord], record: ExperienceRecord) -> dict[str, ExperienceRecord]:
    leaving = [name for name in entries if name in record.supersedes]
    fresh = {} if record.operation == "delete" else {record.experience_id: record}
    if not leaving:
        return entries | fresh
    after: dict[str, ExperienceRecord] = {}
    for name, entry in entries.items():
        if name == leaving[0]:
            after |= fresh
        elif name not in leaving:
            after[name] = entry
    return after


def write_state(
    path: Path,
    task_id: str,
    champion: Library,
    *,
    last_run: str | None,
    simulated: bool = False,
    clock: Clock = utc_now,
) -> None:
    """Replace the view. ``simulated``: the champion was learned with the simulated model.

    Raises ``StoreError`` when the disk refuses; the old view then stays.
    """
    lessons = [
        {"experience_id": entry.experience_id, "polarity": entry.polarity, "text": entry.summary32}
        for entry in champion.entries
    ]
    replace_json(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "task_id": task_id,
            "champion": {"library_id": champion.library_id, "simulated": simulated, "experiences": lessons},
            "last_run": last_run,
            "updated_at": clock().isoformat(),
        },
    )


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the view, or None without a file. Raises ``CorruptFile`` when it is not a JSON object."""
    return read_json(path, "the view of a task")


class Promotion(Strict):
    """Decision of the gate on the candidate library of one run."""

    schema_version: Literal[1, 2, 3] = 3
    """Version 1 has neither ``signatures`` nor ``previous``, version 2 neither ``capital`` nor ``nights``."""
    run_id: str
    decided_at: AwareDatetime
    decision: Decision
    experience_ids: tuple[str, ...]
    """The candidate, in its order; of ``retire``, what is left of the champion; of ``rollback``, what came back."""
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
    capital: tuple[float, ...] | None = None
    """Log capital of each gambler after this night (``rewarders.statistics.Capital``); None without, as for an import."""
    nights: int | None = None
    """Nights with evidence behind the capital; 0 if it was given up and starts anew."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """Of ``retire``: why each lesson left, by id."""
    who: str = ""
    """Who decided, if a person did."""
    why: str = ""
    """The person's reason, and for a rollback the decision whose library came back."""
    previous: str | None = None
    """SHA-256 of the line before, set when recorded; None in the first line."""

    @property
    def ends_night(self) -> bool:
        """Whether a gate decided it: what a person takes in or back is no night."""
        return self.decision not in {"retire", "rollback"} and not (self.decision == "promote" and self.pairs == 0)


def uncompared(library: Library, decision: Decision, **fields: Any) -> Promotion:
    """Return a decision behind which there is no comparison: a retirement, a rollback, an import."""
    return Promotion(
        decision=decision,
        experience_ids=tuple(entry.experience_id for entry in library.entries),
        library_id=library.library_id,
        estimate=None,
        low=None,
        high=None,
        pairs=0,
        **fields,
    )


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
            file.append_lines([decided.model_dump_json()], fsync=True)
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
    # Line ends that a tool has converted do not break the chain.
    return sha256_hex(line.removesuffix(b"\r"))


def _parsed(path: Path, lines: Iterable[str | bytes]) -> Iterator[Promotion]:
    return Promotion.of_lines(path, lines, "a decision of the gate")


def in_force(decisions: Iterable[Promotion], *, simulated: bool | None = None) -> Promotion | None:
    """Return the last decision that put a library in force, of decisions oldest first, or None.

    ``simulated`` True or False considers only decisions about simulated or about real models: evidence for one is none
    for the other. None: the last one for a real model, and for the simulated one only without such, so that a rehearsal
    replaces no real library.
    """
    last: dict[bool, Promotion] = {}
    for promotion in decisions:
        if promotion.decision in IN_FORCE:
            last[promotion.simulated] = promotion
    if simulated is None:
        return last.get(False) or last.get(True)
    return last.get(simulated)


def nights_before(decisions: Iterable[Promotion]) -> int:
    """Return the number of the night that follows these decisions."""
    return sum(one.ends_night for one in decisions)


def nights_unchanged(decisions: Iterable[Promotion]) -> int:
    """Return how many decisions in a row, up to the last, left the library in force as it was."""
    count = 0
    for one in decisions:
        count = 0 if one.decision in IN_FORCE else count + 1
    return count
