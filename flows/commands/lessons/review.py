"""``tfgrpo experiences review``, ``retire`` and ``rollback``: the account of each lesson, and what a person takes back.

Each correction is a line of ``promotions.jsonl``, written under its lock. A run that is under way keeps what it began
with, and promotes nothing over the change.
"""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from tfgrpo.flows.commands.lessons.experiences import TaskExperiences, open_experiences
from tfgrpo.flows.commands.options import checked_text
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import promoted_library, signatures_in, verified, write_view
from tfgrpo.flows.run.effects import effect_text, measured_json, task_effects
from tfgrpo.flows.run.loop.knowledge import History
from tfgrpo.rewarders.statistics.effects import Effect
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.accounts import (
    Account,
    AccountEvent,
    accounts_of,
    append_events,
    contradictions,
    opening_event,
)
from tfgrpo.stores.experiences.library import (
    IN_FORCE,
    Library,
    Promotion,
    fold,
    in_force,
    nights_before,
    promotions,
    record_decided,
    uncompared,
)
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.text import clean_text, pluralize

_NONE = "none"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Known:
    """A lesson with its account."""

    record: ExperienceRecord
    first: ExperienceRecord
    """The oldest record that it carries on."""
    account: Account
    in_force: bool
    has_events: bool
    """False for a lesson in force from before there were accounts."""

    def as_json(self, effect: Effect | None, opposites: Sequence[str] = ()) -> dict[str, Any]:
        """Return the lesson as JSON, with its measured effect and the known lessons that contradict it."""
        record, account = self.record, self.account
        return {
            "experience_id": record.experience_id,
            "in_force": self.in_force,
            "polarity": record.polarity,
            "text": record.summary32,
            **account.as_json(),
            "opposites": list(opposites),
            **measured_json(record, effect),
            "cause": record.cause,
            "families": list(account.families),
            "group_id": record.group_id,
            "first_run": self.first.run_id,
        }

    def text(self, effect: Effect | None, opposites: Iterable[Known] = ()) -> str:
        """Return the lesson for people, with its measured effect and the known lessons that contradict it."""
        record, account = self.record, self.account
        state = "in force" if self.in_force else f"retired ({account.retired})" if account.retired else "known"
        counted = f"net {account.net:.2f} ({account.in_favour:g} for, {account.against:g} against), tried {account.tried:+.1f}"
        counted += f", effect {effect_text(effect)}" if effect else ""
        families = f", seen in {', '.join(account.families)}" if account.families else ""
        origin = f"first learned in {self.first.run_id}, from {record.group_id or 'no group'}{families}"
        head = f"{record.experience_id}  {state}, {counted}, {pluralize(account.age, 'night')} old"
        because = [f"because {record.cause}"] if record.cause else []
        against = [
            f"contradicts {each.record.experience_id}, {'in force' if each.in_force else 'not in force'}, which has "
            f"{'less' if each.account.net < account.net else 'more'} net support: {each.account.net:.2f}"
            for each in opposites
        ]
        return "\n    ".join((head, f"{record.polarity}: {record.summary32}", *because, *against, origin))


def known_lessons(experiences: TaskExperiences, decisions: Sequence[Promotion], *, simulated: bool) -> list[Known]:
    """Return the lessons in force after these decisions, in their order, then the other known ones; only ones that verify."""
    store, night = experiences.store, nights_before(decisions)
    champion = verified(promoted_library(store, in_force(decisions, simulated=simulated)), store)
    path = experiences.paths.accounts
    history = History.read(store, path, champion, night=night, simulated=simulated, now=utc_now())
    accounts = accounts_of(history.records, [*history.events, *history.opening], night)
    records = {record.experience_id: record for record in history.records}
    begun = {event.experience_id for event in history.events}
    forced = {entry.experience_id for entry in champion.entries}
    known = fold(Library(()), history.records).entries
    others = (each for each in known if each.experience_id not in forced and accounts[each.experience_id].living)
    return [
        Known(
            record=entry,
            first=min((records[name] for name in account.ids if name in records), key=lambda each: each.created_at),
            account=account,
            in_force=entry.experience_id in forced,
            has_events=entry.experience_id in begun,
        )
        for entry in (*champion.entries, *others)
        for account in (accounts[entry.experience_id],)
    ]


def review(options: argparse.Namespace, console: Console) -> None:
    """Print every lesson in force, then every known one, and the commands that act on them."""
    experiences = open_experiences(options, console)
    decisions = list(promotions(experiences.paths.promotions))
    known = known_lessons(experiences, decisions, simulated=experiences.simulated)
    effects = task_effects(experiences.paths, simulated=experiences.simulated)
    by_id = {each.record.experience_id: each for each in known}
    opposites = contradictions({name: each.account for name, each in by_id.items()})
    if console.as_json:
        lessons = [each.as_json(effects.get(name), opposites.get(name, ())) for name, each in by_id.items()]
        console.result({"simulated": experiences.simulated, "lessons": lessons})
        return
    for name, each in by_id.items():
        console.text(each.text(effects.get(name), (by_id[other] for other in opposites.get(name, ()))))
    if not known:
        console.say("No lesson is known yet.")
        return
    console.say(
        "`tfgrpo experiences retire ID --why TEXT` takes a lesson out, `measure ID` measures it, `blame ID` shows its "
        "attempts, `rollback TO` puts an earlier library into force (`tfgrpo history`)."
    )


def rollback(options: argparse.Namespace, console: Console) -> None:
    """Put the library of an earlier decision, or none, into force. Raise ``SettingsError`` if one of its lessons fails."""
    experiences, who = open_experiences(options, console), _who(options)
    why = "" if options.why is None else checked_text("--why", options.why)

    def decide(earlier: Sequence[Promotion]) -> Promotion | None:
        target = _target(options.name, earlier)
        shown = target or in_force(earlier)
        simulated = shown is not None and shown.simulated
        ids = target.experience_ids if target else ()
        now = in_force(earlier, simulated=simulated)
        if now is not None and now.experience_ids == ids:
            return None
        library = _sound(experiences, options.name, target)
        night, line = nights_before(earlier), f"rollback-{len(earlier) + 1}"
        to = f"back to {target.run_id}, decision {earlier.index(target) + 1}" if target else "back to no lessons"
        known = known_lessons(experiences, earlier, simulated=simulated)
        # A library comes back whole: a lesson that was retired since would leave it again in the next run.
        back = [each for each in known if each.account.retired and each.record.experience_id in ids]
        append_events(experiences.paths.accounts, _events("restored", back, line, night, simulated, to))
        said = f"{to}: {why}" if why else to
        return _line(experiences, library, "rollback", run_id=line, simulated=simulated, who=who, why=said)

    path = experiences.paths.promotions
    _target(options.name, list(promotions(path)))  # refused before any file is made
    _finish(experiences, console, record_decided(path, decide), "that library is in force already")


def retire(options: argparse.Namespace, console: Console) -> None:
    """Take a lesson out of the library in force and keep it out for six nights. Raise ``SettingsError`` for any other."""
    experiences, who = open_experiences(options, console), _who(options)
    why = checked_text("--why", options.why)
    name = experiences.find(options.name).experience_id
    simulated = _simulated(experiences, name)

    def decide(earlier: Sequence[Promotion]) -> Promotion | None:
        night, line = nights_before(earlier), f"retire-{len(earlier) + 1}"
        known = known_lessons(experiences, earlier, simulated=simulated)
        lesson = next((each for each in known if each.record.experience_id == name), None)
        if lesson is None or (lesson.account.retired and not lesson.in_force):
            return None
        opening = opening_event(lesson.record, night=night, simulated=simulated, now=utc_now())
        gone = _events("retired", [lesson], line, night, simulated, why)
        append_events(experiences.paths.accounts, gone if lesson.has_events else [opening, *gone])
        if not lesson.in_force:
            return None
        champion = promoted_library(experiences.store, in_force(earlier, simulated=simulated))
        rest = Library(tuple(entry for entry in champion.entries if entry.experience_id != name))
        return _line(experiences, rest, "retire", run_id=line, simulated=simulated, who=who, reasons={name: why})

    done = record_decided(experiences.paths.promotions, decide)
    _finish(experiences, console, done, f"{name} is retired; it was not in force")


def _simulated(experiences: TaskExperiences, name: str) -> bool:
    """Return whether a known lesson is one of the simulated model. Raise ``SettingsError`` for a lesson that is not known."""
    decisions = list(promotions(experiences.paths.promotions))
    for simulated in (False, True):
        known = known_lessons(experiences, decisions, simulated=simulated)
        if any(each.record.experience_id == name for each in known):
            return simulated
    raise SettingsError.one("ID", repr(name), "a lesson in force or known, as `tfgrpo experiences review` lists them")


def _target(name: str, earlier: Sequence[Promotion]) -> Promotion | None:
    """Return the decision that TO names, None for no lessons. Raise ``SettingsError``."""
    changes = {str(number): one for number, one in enumerate(earlier, start=1) if one.decision in IN_FORCE}
    if name == _NONE and changes:
        return None
    by_run = {one.run_id: one for one in changes.values()}
    if name in changes or name in by_run:
        return changes.get(name) or by_run[name]
    shown = ", ".join(f"{number} ({one.run_id})" for number, one in list(changes.items())[-_SHOWN:])
    accepted = f"none, or a change of `tfgrpo history`: {shown}" if shown else "a task whose library ever changed"
    raise SettingsError.one("TO", repr(name), accepted)


def _sound(experiences: TaskExperiences, name: str, target: Promotion | None) -> Library:
    """Return the library of a decision. Raise ``SettingsError`` unless every lesson of it is there and verifies."""
    library = verified(promoted_library(experiences.store, target), experiences.store)
    ids = {entry.experience_id for entry in library.entries}
    if lost := [each for each in (target.experience_ids if target else ()) if each not in ids]:
        given = f"{name!r}, of whose lessons {len(lost)} do not verify: {', '.join(lost)}"
        raise SettingsError.one("TO", given, "a library whose stamps hold (`tfgrpo experiences verify`)")
    return library


def _events(
    kind: Literal["retired", "restored"], lessons: Sequence[Known], line: str, night: int, simulated: bool, why: str
) -> list[AccountEvent]:
    now = utc_now()
    return [
        AccountEvent(
            experience_id=each.record.experience_id,
            kind=kind,
            run_id=line,
            simulated=simulated,
            night=night,
            why=why,
            created_at=now,
        ).named()
        for each in lessons
    ]


def _line(
    experiences: TaskExperiences, library: Library, decision: Literal["retire", "rollback"], **fields: Any
) -> Promotion:
    signatures = signatures_in(experiences.store, library)
    return uncompared(library, decision, decided_at=utc_now(), signatures=signatures, **fields)


def _finish(experiences: TaskExperiences, console: Console, done: Promotion | None, unchanged: str) -> None:
    """Write the view, and print what is in force now; ``unchanged``: why that is what it was."""
    if done is not None:
        write_view(experiences.store, experiences.paths, experiences.paths.root.name)
    if console.as_json:
        console.result({"change": done.model_dump(mode="json", exclude={"signatures", "previous"}) if done else None})
    elif done is None:
        console.say(f"The library in force is as it was: {unchanged}.")
    else:
        lessons = pluralize(len(done.experience_ids), "lesson") + (" (SIMULATED)" if done.simulated else "")
        console.say(f"In force now: library {done.library_id} of {lessons}. `tfgrpo history` lists every change.")


def _who(options: argparse.Namespace) -> str:
    """Return who decides: ``--by``, else the login name."""
    if options.by is not None:
        return checked_text("--by", options.by)
    with suppress(OSError, KeyError):
        return clean_text(getpass.getuser())
    return ""
