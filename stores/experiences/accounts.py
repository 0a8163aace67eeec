"""Keep an account of every lesson: append-only events for and against it, and what follows from them.

The net support of a lesson follows its nights in order: net ← 0.8^(nights since) · min(20, net) + for − against. The
candidate has the lessons of enough net support, of two that contradict each other only the stronger; a champion's lesson
leaves when too much counts against it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import AwareDatetime, Field, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.record import STRICT, ExperienceRecord, read_lines_as, support_of
from tfgrpo.stores.files.atomic import KeyedJsonl, read_lines

FORGETTING: Final = 0.8
"""Weight of an event of the night before, in units of one of this night."""
LEAST_SUPPORT: Final = 2.0
"""Net support from which a lesson is in the candidate."""
LEAST_GROUPS: Final = 2
"""Groups that must speak for it: two contrasts of one group have the same luck."""
MOST_SUPPORT: Final = 20.0
"""Most net support of one night's end that counts on: what many nights said must not take as many to be unsaid."""
LEAVES_BELOW: Final = -1.0
"""Net support below which a lesson of the champion leaves at once."""
JOINS_FROM: Final = 2.0
"""Standard errors of what was said of a lesson where it was tried, from which it joins a library in force."""
STAYS_FROM: Final = 1.0
"""Standard errors from which it stays in it."""
RETIRED_NIGHTS: Final = 6
"""Nights that a retired lesson stays out."""
_FORGOTTEN: Final = 0.2
_MOST_AT_OPENING: Final = 4.0
_ID_DIGITS: Final = 24

EventKind: TypeAlias = Literal["taught", "confirmed", "contradicted", "judged", "retired", "restored"]
Judgement: TypeAlias = Literal["helped", "misled", "unused"]
_SIDES: Final[Mapping[str, int]] = {"taught": 1, "confirmed": 1, "contradicted": -1, "helped": 1, "misled": -1}


@pydantic_dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class AccountEvent:
    """One line of ``accounts.jsonl``: what one group, or a measurement, says of a lesson.

    With slots: months of nights are hundreds of thousands of events in memory, and a model takes three times as much.
    """

    schema_version: Literal[1] = 1
    event_id: str = ""
    """Digest of what happened and where, so that a resumed run writes it once; set by ``named``."""
    experience_id: str
    kind: EventKind
    """``retired`` and ``restored`` count nothing: the lesson stays out, or comes back."""
    judgement: Judgement | None = None
    """Of ``judged``: helped counts for the lesson, misled against it, unused nothing."""
    opposite: str | None = None
    """Id of the lesson that says the opposite, where one is known."""
    weight: float = Field(default=1.0, ge=0.0)
    """How many contrasts of the group say it."""
    run_id: str
    simulated: bool
    night: int = Field(ge=0)
    """Decisions of the task's gate before the run."""
    epoch: int = Field(default=0, ge=0)
    """0 for what is known when a run begins."""
    batch: int = Field(default=0, ge=0)
    group_id: str = ""
    """Empty for what no group of attempts says."""
    family: str = ""
    """Domain of the group's item, where the dataset names one."""
    why: str = ""
    created_at: AwareDatetime

    @property
    def side(self) -> int:
        """1 for the lesson, -1 against it, 0 for neither."""
        return _SIDES.get(self.judgement or self.kind, 0)

    def named(self) -> AccountEvent:
        """Return the event with its id."""
        unlike = {"schema_version", "event_id", "night", "family", "why"}
        # A run that is resumed says it again at another time; a person who does so, means it again.
        unlike |= {"created_at"} if self.epoch or self.side else set()
        content = canonical_json(_EVENT.dump_python(self, mode="json", exclude=unlike))
        return replace(self, event_id=f"acc-{sha256_hex(content)[:_ID_DIGITS]}")


_EVENT: Final = TypeAdapter(AccountEvent)


def append_events(path: Path, events: Iterable[AccountEvent]) -> int:
    """Append the events that are not in the file and return how many; those of a batch all or none. Raises ``StoreError``."""
    file = KeyedJsonl(path, lambda row: str(row["event_id"]))
    batches = groupby(events, attrgetter("epoch", "batch"))
    return sum(file.append(_EVENT.dump_python(event, mode="json") for event in batch) for _, batch in batches)


def read_events(path: Path, lines: int | None = None) -> list[AccountEvent]:
    """Return the events of the first ``lines`` lines, None for all. Raises ``CorruptFile`` for any other line."""
    return list(islice(read_lines_as(_EVENT.validate_json, path, read_lines(path), "an event of an account"), lines))


def opening_event(
    record: ExperienceRecord,
    *,
    night: int,
    simulated: bool,
    now: datetime,
    support: int | None = None,
    why: str = "in force before there were accounts",
) -> AccountEvent:
    """Return what a lesson that was learned elsewhere, or in force before there were accounts, begins with.

    It counts as taught by the groups behind its record, or by ``support`` groups: at least as many as a lesson in force
    needs, at most four.
    """
    groups = float(support_of(record) if support is None else support)
    return AccountEvent(
        experience_id=record.experience_id,
        kind="taught",
        weight=min(max(groups, LEAST_SUPPORT), _MOST_AT_OPENING),
        run_id=record.run_id,
        simulated=simulated,
        night=night,
        why=why,
        created_at=now,
    ).named()


@dataclass(frozen=True, slots=True)
class Account:
    """What is known for and against one lesson at the beginning of a night."""

    ids: frozenset[str]
    """The lesson, and those of its direction that it rewords or merges."""
    in_favour: float
    """Contrasts of groups that count for it, those of long ago included."""
    against: float
    groups: int
    """Groups that count for it."""
    net: float
    """For minus against, with forgetting; of what earlier nights said at most ``MOST_SUPPORT``."""
    weight: float
    """For plus against, with forgetting."""
    tried: float
    """What attempts that were given it say, helped minus misled, in standard errors: for n said by chance the root of n."""
    age: int
    """Nights since the first event."""
    families: tuple[str, ...]
    opposites: frozenset[str]
    """Ids of lessons that say the opposite."""
    retired: str
    """Why it is kept out; empty if it is not."""

    @property
    def living(self) -> bool:
        """Whether enough is remembered of the lesson for it to be known."""
        return bool(self.retired) or self.weight >= _FORGOTTEN

    def as_json(self) -> dict[str, Any]:
        """Return what people look at: for, against, net support, how it was tried, age, whether it is retired, opposites."""
        return {
            "for": self.in_favour,
            "against": self.against,
            "net": self.net,
            "tried": self.tried,
            "nights": self.age,
            "retired": bool(self.retired),
            "opposites": sorted(self.opposites),
        }

    def opposes(self, other: Account) -> bool:
        """Whether the two lessons contradict each other."""
        return not (self.opposites.isdisjoint(other.ids) and other.opposites.isdisjoint(self.ids))


def telling(events: Iterable[AccountEvent]) -> tuple[AccountEvent, ...]:
    """Return the events that make up the same accounts: of each lesson's judgements ``unused`` one per night and family."""
    told = {
        (each.experience_id, each.night, each.family) if each.judgement == "unused" else place: each
        for place, each in enumerate(events)
    }
    return tuple(told.values())


def accounts_of(
    records: Sequence[ExperienceRecord], events: Iterable[AccountEvent], night: int, most: float = MOST_SUPPORT
) -> dict[str, Account]:
    """Return the account of each record by id, as of a night; ``most``: net support that is carried from one to the next.

    ``records`` and ``events`` are in the order in which they were written, records that others supersede included. Per
    lesson and group at most one event for it and one against it count, the first. A record that supersedes others of its
    polarity carries on their events; a change of direction carries on nothing.
    """
    by_id: dict[str, list[tuple[int, AccountEvent]]] = {}
    for place, event in enumerate(events):
        by_id.setdefault(event.experience_id, []).append((place, event))
    found: dict[str, Account] = {}
    for name, ids in _lineage(records).items():
        own = sorted(chain.from_iterable(by_id.get(one, ()) for one in ids), key=itemgetter(0))
        found[name] = _account(ids, [event for _, event in own], night, most)
    return found


def _lineage(records: Sequence[ExperienceRecord]) -> dict[str, frozenset[str]]:
    """Return, by id, the record and all that it carries on."""
    polarity = {record.experience_id: record.polarity for record in records}
    lineage: dict[str, frozenset[str]] = {}
    for record in records:
        same = [name for name in record.supersedes if polarity.get(name) == record.polarity]
        carried = [lineage.get(name, frozenset({name})) for name in same]
        lineage.setdefault(record.experience_id, frozenset({record.experience_id}).union(*carried))
    return lineage


def _account(ids: frozenset[str], events: Sequence[AccountEvent], night: int, most: float) -> Account:
    """Return the account of a lesson, from its events in the order in which they were written."""
    counted: dict[tuple[int, str], AccountEvent] = {}
    for event in sorted(events, key=lambda each: (each.night, each.epoch, each.batch)):
        if event.side:
            counted.setdefault((event.side, event.group_id or event.event_id), event)
    sides = [(event.side * event.weight, FORGETTING ** max(0, night - event.night)) for event in counted.values()]
    # What attempts that all failed taught is known, too, though it counts nothing yet.
    unconfirmed = [
        event for event in counted.values() if event.kind == "taught" and event.group_id and not event.weight
    ]
    return Account(
        ids=ids,
        in_favour=math.fsum(value for value, _ in sides if value > 0),
        against=math.fsum(-value for value, _ in sides if value < 0),
        groups=sum(
            1 if event.group_id else int(event.weight) for event in counted.values() if event.side * event.weight > 0
        ),
        net=_net(counted.values(), night, most),
        weight=math.fsum(abs(value) * memory for value, memory in sides)
        + math.fsum(FORGETTING ** max(0, night - event.night) for event in unconfirmed),
        tried=_tried(counted.values(), night),
        age=max((night - event.night for event in events), default=0),
        families=tuple(sorted({event.family for event in events if event.family})),
        opposites=frozenset(event.opposite for event in events if event.opposite is not None) - ids,
        retired=_retired(events, night),
    )


def _net(events: Iterable[AccountEvent], night: int, most: float) -> float:
    """Return for minus against, of events in the order of their nights, with forgetting from one night to the next."""
    net, at = 0.0, 0
    for then, said in groupby(events, attrgetter("night")):
        carried = min(most, net) * FORGETTING ** (then - at)
        net, at = carried + math.fsum(event.side * event.weight for event in said), then
    return min(most, net) * FORGETTING ** (night - at) if night > at else net


def _tried(events: Iterable[AccountEvent], night: int) -> float:
    said = [
        event.side * event.weight * (FORGETTING ** max(0, night - event.night) if event.group_id else 1.0)
        for event in events
        if event.kind == "judged" or not event.group_id  # a person's word is not forgotten
    ]
    return math.fsum(said) / math.sqrt(max(1.0, math.fsum(map(abs, said))))


def _retired(events: Sequence[AccountEvent], night: int) -> str:
    """Return why a lesson is kept out; empty unless the last word is a retirement that still holds."""
    # As it was written: a person says something after a measurement of the same night, whose epoch is later.
    last = next((event for event in reversed(events) if event.kind in {"retired", "restored"}), None)
    if last is None or last.kind == "restored" or night - last.night >= RETIRED_NIGHTS:
        return ""
    return last.why or "measured as harmful"


def contradictions(accounts: Mapping[str, Account]) -> dict[str, tuple[str, ...]]:
    """Return, by id, the lessons among these that contradict it, the best supported first; without any it is left out."""
    owners: dict[str, list[str]] = {}
    for name, account in accounts.items():
        for one in account.ids:
            owners.setdefault(one, []).append(name)
    found: dict[str, set[str]] = {}
    for name, account in accounts.items():
        for other in {owner for one in account.opposites for owner in owners.get(one, ())} - {name}:
            found.setdefault(name, set()).add(other)
            found.setdefault(other, set()).add(name)
    return {name: tuple(sorted(found[name], key=lambda one: -accounts[one].net)) for name in accounts if name in found}


def in_force(
    entries: Sequence[ExperienceRecord], accounts: Mapping[str, Account], slots: int, standing: Collection[str] = ()
) -> tuple[ExperienceRecord, ...]:
    """Return the candidate's lessons in the order of ``entries``: the strongest of two groups and net support 2.

    ``standing``: ids of lessons in force so far, which stay while anything speaks for them. Attempts that follow a lesson
    seldom differ in it, so that its account grows more slowly than those of others. Of two that contradict each other only
    the stronger, at equal support the earlier; of equal texts, which runs at the same time may store, only the first; none
    that is retired.
    """
    by_text: dict[tuple[str, str], ExperienceRecord] = {}
    for entry in entries:
        if _supported(accounts.get(entry.experience_id), standing):
            by_text.setdefault((entry.polarity, entry.summary32), entry)
    fitting = by_text.values()
    chosen: dict[str, Account] = {}
    for entry in sorted(fitting, key=lambda each: -accounts[each.experience_id].net):
        account = accounts[entry.experience_id]
        if len(chosen) < slots and not any(account.opposes(other) for other in chosen.values()):
            chosen[entry.experience_id] = account
    return tuple(entry for entry in fitting if entry.experience_id in chosen)


def _supported(account: Account | None, standing: Collection[str]) -> bool:
    if account is None or account.retired:
        return False
    if account.ids.intersection(standing):
        return account.net > 0.0
    return account.net >= LEAST_SUPPORT and account.groups >= LEAST_GROUPS


def successor(
    candidate: Sequence[ExperienceRecord], champion: Sequence[ExperienceRecord], accounts: Mapping[str, Account]
) -> tuple[ExperienceRecord, ...]:
    """Return the lessons of the candidate that may follow on the champion: all of them on an empty one.

    The candidate tries what two groups say. On a library in force follow those of its lessons that helped the attempts that
    were given them: by two standard errors, lessons that are in force already by one. What a person brought in counts as
    tried as often as it counts as taught, for good: it stays until attempts speak against it.
    """
    serving = {entry.experience_id for entry in champion}
    return tuple(
        entry
        for entry in candidate
        for account in (accounts[entry.experience_id],)
        if not serving or account.tried >= (JOINS_FROM if account.ids.isdisjoint(serving) else STAYS_FROM)
    )


def leaving(champion: Sequence[ExperienceRecord], accounts: Mapping[str, Account]) -> dict[str, str]:
    """Return the lessons of the champion that must leave at once, by id, with the reason."""
    reasons: dict[str, str] = {}
    for name in (entry.experience_id for entry in champion):
        # Of a rewording that is not in force yet, too: what is said of it is said of its lesson.
        carried = [account for account in accounts.values() if name in account.ids]
        account = max(carried, key=lambda each: len(each.ids), default=None)
        if account is not None and account.retired:
            reasons[name] = account.retired
        elif account is not None and account.net < LEAVES_BELOW:
            reasons[name] = f"net support {account.net:.2f} ({account.in_favour:g} for, {account.against:g} against)"
    return reasons


def known(
    records: Sequence[ExperienceRecord],
    accounts: Mapping[str, Account],
    capacity: int,
    kept: Collection[str] = (),
) -> tuple[ExperienceRecord, ...]:
    """Return the lessons with a living account in their order, at most ``capacity``: those of which most is known.

    Those in ``kept`` come first. Of equally known ones the newer stay.
    """
    living = [
        (record.experience_id in kept, accounts[record.experience_id].weight, position)
        for position, record in enumerate(records)
        if record.experience_id in kept or accounts[record.experience_id].living
    ]
    stay = {position for _, _, position in sorted(living, reverse=True)[:capacity]}
    return tuple(record for position, record in enumerate(records) if position in stay)
