"""``tfgrpo experiences review``, ``retire``, ``approve`` and ``rollback``: what is known of lessons, and a person's word.

Each correction is a line of ``promotions.jsonl``, written under its lock. A run that is under way keeps what it began
with, and puts nothing into force over the change.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.commands.lessons.experiences import TaskExperiences, open_experiences
from tfgrpo.flows.commands.options import Place, checked_text
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.nights import changes_of
from tfgrpo.flows.run.credit import effect_text, lesson_json, task_credit
from tfgrpo.flows.run.damage import task_problems
from tfgrpo.flows.run.index import nights_begun
from tfgrpo.flows.run.lessons import decided_library, library_of, signatures_in, verified, write_view
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.credit import PERSON_GROUPS, CreditFile, Word
from tfgrpo.stores.experiences.decisions import (
    Correction,
    Decision,
    decided_damage,
    in_force,
    kept_out,
    read_decisions,
    record_decided,
)
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import clean_text, pluralize
from tfgrpo.tasks.decision import chance

_STATES: Final = ("in force", "on trial", "known", "kept out")
_NONE: Final = "none"
_SHOWN: Final = 10


def review(place: Place, packs_root: Path | None, console: Console) -> None:
    """Print every lesson in force, then those on trial, then the other known ones, and the commands that act on them."""
    experiences = open_experiences(place, packs_root, console)
    serving = experiences.serving(simulated=experiences.simulated)
    credit = task_credit(experiences.paths, experiences.store, simulated=experiences.simulated)
    records = list(experiences.store.find({name for each in credit.known.values() for name in each.ids}))
    lessons: list[dict[str, Any]] = []
    for each in credit.known.values():
        first = min((one for one in records if one.experience_id in each.ids), key=lambda one: one.created_at)
        origin = {"cause": each.record.cause, "group_id": each.record.group_id, "first_run": first.run_id}
        named = {"experience_id": each.record.experience_id, "polarity": each.record.polarity}
        lessons.append({**named, "text": each.record.summary32, **lesson_json(each, credit, serving), **origin})
    lessons.sort(key=lambda each: _STATES.index(each["state"]))
    if console.as_json:
        console.result({"simulated": experiences.simulated, "lessons": lessons})
        return
    by_id = {each["experience_id"]: each for each in lessons}
    for lesson in lessons:
        console.text("\n    ".join(_lines(lesson, by_id)))
    if not lessons:
        console.say("No lesson is known yet.")
        return
    console.say(
        "`tfgrpo experiences retire ID --why TEXT` keeps a lesson out, `measure ID` measures it, `blame ID` shows its "
        "attempts, `rollback TO` puts an earlier library into force (`tfgrpo history`)."
    )


def _lines(lesson: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    state = lesson["state"] + (f" ({lesson['kept_out']})" if lesson["state"] == "kept out" else "")
    likely = f"{chance(lesson['effect']['likely'])} likely to help"
    groups = f"{pluralize(lesson['groups_for'], 'group')} for, {lesson['groups_against']} against"
    support = f"support {lesson['support']:+.1f} ({groups})"
    age = f"{pluralize(lesson['nights'], 'night')} old"
    yield f"{lesson['experience_id']}  {state}: {effect_text(lesson['effect'])}, {likely}; {support}; {age}"
    yield f"{lesson['polarity']}: {lesson['text']}"
    if lesson["cause"]:
        yield f"because {lesson['cause']}"
    for name in lesson["opposites"]:
        other = known[name]
        yield f"contradicts {name}, {other['state']}: {effect_text(other['effect'])}"
    yield f"first learned in {lesson['first_run']}, from {lesson['group_id'] or 'no group'}"


def rollback(
    name: str, why: str | None, by: str | None, place: Place, packs_root: Path | None, console: Console
) -> None:
    """Put the library of an earlier decision, or none, into force. Raise ``SettingsError`` if one of its lessons fails.

    Where decisions or credit are damaged, what is left of them counts from now on.
    """
    experiences, who = open_experiences(place, packs_root, console), _who(by)
    why = "" if why is None else checked_text("--why", why)
    path = experiences.paths.promotions
    damaged = decided_damage(path) is not None

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        target = _target(name, earlier, damaged=damaged)
        shown = target or in_force(earlier)
        simulated = shown is not None and shown.simulated
        ids = target.experience_ids if target else ()
        now = in_force(earlier, simulated=simulated)
        accepted = [each for each in task_problems(experiences.store, experiences.paths) if "state.json:" not in each]
        if ids == (now.experience_ids if now else ()) and not (damaged or accepted):
            return None
        library = _sound(experiences, name, target)
        to = f"back to {target.run_id}, decision {earlier.index(target) + 1}" if target else "back to no lessons"
        decision = persons_decision(
            experiences.store,
            library,
            "rollback",
            earlier,
            simulated=simulated,
            who=who,
            why=f"{to}: {why}" if why else to,
            accepted=tuple(accepted),
        )
        bring_in(experiences.paths, library.entries, decision)
        return decision

    if not damaged:
        _target(name, list(read_decisions(path)))  # refused before any file is made
    _finish(experiences, console, record_decided(path, decide, accepts=damaged), "that library is in force already")


def retire(name: str, why: str | None, by: str | None, place: Place, packs_root: Path | None, console: Console) -> None:
    """Keep a lesson out, also of the library in force, until a rollback to a library with it."""
    experiences, who = open_experiences(place, packs_root, console), _who(by)
    reason = checked_text("--why", why)
    simulated, lesson = experiences.known(experiences.find(name).experience_id)
    name = lesson.record.experience_id

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        now = in_force(earlier, simulated=simulated)
        ids = now.experience_ids if now else ()
        left = tuple(each for each in ids if each not in lesson.ids)
        if left == ids and name in kept_out(earlier, simulated=simulated):
            return None
        rest = library_of(experiences.store, left, now.signatures if now else {})
        reasons = dict.fromkeys((name, *sorted(lesson.ids - {name})), reason)  # of every wording of it
        return persons_decision(
            experiences.store, rest, "retire", earlier, simulated=simulated, who=who, reasons=reasons
        )

    _finish(experiences, console, record_decided(experiences.paths.promotions, decide), f"{name} is kept out already")


def approve(
    name: str, why: str | None, by: str | None, place: Place, packs_root: Path | None, console: Console
) -> None:
    """Let a lesson in that was held for review or retired: it goes on trial. What is in force stays as it is."""
    experiences, who = open_experiences(place, packs_root, console), _who(by)
    reason = checked_text("--why", why)
    simulated, lesson = experiences.known(experiences.find(name).experience_id)
    name = lesson.record.experience_id

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        if not lesson.kept_out:
            return None
        now = in_force(earlier, simulated=simulated)
        library = library_of(experiences.store, now.experience_ids, now.signatures) if now else Library(())
        decision = persons_decision(
            experiences.store,
            library,
            "approve",
            earlier,
            simulated=simulated,
            who=who,
            why=reason,
            reasons=dict.fromkeys((name, *sorted(lesson.ids - {name})), reason),
        )
        bring_in(experiences.paths, [lesson.record], decision)
        return decision

    _finish(experiences, console, record_decided(experiences.paths.promotions, decide), f"{name} is not kept out")


def persons_decision(
    store: ExperienceStore, library: Library, what: Correction, earlier: Sequence[Decision], **fields: Any
) -> Decision:
    """Return a person's word, which puts a library into force. Its name is made of what it does and its line."""
    return Decision(
        run_id=f"{what}-{len(earlier) + 1}",
        decided_at=utc_now(),
        decision=what,
        experience_ids=tuple(entry.experience_id for entry in library.entries),
        library_id=library.library_id,
        signatures=signatures_in(store, library),
        **fields,
    )


def bring_in(
    paths: TaskPaths,
    lessons: Iterable[ExperienceRecord],
    decision: Decision,
    opposites: Mapping[str, str | None] | None = None,
) -> None:
    """Give lessons the support of a person's word. ``opposites``: a lesson that says the opposite, by id."""
    night = nights_begun(paths, simulated=decision.simulated)
    words = [
        Word(
            run_id=decision.run_id,
            night=night,
            experience_id=entry.experience_id,
            said="brought in",
            amount=PERSON_GROUPS,
            opposite=(opposites or {}).get(entry.experience_id),
            why=decision.why,
            simulated=decision.simulated,
            created_at=decision.decided_at,
        ).named()
        for entry in lessons
    ]
    CreditFile(paths.credit).append(words)


def _target(name: str, earlier: Sequence[Decision], *, damaged: bool = False) -> Decision | None:
    """Return the decision that TO names, None for no lessons. Raise ``SettingsError``."""
    changes = [each for each in changes_of(earlier) if each.lessons]
    if name == _NONE and (changes or damaged):
        return None
    named = {
        key: each.decision for keys in ("number", "run_id") for each in changes for key in [str(getattr(each, keys))]
    }
    if name in named:
        return named[name]
    libraries = [f"{each.number} ({each.run_id})" for each in changes if each.added or each.removed]
    shown = ", ".join(libraries[-_SHOWN:])
    accepted = (
        f"none, or a change of `tfgrpo history`: {shown}" if shown else "a task with a library that was ever in force"
    )
    raise SettingsError.one("TO", repr(name), accepted)


def _sound(experiences: TaskExperiences, name: str, target: Decision | None) -> Library:
    """Return the library of a decision. Raise ``SettingsError`` unless every lesson of it is there and verifies."""
    library = verified(decided_library(experiences.store, target), experiences.store)
    ids = {entry.experience_id for entry in library.entries}
    if lost := [each for each in (target.experience_ids if target else ()) if each not in ids]:
        given = f"{name!r}, of whose lessons {len(lost)} do not verify: {', '.join(lost)}"
        raise SettingsError.one("TO", given, "a library whose stamps hold (`tfgrpo verify`)")
    return library


def _finish(experiences: TaskExperiences, console: Console, done: Decision | None, unchanged: str) -> None:
    if done is not None:
        write_view(experiences.store, experiences.paths, experiences.paths.root.name)
    if console.as_json:
        console.result({"change": done.model_dump(mode="json", exclude={"signatures", "previous"}) if done else None})
    elif done is None:
        console.say(f"The library in force is as it was: {unchanged}.")
    else:
        lessons = pluralize(len(done.experience_ids), "lesson") + (" (SIMULATED)" if done.simulated else "")
        for each in done.accepted:
            console.say(f"accepted: {each}", style="yellow")
        console.say(f"In force now: library {done.library_id} of {lessons}. `tfgrpo history` lists every change.")


def _who(by: str | None) -> str:
    if by is not None:
        return checked_text("--by", by)
    with suppress(OSError, KeyError):
        return clean_text(getpass.getuser())
    return ""
