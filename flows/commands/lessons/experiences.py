"""``tfgrpo experiences``: what a task has learned, the origin of each lesson, and the library in force."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tfgrpo.flows.commands.options import existing_task, names_task, packs_root_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import champion_problems, promoted_library, screened, verified
from tfgrpo.flows.run.effects import effect_json, effect_text, lesson_tokens, measured_json, task_effects
from tfgrpo.flows.run.index import run_named
from tfgrpo.prompt_packs.loader import stamps_in_force
from tfgrpo.rewarders.statistics.effects import Effect
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.accounts import Account, accounts_of, read_events
from tfgrpo.stores.experiences.library import Library, Promotion, in_force, nights_before, promotions
from tfgrpo.stores.experiences.record import ExperienceRecord, support_of
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons.forms import SIMULATED, Lesson, LessonSet, as_json, render_lessons

_NOT_MEASURED: Final[Mapping[str, Effect]] = MappingProxyType({})
_MAX_MATCHES = 5
"""Ids that a message names when a prefix is ambiguous."""


def list_lessons(options: argparse.Namespace, console: Console) -> None:
    """Print the champion library, or every record, with what counts for and against each."""
    experiences = open_experiences(options, console)
    shown: Iterable[ExperienceRecord] = (
        experiences.store.records() if options.all else shown_champion(experiences, console).entries
    )
    known = experiences.known()
    if console.as_json:
        console.results("experiences", (known.as_json(record) for record in shown))
    elif not options.all and not experiences.champion.entries:
        console.say("No library was promoted yet; --all lists every record.")
    else:
        rows = (
            (record.experience_id, record.operation, record.polarity, *known.columns(record), record.summary32)
            for record in shown
        )
        console.table(
            ("id", "operation", "says", "for", "against", "net", "tried", "nights", "effect", "tokens", "lesson"), rows
        )


class Standing(NamedTuple):
    """What is known of the lessons of a task by id, besides their records."""

    accounts: Mapping[str, Account]
    effects: Mapping[str, Effect]

    def as_json(self, record: ExperienceRecord) -> dict[str, Any]:
        """Return the record with its account and its measured effect, None without, and its tokens in each prompt."""
        account, effect = self.accounts.get(record.experience_id), self.effects.get(record.experience_id)
        return {
            **record.model_dump(mode="json"),
            "account": None if account is None else account.as_json(),
            **measured_json(record, effect),
        }

    def columns(self, record: ExperienceRecord) -> tuple[str, ...]:
        """Return for, against, net support, tried, age, effect and tokens; without an account the groups that taught it."""
        account = self.accounts.get(record.experience_id)
        measured = (effect_text(self.effects.get(record.experience_id)), str(lesson_tokens(record)))
        if account is None:
            return str(support_of(record)), "", "", "", "", *measured
        net = "retired" if account.retired else f"{account.net:.1f}"
        tried = f"{account.tried:+.1f}"
        return f"{account.in_favour:g}", f"{account.against:g}", net, tried, str(account.age), *measured


def show(options: argparse.Namespace, console: Console) -> None:
    """Print whole records with their accounts."""
    experiences = open_experiences(options, console)
    known = experiences.known()
    shown = [known.as_json(experiences.find(name)) for name in options.names]
    pages = (
        "\n".join(f"{key:>16}  {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items())
        for fields in shown
    )
    console.answer({"experiences": shown}, "\n\n".join(pages))


def blame(options: argparse.Namespace, console: Console) -> None:
    """Print every record a lesson descends from, and the rollouts that showed it."""
    experiences = open_experiences(options, console)
    record = experiences.find(options.name)
    ancestry = list(experiences.ancestry(record))
    rollouts = experiences.rollouts(record.evidence)
    lines = []
    for depth, entry in ancestry:
        origin = f"{entry.operation} in epoch {entry.epoch} of {entry.run_id}"
        lines.append(f"{'  ' * depth}{entry.experience_id}  {origin}: {entry.summary32}")
    for row in rollouts:
        reward = row["outcome"].get("reward")
        score = "no reward" if reward is None else f"reward {reward:.3f}"
        lines.append(f"  {row['rollout_id']}  {score}  {row['summary']}")
    value = {"ancestry": [entry.model_dump(mode="json") for _, entry in ancestry], "rollouts": rollouts}
    console.answer(value, "\n".join(lines))


def diff(options: argparse.Namespace, console: Console) -> None:
    """Print how the candidate library of a run differs from its champion, or from another run's candidate."""
    experiences = open_experiences(options, console)
    candidates = {decision.run_id: decision.experience_ids for decision in promotions(experiences.paths.promotions)}
    found = [(name, run_named(experiences.paths, name)) for name in options.names]
    names = [name if run is None else run.root.name for name, run in found]
    for name in names:
        if name not in candidates:
            accepted = ", ".join(candidates) or "none: no run of this task came to a decision"
            raise SettingsError.one("RUN", repr(name), accepted)
    *base, last = names
    before = candidates[base[0]] if base else _ids_before(experiences, last)
    old, new = (experiences.entries(ids) for ids in (before, candidates[last]))
    removed = {name: entry for name, entry in old.items() if name not in new}
    added = {name: entry for name, entry in new.items() if name not in old}
    lines = [
        f"{sign} {name}  {entry.polarity}: {entry.summary32}"
        for sign, entries in (("-", removed), ("+", added))
        for name, entry in entries.items()
    ]
    if lines or console.as_json:
        console.answer({"removed": list(removed), "added": list(added)}, "\n".join(lines))
    else:
        console.say("no change")


def _ids_before(experiences: TaskExperiences, run_id: str) -> Sequence[str]:
    """Return the lessons that were in force when a run began."""
    manifest = ManifestFile(experiences.paths.run(run_id).manifest).read()
    if "champion" not in manifest:
        accepted = "a run whose manifest is there, or two runs to compare with each other"
        raise SettingsError.one("RUN", repr(run_id), accepted)
    ids: Sequence[str] = manifest["champion"]["experience_ids"]
    return ids


def verify(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 when a promoted record is missing, changed, not verified or refused, or any line was skipped."""
    experiences = open_experiences(options, console)
    champion = experiences.champion.entries
    stale = [entry.experience_id for entry in champion if not experiences.store.verify_stamp(entry)]
    stamped = Counter(map(experiences.store.verify_stamp, experiences.store.records()))
    skipped = dataclasses.asdict(experiences.store.skipped)  # counted while the records were read
    problems = [
        *champion_problems(experiences.store, experiences.paths, every=True),
        *screened(experiences.champion)[1],
    ]
    sound = not problems and not stale and not skipped["unreadable"] and not skipped["over_long"]
    figures = {"records": stamped.total(), "stale": stale, "retired": stamped[False], "problems": problems}
    lines = [
        f"{pluralize(stamped.total(), 'record')}, {stamped[False]} not stamped for the version of their pack in force",
        f"{skipped['unreadable']} unreadable and {skipped['over_long']} over-long lines skipped",
        f"champion: {pluralize(len(champion), 'lesson')}, of which {len(stale)} not verified",
        *problems,
    ]
    console.answer({"ok": sound, **figures, **skipped}, "\n".join(lines))
    return 0 if sound else 1


def export(options: argparse.Namespace, console: Console) -> int:
    """Print the champion library without lessons whose stamp does not verify; exit code 1 when that is all of them."""
    experiences = open_experiences(options, console)
    library = shown_champion(experiences, console)
    promoted = experiences.promoted.experience_ids if experiences.promoted else ()
    effects = task_effects(experiences.paths, simulated=experiences.simulated)
    lessons = lesson_set(library, experiences.paths.root.name, simulated=experiences.simulated, effects=effects)
    if options.to == "json" or console.as_json:
        console.result(as_json(lessons))
    elif library.entries:
        console.text(render_lessons(lessons, options.to or "text").rstrip("\n"))
    elif not promoted:
        console.say("No library was promoted yet; there is nothing to export.")
    return 0 if library.entries or not promoted else 1


def lesson_set(
    library: Library, task_id: str, *, simulated: bool, effects: Mapping[str, Effect] = _NOT_MEASURED
) -> LessonSet:
    """Return the lessons of a library with their origin."""
    first = library.entries[:1]

    def lesson(entry: ExperienceRecord) -> Lesson:
        effect = effect_json(effects.get(entry.experience_id))
        return Lesson(entry.summary32, entry.polarity, entry.experience_id, support_of(entry), effect)

    return LessonSet(
        tuple(map(lesson, library.entries)),
        task_id=task_id,
        domain="".join(entry.domain for entry in first),
        pack_id="".join(entry.pack_id for entry in first),
        library_id=library.library_id,
        simulated=simulated,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TaskExperiences:
    """The store of a task and the library in force."""

    paths: TaskPaths
    store: ExperienceStore
    champion: Library
    """The library in force, with records that do not verify."""
    packs: frozenset[str]
    """Ids of the packs that verify."""
    promoted: Promotion | None
    """The decision that put the library into force."""
    simulated: bool
    """Whether the library in force was learned with the simulated model; without one, whether the last lessons were."""

    def known(self) -> Standing:
        """Return what is known of the task's lessons as of now."""
        accounts = accounts_now(self.paths, self.store, simulated=self.simulated)
        return Standing(accounts, task_effects(self.paths, simulated=self.simulated))

    def find(self, prefix: str) -> ExperienceRecord:
        """Return the record whose id is, or starts with, ``prefix``. Raise ``SettingsError`` for none or several."""
        matches = self.store.find_by_prefix(prefix, limit=_MAX_MATCHES)
        found = [record for record in matches if record.experience_id == prefix] or matches
        if len(found) == 1:
            return found[0]
        known = ", ".join(record.experience_id for record in found)
        accepted = f"one of {known}" if known else "an id that `tfgrpo experiences list --all` shows"
        raise SettingsError.one("ID", repr(prefix), accepted)

    def ancestry(self, record: ExperienceRecord) -> Iterator[tuple[int, ExperienceRecord]]:
        """Yield the record and every one it descends from, each with its depth."""
        waiting, seen = [(0, record)], {record.experience_id}
        while waiting:
            depth, entry = waiting.pop()
            yield depth, entry
            found = reversed(self.store.find(entry.supersedes))  # of several with one id the first counts
            parents = {each.experience_id: each for each in found}
            for name in reversed(entry.supersedes):
                if name in parents and name not in seen:
                    seen.add(name)
                    waiting.append((depth + 1, parents[name]))

    def rollouts(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the rollouts of these ids, as their runs recorded them. Raise ``CorruptFile``."""
        wanted = set(names)
        paths = sorted(self.paths.root.glob("runs/*/rollouts.jsonl"))
        return [row for path in paths for row in read_rows(path) if row.get("rollout_id") in wanted]

    def entries(self, ids: Sequence[str]) -> dict[str, ExperienceRecord]:
        """Return the records of the library with these ids, by id."""
        return {entry.experience_id: entry for entry in Library.of_ids(self.store.find(ids), ids).entries}


def accounts_now(paths: TaskPaths, store: ExperienceStore, *, simulated: bool) -> dict[str, Account]:
    """Return the accounts of a task's lessons as of now, by id, for one kind of model."""
    events = [event for event in read_events(paths.accounts) if event.simulated == simulated]
    records = store.find({event.experience_id for event in events})
    return accounts_of(records, events, nights_before(promotions(paths.promotions)))


def open_experiences(options: argparse.Namespace, console: Console) -> TaskExperiences:
    """Open the task that is named, else the one used last. Raise ``SettingsError`` when it has learned nothing."""
    paths = existing_task(options, console)
    if not paths.experiences.is_file():
        accepted = f"a task that has learned something; there is no {paths.experiences}"
        source = "--task-id" if names_task(options) else f"the task used last in {paths.root.parent}"
        raise SettingsError.one(source, repr(paths.root.name), accepted)
    approved = stamps_in_force(packs_root_of(options))
    store = ExperienceStore(paths.experiences, approved=approved, task_id=paths.root.name)
    promoted = in_force(promotions(paths.promotions))
    simulated = promoted.simulated if promoted else any(each.simulated for each in read_events(paths.accounts)[-1:])
    return TaskExperiences(paths, store, promoted_library(store, promoted), frozenset(approved), promoted, simulated)


def shown_champion(experiences: TaskExperiences, console: Console) -> Library:
    """Return the records in force that verify and pass the screening; warn of the others, and of a simulated model."""
    sound = verified(experiences.champion, experiences.store)
    excluded = [entry for entry in experiences.champion.entries if entry not in sound.entries]
    if excluded:
        unknown = sorted({entry.pack_id for entry in excluded} - experiences.packs)
        why = "not stamped for the version of the pack in force (`tfgrpo experiences verify`)"
        if unknown:
            why = f"no version of the pack {', '.join(unknown)} verifies here; --packs-root names the directory of your own"
        console.say(f"{pluralize(len(excluded), 'lesson')} kept out: {why}.", style="yellow")
    sound, refused = screened(sound)
    for problem in (*refused, *champion_problems(experiences.store, experiences.paths)):
        console.say(problem, style="yellow")
    if experiences.simulated and sound.entries:
        console.say(f"{SIMULATED}: these lessons were learned with the simulated model.", style="bold yellow")
    return sound
