"""Keep decisions on what is in force, ``promotions.jsonl``, and tests on sealed items, ``tests.jsonl``, append-only.

Every decision, of a night or a person, says what is in force from then on, so that the last one counts. Each has the digest of
the line before it, so that removed lines are noticed; those removed at the end by ``state.json``, which has the digest of the
newest. Each has that of the lines of ``credit.jsonl``, too. ``state.json`` is the view of a task for people and other programs;
of it, decisions read only which of them was the newest.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import AwareDatetime, Field

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.store import ExperienceRecord, Strict, read_lines_as
from tfgrpo.stores.files.atomic import is_signed_file, read_json, replace_signed
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import Line, LineFile, extent_of, lines_of, read_bodies, sound_lines
from tfgrpo.stores.json_values import canonical_json, sha256_hex

_ID_DIGITS = 16
LIBRARY_SCHEMA = 1
DecisionVerdict: TypeAlias = Literal["in force", "not yet", "taken back"]
"""What a night decides: a library is in force, none was and none is, or the one in force no longer is."""
Correction: TypeAlias = Literal["retire", "approve", "rollback", "import"]
VERDICTS: Final[frozenset[str]] = frozenset({"in force", "not yet", "taken back"})
OVERTAKEN: Final = "another library was put into force since this run began, and it stays"
"""Note of a night that decided nothing for that."""
WAY_OUT: Final = "the file restored, or what is left of it accepted by `tfgrpo experiences rollback RUN|none`"


@dataclass(frozen=True, slots=True)
class Library:
    """Experiences in force, in the order of the prompt."""

    entries: tuple[ExperienceRecord, ...]

    @classmethod
    def of_ids(cls, records: Iterable[ExperienceRecord], ids: Sequence[str]) -> Self:
        """Return the library with these experiences, in the order of ``ids``, without the ids of no record.

        Of records with one id the first counts, as in the store.
        """
        by_id: dict[str, ExperienceRecord] = {}
        for record in records:
            by_id.setdefault(record.experience_id, record)
        return cls(tuple(by_id[name] for name in dict.fromkeys(ids) if name in by_id))

    @property
    def library_id(self) -> str:
        """Sixteen hex digits over ids, polarities and texts in their order; equal libraries have equal ids."""
        content = [[entry.experience_id, entry.polarity, entry.summary32] for entry in self.entries]
        return sha256_hex(canonical_json(content))[:_ID_DIGITS]


def write_state(
    path: Path,
    task_id: str,
    library: Library,
    *,
    last_run: str | None,
    newest: tuple[int, str] | None = None,
    simulated: bool = False,
    clock: Clock = utc_now,
) -> None:
    """Replace the view. ``library`` is what is in force; ``simulated``: it was learned with the simulated model.

    ``newest``: number and SHA-256 of the newest line of ``promotions.jsonl``.
    Raises ``StoreError`` when the disk refuses; the old view then stays.
    """
    lessons = [
        {"experience_id": each.experience_id, "polarity": each.polarity, "text": each.summary32} for each in library.entries
    ]
    state = {
        "schema_version": LIBRARY_SCHEMA,
        "task_id": task_id,
        "in_force": {"library_id": library.library_id, "simulated": simulated, "experiences": lessons},
        "decision": None if newest is None else {"number": newest[0], "sha256": newest[1]},
        "last_run": last_run,
        "updated_at": clock().isoformat(),
    }
    replace_signed(path, state)


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the view, or None without a whole one: it can be written again."""
    # Half a surrogate pair is a ValueError.
    with suppress(CorruptFile, ValueError, LookupError, TypeError):
        content = read_json(path, "the view of a task")
        if content is not None and is_signed_file(path, content):
            newest = content["decision"] or {"number": 0, "sha256": ""}
            _ = content["task_id"], content["updated_at"], newest["number"], newest["sha256"]
            return content
    return None


class Gain(Strict):
    """What a library gains over no lessons, in points, as a normal distribution."""

    mean: float
    sd: float = Field(ge=0.0)
    low: float
    """Ends of the interval of 95 %."""
    high: float
    likely: float = Field(ge=0.0, le=1.0)


class Alarm(Strict):
    """What replies do to more of the items with lessons than of those without, beyond chance, whatever the rewards."""

    sign: str
    items: tuple[int, int, int, int]
    suspects: tuple[str, ...] = ()
    """Lessons that it keeps out; none where a person has approved what replies do."""


class Decision(Strict):
    """What is in force after a night, or after a person's word, and why."""

    schema_version: Literal[1] = 1
    run_id: str
    """For a person's word, what it does and the number of the line, such as ``retire-7``."""
    decided_at: AwareDatetime
    decision: DecisionVerdict | Correction
    experience_ids: tuple[str, ...]
    """What is in force from now on, in the order of the prompt; empty for no lessons."""
    library_id: str
    signatures: dict[str, str] = Field(default_factory=dict)
    """Stamp signatures of those records by id: digests of their content."""
    considered: tuple[str, ...] = ()
    """What this night would have put into force; equal to ``experience_ids`` where it did."""
    total: Gain | None = None
    """Gain of what was considered, by all rows; None without any, and for a person's word."""
    held_out: Gain | None = None
    """Gain on held-out items by the sweeps alone; None before any."""
    pairs: int = Field(default=0, ge=0)
    """Held-out items of this night's sweep with a reward on both sides."""
    evidence: float = 0.0
    """Natural logarithm of the e-value that the libraries of all nights are better than none, by the sweeps alone."""
    proven: bool = False
    """Whether something is in force and the e-value reaches 20."""
    attempts: int = Field(default=0, ge=0)
    notes: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    reasons: dict[str, str] = Field(default_factory=dict)
    """In ``retire`` and ``approve``, why each lesson is kept out or let in, by id."""
    who: str = ""
    """Empty for a night."""
    why: str = ""
    """Of a rollback also the decision whose library came back."""
    night: int | None = None
    """By its start, from 1; None for a person's word."""
    simulated: bool
    accepted: tuple[str, ...] = ()
    """In ``rollback``, damage of the task's files that stays."""
    credit_lines: int = Field(default=0, ge=0)
    """Lines of ``credit.jsonl``, set when recorded."""
    credit_sha256: str = ""
    previous: str | None = None
    """SHA-256 of the line before, set when recorded; None in the first line."""

    @property
    def ends_night(self) -> bool:
        """Whether a night decided it."""
        return self.decision in VERDICTS

    @property
    def overtaken(self) -> bool:
        """Whether what is in force is not what this night considered: the figures are those of the latter."""
        return OVERTAKEN in self.notes


def record_decided(
    path: Path, decide: Callable[[Sequence[Decision]], Decision | None], *, accepts: bool = False
) -> Decision | None:
    """Append and return the result of ``decide`` on the decisions so far, under the lock of the file.

    None, or one of the earlier decisions, is not appended. Raises ``StoreError``, and ``CorruptFile`` for damaged decisions or
    credit; with ``accepts`` damaged lines of all files of the task are moved away first, and what is left counts.
    """
    task = TaskPaths(path.parent)
    with LineFile(path) as file:
        if accepts:
            file.repair()
            for each in task.own_files():
                if each.suffix == ".jsonl" and each != path and each.exists():
                    with LineFile(each) as other:
                        other.repair()
        elif damage := decided_damage(path):
            raise CorruptFile(f"{damage}; accepted: {WAY_OUT}")
        earlier = tuple(read_decisions(path))
        decided = decide(earlier)
        if decided is not None and not any(decided is one for one in earlier):
            (lines, sha256), before = extent_of(task.credit), newest_line(path)
            chained = {"previous": before and before[1], "credit_lines": lines, "credit_sha256": sha256}
            decided = decided.model_copy(update=chained)
            file.append([decided.model_dump(mode="json")], fsync=True)
    return decided


def newest_line(path: Path) -> tuple[int, str] | None:
    """Return the number of the newest decision, from 1, and the SHA-256 of its line; None before any."""
    newest = deque(enumerate(sound_lines(path), start=1), maxlen=1)
    return (newest[0][0], _digest(newest[0][1])) if newest else None


def lost_decision(path: Path) -> str | None:
    """Return why the newest decisions may be lost; None while they are there. What is in force is unknown without them.

    The newest is that of ``state.json``: of a process that was killed, or of another one, there may be newer ones.
    """
    newest = (read_state(TaskPaths(path.parent).state) or {}).get("decision")
    try:
        digests = [_digest(line) for line in (lines_of if newest else sound_lines)(path)]
    except CorruptFile as error:
        return str(error)
    if newest and newest["sha256"] not in digests:
        return f"{path}: decision {newest['number']}, the newest by state.json, is missing or was changed"
    return None


def decided_damage(path: Path) -> str | None:
    """Return what is damaged of the decisions, or of the credit that the newest one is based on; None for none."""
    try:
        return lost_decision(path) or lost_credit(path)
    except CorruptFile as error:
        return str(error)


def lost_credit(path: Path) -> str | None:
    """Return which credit the newest decision was based on and is lost; None for none. Raises ``CorruptFile``."""
    credit, decisions = TaskPaths(path.parent).credit, [None, *read_decisions(path)]
    deque(sound_lines(credit), maxlen=0)
    if (last := decisions[-1]) and (extent := extent_of(credit, last.credit_lines)) != (last.credit_lines, last.credit_sha256):
        there = f"{extent.lines} of them are there, or they were changed"
        return f"{credit}: its first {last.credit_lines} lines are not those of decision {len(decisions) - 1}: {there}"
    return None


def read_decisions(path: Path) -> Iterator[Decision]:
    """Yield all decisions, oldest first; none without a file. Raises ``CorruptFile`` for any other line."""
    return read_lines_as(Decision.model_validate_json, path, read_bodies(path), "a decision")


def chain_problems(path: Path) -> list[str]:
    """Return the problems of the file that were not accepted: damaged lines, removed lines, an incomplete last line."""
    problems, accepted = list[str](), set[str]()
    before: str | None = None
    end = 0
    for line in lines_of(path):
        end = line.offset + len(line.data) + 1
        if line.damaged:
            problems.append(f"{path.name}: line {line.number} is damaged")
        elif line.length:
            row = json.loads(line.body)
            accepted.update(row.get("accepted", ()))
            if row.get("previous") != before:
                why = "a line before it was removed or changed"
                problems.append(f"{path.name}: line {line.number} does not continue the chain: {why}")
        before = _digest(line) if line.data.strip() else before
    if path.exists() and path.stat().st_size > end:
        problems.append(f"{path.name}: the last line is incomplete and does not count")
    return [each for each in problems if each not in accepted]


def _digest(line: Line) -> str:
    # Line ends that a tool has converted do not break the chain.
    return sha256_hex(line.data.removesuffix(b"\r"))


def in_force(decisions: Iterable[Decision], *, simulated: bool | None = None) -> Decision | None:
    """Return the decision on what is in force, of decisions oldest first; None before any.

    ``simulated`` True or False considers only decisions about simulated or about real models: evidence for one is none
    for the other. None: the last one for a real model, and for the simulated one only without such, so that a rehearsal
    replaces no real library.
    """
    last: dict[bool, Decision] = {}
    for one in decisions:
        # What never had a lesson in force hides nothing.
        if simulated is None and not one.experience_ids and one.simulated not in last:
            continue
        last[one.simulated] = one
    return last.get(False) or last.get(True) if simulated is None else last.get(simulated)


def kept_out(decisions: Iterable[Decision], *, simulated: bool) -> dict[str, str]:
    """Return the lessons that a person keeps out by id, with the reason: retired, and not brought back since.

    A lesson is retired in all its wordings, and comes back with any of them.
    """
    retired: list[dict[str, str]] = []
    for one in decisions:
        if one.simulated == simulated:
            back = one.reasons if one.decision == "approve" else one.experience_ids
            if one.decision in {"approve", "rollback", "import"}:
                retired = [each for each in retired if each.keys().isdisjoint(back)]
            if one.decision == "retire":
                retired.append(one.reasons)
    return {name: why for each in retired for name, why in each.items()}


def nights_unchanged(decisions: Iterable[Decision]) -> int:
    """Return how many nights in a row, up to the last, left what is in force as it was and would have put nothing else."""
    count = 0
    before: tuple[str, ...] = ()
    for one in decisions:
        same = one.ends_night and one.experience_ids == before == one.considered
        count, before = count + 1 if same else 0, one.experience_ids
    return count


class SealedTest(Strict):
    """A library against no lessons, on the sealed items."""

    schema_version: Literal[1] = 1
    run_id: str
    tested_at: AwareDatetime
    library_id: str
    experience_ids: tuple[str, ...]
    model: str
    simulated: bool
    estimate: float | None
    """Mean difference in points, library minus no lessons; None when no item could be compared."""
    low: float | None
    high: float | None
    confidence: float
    pairs: int
    """Sealed items scored in both arms."""
    lost: int
    """Those without a score in one of them."""
    group_size: int
    seen: int
    """Sealed items that earlier runs of the task had attempted: they were not sealed then."""

    @property
    def result(self) -> str:
        """The finding in a few words."""
        if self.estimate is None or self.low is None or self.high is None:
            return "nothing could be compared"
        interval = f"({100 * self.confidence:.0f} %: {self.low:+.1f} … {self.high:+.1f})"
        seen = f", {self.seen} of which earlier runs had attempted" if self.seen else ""
        return f"{self.estimate:+.1f} points {interval}, {self.pairs} sealed items{seen}"


def sealed_tests(path: Path) -> Iterator[SealedTest]:
    """Yield all tests, oldest first; none without a file. Raises ``CorruptFile`` for any other line."""
    return read_lines_as(SealedTest.model_validate_json, path, read_bodies(path), "a test on sealed items")


def record_test(path: Path, test: SealedTest) -> SealedTest:
    """Append a test unless its run has one on record, and return the one on record. Raises ``StoreError``."""
    with LineFile(path) as file:
        for one in sealed_tests(path):
            if one.run_id == test.run_id:
                return one
        file.append([test.model_dump(mode="json")], fsync=True)
    return test
