"""``tfgrpo experiences``: what a task has learned, the origin of each lesson, and the library in force."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tfgrpo.flows.commands.options import TaskPlace
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.lessons import (
    credit_lines,
    decided_library,
    decision_in_force,
    effect_text,
    in_force_problems,
    lesson_json,
    screened,
    task_credit,
    verified,
)
from tfgrpo.prompt_packs.stamps import stamps_in_force
from tfgrpo.rewarders.statistics.credit import POINTS
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.credit import Row, RowSource, read_credit
from tfgrpo.stores.experiences.decisions import Decision, Library
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons import SIMULATED, ExportedLesson, LessonForm, LessonSet, render_lessons
from tfgrpo.tasks.learning.credit import KnownLesson

_COLUMNS = ("id", "state", "effect", "for", "against", "tokens", "says", "lesson")
_MAX_MATCHES = 5


def list_lessons(place: TaskPlace, packs_root: Path | None, console: Console, *, every: bool) -> None:
    """Print the lessons in force, or every record, with state, effect and evidence."""
    experiences = open_experiences(place, packs_root, console)
    shown: Iterable[ExperienceRecord] = experiences.store.records() if every else shown_library(experiences, console).entries
    known = experiences.figures(*experiences.kinds if every else ())
    if console.as_json:
        console.result({"experiences": [_json(record, known) for record in shown]})
    elif not every and not experiences.library.entries:
        console.say("No lesson is in force. `tfgrpo experiences review` shows those on trial, `list --all` every record.")
    else:
        console.table(_COLUMNS, (_row(record, known) for record in shown))


def _json(record: ExperienceRecord, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {**record.model_dump(mode="json"), **known.get(record.experience_id, {"state": "forgotten", "effect": None})}


def _row(record: ExperienceRecord, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    each = _json(record, known)
    figures = (str(each.get(name, "")) for name in ("groups_for", "groups_against", "tokens"))
    effect = effect_text(each["effect"])
    return record.experience_id, each["state"], effect, *figures, record.polarity, record.summary32


def show(names: Sequence[str], place: TaskPlace, packs_root: Path | None, console: Console) -> None:
    """Print whole records with the figures of their lessons."""
    experiences = open_experiences(place, packs_root, console)
    known = experiences.figures(*experiences.kinds)
    shown = [_json(experiences.find(name), known) for name in names]
    pages = (
        "\n".join(f"{key:>16}  {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()) for fields in shown
    )
    console.answer({"experiences": shown}, "\n\n".join(pages))


def blame(name: str, place: TaskPlace, packs_root: Path | None, console: Console) -> None:
    """Print every record a lesson descends from, the rollouts that showed it, and the rows that measured it."""
    experiences = open_experiences(place, packs_root, console)
    record = experiences.find(name)
    ancestry = list(experiences.ancestry(record))
    paths = sorted(experiences.paths.root.glob("runs/*/rollouts.jsonl"))
    rollouts = [row for path in paths for row in read_objects(path) if row.get("rollout_id") in record.evidence]
    rows = _rows_of(experiences, {entry.experience_id for _, entry in ancestry if entry.polarity == record.polarity})
    lines = []
    for depth, entry in ancestry:
        origin = f"{entry.operation} in epoch {entry.epoch} of {entry.run_id}"
        lines.append(f"{'  ' * depth}{entry.experience_id}  {origin}: {entry.summary32}")
    for row in rollouts:
        reward = row["outcome"].get("reward")
        score = "no reward" if reward is None else f"reward {reward:.3f}"
        lines.append(f"  {row['rollout_id']}  {score}  {row['summary']}")
    for each in rows:
        what = f"{each['difference']:+.1f} points on its side, beside other lessons"
        lines.append(f"  night {each['night']}, {each['source']}: {what}, over {pluralize(each['rows'], 'row')}")
    if not rows:
        lines.append("  no row yet: no group has carried it on one side alone")
    ancestors = [entry.model_dump(mode="json") for _, entry in ancestry]
    console.answer({"ancestry": ancestors, "rollouts": rollouts, "rows": rows}, "\n".join(lines))


def _rows_of(experiences: TaskExperiences, ids: Collection[str]) -> list[dict[str, Any]]:
    """Return, by run and source, how many rows carried a lesson on one side alone, and how much better that side was."""
    found: dict[tuple[int, str, RowSource], list[float]] = {}
    for line in credit_lines(experiences.paths):
        if isinstance(line, Row) and line.difference is not None:
            carried = [not set(side).isdisjoint(ids) for side in (line.one, line.other)]
            if carried[0] != carried[1]:
                better = POINTS * (line.difference if carried[0] else -line.difference)
                found.setdefault((line.night, line.run_id, line.source), []).append(better)
    return [
        {"night": night + 1, "run_id": run, "source": source, "rows": len(each), "difference": fmean(each)}
        for (night, run, source), each in found.items()
    ]


def export(to: LessonForm | None, place: TaskPlace, packs_root: Path | None, console: Console) -> int:
    """Print the library in force without lessons whose stamp does not verify; exit code 1 when that is all of them."""
    experiences = open_experiences(place, packs_root, console)
    library = shown_library(experiences, console)
    decided = experiences.decision.experience_ids if experiences.decision else ()
    known, first = experiences.figures(), library.entries[:1]

    def lesson(entry: ExperienceRecord) -> ExportedLesson:
        each = known.get(entry.experience_id, {})
        groups = {name: each.get(name, 0) for name in ("groups_for", "groups_against")}
        name, says, effect = entry.experience_id, entry.polarity, each.get("effect")
        return ExportedLesson(id=name, says=says, text=entry.summary32, **groups, effect=effect)

    lessons = LessonSet(
        lessons=tuple(map(lesson, library.entries)),
        task_id=experiences.paths.root.name,
        domain="".join(entry.domain for entry in first),
        pack_id="".join(entry.pack_id for entry in first),
        library_id=library.library_id,
        simulated=experiences.simulated,
    )
    if to == "json" or console.as_json:
        console.result(lessons.model_dump(mode="json"))
    elif library.entries:
        console.text(render_lessons(lessons, to or "text").rstrip("\n"))
    elif not decided:
        console.say("No lesson is in force; there is nothing to export.")
    return 0 if library.entries or not decided else 1


@dataclasses.dataclass(frozen=True, slots=True)
class TaskExperiences:
    """The store of a task and the library in force."""

    paths: TaskPaths
    store: ExperienceStore
    library: Library
    """With records that do not verify."""
    packs: frozenset[str]
    """Ids of the packs that verify."""
    decision: Decision | None
    simulated: bool
    """Whether the library in force was learned with the simulated model; without one, whether the last lessons were."""

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Both kinds of model, simulated or not, that of the library in force first."""
        return self.simulated, not self.simulated

    def in_force(self, *, simulated: bool) -> tuple[str, ...]:
        """Return the ids of what is in force for one kind of model."""
        decision = decision_in_force(self.paths, simulated=simulated)
        return decision.experience_ids if decision else ()

    def known(self, name: str) -> tuple[bool, KnownLesson]:
        """Return whether a known lesson is one of the simulated model, and the lesson. Raise ``SettingsError``."""
        for simulated in self.kinds:
            for lesson in task_credit(self.paths, self.store, simulated=simulated).known.values():
                if name in lesson.ids:
                    return simulated, lesson
        accepted = "a lesson in force, on trial or known, as `tfgrpo experiences review` lists them"
        raise SettingsError.one("ID", repr(name), accepted)

    def figures(self, *kinds: bool) -> dict[str, dict[str, Any]]:
        """Return ``lesson_json`` of the lessons known for these kinds of model, by id; without any, for ``simulated``."""
        found: dict[str, dict[str, Any]] = {}
        for simulated in kinds or (self.simulated,):
            in_force_ids = self.in_force(simulated=simulated)
            credit = task_credit(self.paths, self.store, simulated=simulated)
            for lesson in credit.known.values():
                own = lesson_json(lesson, credit, in_force_ids)
                for name in lesson.ids:
                    newest = name == lesson.record.experience_id or name in in_force_ids
                    found.setdefault(name, own if newest else {**own, "state": "reworded"})
        return found

    def find(self, prefix: str) -> ExperienceRecord:
        """Return the record whose id is, or starts with, ``prefix``. Raise ``SettingsError`` for none or several."""
        matches = self.store.find_by_prefix(prefix, limit=_MAX_MATCHES)
        found = {record.experience_id: record for record in reversed(matches)}  # of several with one id the first counts
        if prefix in found or len(found) == 1:
            return found.get(prefix, matches[0])
        known = ", ".join(sorted(found))
        accepted = f"one of {known}" if known else "an id that `tfgrpo experiences list --all` shows"
        raise SettingsError.one("ID", repr(prefix), accepted)

    def ancestry(self, record: ExperienceRecord) -> Iterator[tuple[int, ExperienceRecord]]:
        """Yield the record and every one it descends from, each with its depth."""
        waiting, seen = [(0, record)], {record.experience_id}
        while waiting:
            depth, entry = waiting.pop()
            yield depth, entry
            parents = self.entries(entry.supersedes)
            for name in reversed(entry.supersedes):
                if name in parents and name not in seen:
                    seen.add(name)
                    waiting.append((depth + 1, parents[name]))

    def entries(self, ids: Sequence[str]) -> dict[str, ExperienceRecord]:
        """Return the records with these ids, by id; of several with one id the first counts."""
        return {entry.experience_id: entry for entry in Library.of_ids(self.store.find(ids), ids).entries}


def open_experiences(place: TaskPlace, packs_root: Path | None, console: Console) -> TaskExperiences:
    """Open the task that is named, else the one used last. Raise ``SettingsError`` when it has learned nothing."""
    paths = place.existing(console)
    if not paths.experiences.is_file():
        accepted = f"a task that has learned something; there is no {paths.experiences}"
        source = "--task-id" if place.is_named else f"the task used last in {paths.root.parent}"
        raise SettingsError.one(source, repr(paths.root.name), accepted)
    approved = stamps_in_force(packs_root)
    store = ExperienceStore(paths.experiences, approved=approved, task_id=paths.root.name)
    decision = decision_in_force(paths)
    simulated = decision.simulated if decision else any(each.simulated for each in read_credit(paths.credit)[-1:])
    return TaskExperiences(paths, store, decided_library(store, decision), frozenset(approved), decision, simulated)


def shown_library(experiences: TaskExperiences, console: Console) -> Library:
    """Return the records in force that verify and pass the screening; warn of the others, and of a simulated model."""
    sound = verified(experiences.library, experiences.store)
    excluded = [entry for entry in experiences.library.entries if entry not in sound.entries]
    if excluded:
        unknown = sorted({entry.pack_id for entry in excluded} - experiences.packs)
        why = f"not stamped for the version of the pack in force (`tfgrpo verify {experiences.paths.root.name}`)"
        if unknown:
            why = f"no version of the pack {', '.join(unknown)} verifies here; --packs-root names the directory of your own"
        console.say(f"{pluralize(len(excluded), 'lesson')} kept out: {why}.", style="yellow")
    sound, refused = screened(sound)
    for problem in (*refused, *in_force_problems(experiences.store, experiences.paths)):
        console.say(problem, style="yellow")
    if experiences.simulated and sound.entries:
        console.say(f"{SIMULATED}: these lessons were learned with the simulated model.", style="bold yellow")
    return sound
