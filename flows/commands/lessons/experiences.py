"""``tfgrpo experiences``: what a task has learned, the origin of each lesson, the library in force, a person's word on it.

Each correction is a line of ``promotions.jsonl``, written under its lock. A run that is under way keeps what it began with,
and puts nothing into force over the change. An import without ``--reviewed-by`` writes nothing; with it, a file is refused
whole if any of its lessons breaks a rule.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from tfgrpo.flows.commands.options import TaskChoice, checked_remark
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.night import changes_of
from tfgrpo.flows.run import lessons as task_lessons
from tfgrpo.flows.run.damage import record_problems, task_problems
from tfgrpo.flows.run.index import nights_begun
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps, known_packs, load_prompt_pack, stamps_in_force
from tfgrpo.rewarders.statistics.credit import POINTS
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences import decisions
from tfgrpo.stores.experiences.credit import PERSON_GROUPS, CreditFile, Row, RowSource, Word, read_credit
from tfgrpo.stores.experiences.decisions import Alarm, Correction, Decision, Library
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import EMPTY, sha256_hex
from tfgrpo.stores.text import clean_text, pluralize
from tfgrpo.tasks.decision import alarm_notes, chance
from tfgrpo.tasks.exports import lessons as exports
from tfgrpo.tasks.learning.credit import KnownLesson

_COLUMNS = ("id", "state", "effect", "for", "against", "tokens", "says", "lesson")


def list_lessons(choice: TaskChoice, console: Console, *, every: bool) -> None:
    """Print the lessons in force, or every record, with state, effect and evidence."""
    experiences = open_experiences(choice, console)
    records: Iterable[ExperienceRecord] = experiences.store.records() if every else shown_library(experiences, console).entries
    figures = experiences.figures(*experiences.kinds if every else ())
    shown = (_json(record, figures) for record in records)
    if console.as_json:
        console.result({"experiences": list(shown)})
    elif not every and not experiences.library.entries:
        console.say("No lesson is in force. `tfgrpo experiences review` shows those on trial, `list --all` every record.")
    else:
        console.table(_COLUMNS, map(_row, shown))


def _json(record: ExperienceRecord, figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {**record.model_dump(mode="json"), **figures.get(record.experience_id, {"state": "forgotten", "effect": None})}


def _row(lesson: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(lesson.get(name, "")) for name in ("groups_for", "groups_against", "tokens"))
    first = lesson["experience_id"], lesson["state"], task_lessons.effect_text(lesson["effect"])
    return *first, *counts, lesson["polarity"], lesson["summary32"]


def show(names: Sequence[str], choice: TaskChoice, console: Console) -> None:
    """Print whole records with the figures of their lessons."""
    experiences = open_experiences(choice, console)
    figures = experiences.figures(*experiences.kinds)
    shown = [_json(experiences.find(name), figures) for name in names]
    pages = (
        "\n".join(f"{key:>16}  {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()) for fields in shown
    )
    console.answer({"experiences": shown}, "\n\n".join(pages))


def blame(name: str, choice: TaskChoice, console: Console) -> None:
    """Print every record a lesson descends from, the rollouts that showed it, and the rows that measured it."""
    experiences = open_experiences(choice, console)
    record = experiences.find(name)
    ancestry = list(experiences.ancestry(record))
    paths = sorted(experiences.paths.root.glob("runs/*/rollouts.jsonl"))
    rollouts = [row for path in paths for row in read_objects(path) if row.get("rollout_id") in record.evidence]
    ids = {entry.experience_id for _, entry in ancestry if entry.polarity == record.polarity}
    differences: dict[tuple[int, str, RowSource], list[float]] = {}
    for line in task_lessons.credit_lines(experiences.paths):
        if isinstance(line, Row) and line.difference is not None:
            carried = [not set(side).isdisjoint(ids) for side in (line.one, line.other)]
            # A lesson, or two wordings of it, on both sides cancels out.
            if carried[0] != carried[1]:
                better = POINTS * (line.difference if carried[0] else -line.difference)
                differences.setdefault((line.night, line.run_id, line.source), []).append(better)
    rows: list[dict[str, Any]] = [
        {"night": night + 1, "run_id": run, "source": source, "rows": len(each), "difference": fmean(each)}
        for (night, run, source), each in differences.items()
    ]
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


def export(to: exports.LessonForm | None, choice: TaskChoice, console: Console) -> int:
    """Print the library in force without lessons whose stamp does not verify; exit code 1 when that is all of them."""
    experiences = open_experiences(choice, console)
    library, figures = shown_library(experiences, console), experiences.figures()
    exported = []
    for entry in library.entries:
        own = figures.get(entry.experience_id, {})
        counts = {name: own[name] for name in ("groups_for", "groups_against", "effect") if name in own}
        exported.append(exports.ExportedLesson(id=entry.experience_id, says=entry.polarity, text=entry.summary32, **counts))
    lessons = exports.LessonSet(
        lessons=tuple(exported),
        task_id=experiences.paths.root.name,
        domain="".join(entry.domain for entry in library.entries[:1]),
        pack_id="".join(entry.pack_id for entry in library.entries[:1]),
        library_id=library.library_id,
        simulated=experiences.simulated,
    )
    is_decided = bool(experiences.decision and experiences.decision.experience_ids)
    if to == "json" or console.as_json:
        console.result(lessons.model_dump(mode="json"))
    elif library.entries:
        console.text(exports.render_lessons(lessons, to or "text").rstrip("\n"))
    elif not is_decided:
        console.say("No lesson is in force; there is nothing to export.")
    return 0 if library.entries or not is_decided else 1


@dataclass(frozen=True, slots=True)
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

    def lessons(self, *, simulated: bool) -> tuple[Sequence[str], list[tuple[KnownLesson, dict[str, Any]]]]:
        """Return the ids in force for one kind of model, and each known lesson with its ``lesson_json``."""
        decision = task_lessons.decision_in_force(self.paths, simulated=simulated)
        ids = decision.experience_ids if decision else ()
        credit = task_lessons.task_credit(self.paths, self.store, simulated=simulated)
        return ids, [(lesson, task_lessons.lesson_json(lesson, credit, ids)) for lesson in credit.known.values()]

    def known(self, name: str) -> tuple[bool, KnownLesson]:
        """Return whether a known lesson is one of the simulated model, and the lesson. Raise ``SettingsError``."""
        for simulated in self.kinds:
            for lesson, _ in self.lessons(simulated=simulated)[1]:
                if name in lesson.ids:
                    return simulated, lesson
        accepted = "a lesson in force, on trial or known, as `tfgrpo experiences review` lists them"
        raise SettingsError.one("ID", repr(name), accepted)

    def figures(self, *kinds: bool) -> dict[str, dict[str, Any]]:
        """Return ``lesson_json`` of the lessons known for these kinds of model, by id; without any, for ``simulated``."""
        figures: dict[str, dict[str, Any]] = {}
        for simulated in kinds or (self.simulated,):
            ids_in_force, lessons = self.lessons(simulated=simulated)
            for lesson, own in lessons:
                for name in lesson.ids:
                    newest = name == lesson.record.experience_id or name in ids_in_force
                    figures.setdefault(name, own if newest else {**own, "state": "reworded"})
        return figures

    def by_id(self) -> dict[str, ExperienceRecord]:
        """Return every record by its id; of several with one id the first counts."""
        return {record.experience_id: record for record in reversed([*self.store.records()])}

    def find(self, prefix: str) -> ExperienceRecord:
        """Return the record whose id is, or starts with, ``prefix``. Raise ``SettingsError`` for none or several."""
        matches = {name: record for name, record in self.by_id().items() if name.startswith(prefix)}
        if prefix in matches or len(matches) == 1:
            return matches.get(prefix) or matches.popitem()[1]
        ids = ", ".join(sorted(matches)[:5])
        accepted = f"one of {ids}" if ids else "an id that `tfgrpo experiences list --all` shows"
        raise SettingsError.one("ID", repr(prefix), accepted)

    def ancestry(self, record: ExperienceRecord) -> Iterator[tuple[int, ExperienceRecord]]:
        """Yield the record and every one it descends from, each with its depth."""
        records, waiting, seen = self.by_id(), [(0, record)], {record.experience_id}
        while waiting:
            depth, entry = waiting.pop()
            yield depth, entry
            for name in reversed(entry.supersedes):
                if name in records and name not in seen:
                    seen.add(name)
                    waiting.append((depth + 1, records[name]))


def open_experiences(choice: TaskChoice, console: Console) -> TaskExperiences:
    """Open the task that is named, else the one used last; warn of its damage. Raise ``SettingsError`` without lessons."""
    paths = choice.existing(console)
    # Of a task whose records are lost, some may be in force.
    if not (paths.experiences.is_file() or paths.promotions.is_file()):
        accepted = f"a task that has learned something; there is no {paths.experiences}"
        source = "--task-id" if choice.is_named else f"the task used last in {paths.root.parent}"
        raise SettingsError.one(source, repr(paths.root.name), accepted)
    approved = stamps_in_force(choice.packs_root)
    store = ExperienceStore(paths.experiences, approved=approved, task_id=paths.root.name)
    for problem in (*task_lessons.in_force_problems(store, paths), *record_problems(store, paths)):
        console.say(problem, style="yellow")
    decision = task_lessons.decision_in_force(paths)
    simulated = decision.simulated if decision else any(each.simulated for each in read_credit(paths.credit)[-1:])
    return TaskExperiences(
        paths, store, task_lessons.decided_library(store, decision), frozenset(approved), decision, simulated
    )


def shown_library(experiences: TaskExperiences, console: Console) -> Library:
    """Return the records in force that verify and pass the screening; warn of the others, and of a simulated model."""
    sound = task_lessons.verified(experiences.library, experiences.store)
    excluded = [entry for entry in experiences.library.entries if entry not in sound.entries]
    if excluded:
        unknown = sorted({entry.pack_id for entry in excluded} - experiences.packs)
        why = f"not stamped for the version of the pack in force (`tfgrpo verify {experiences.paths.root.name}`)"
        if unknown:
            why = f"no version of the pack {', '.join(unknown)} verifies here; --packs-root names the directory of your own"
        console.say(f"{pluralize(len(excluded), 'lesson')} kept out: {why}.", style="yellow")
    sound, refused = task_lessons.screened(sound)
    for problem in refused:
        console.say(problem, style="yellow")
    if experiences.simulated and sound.entries:
        console.say(f"{exports.SIMULATED}: these lessons were learned with the simulated model.", style="bold yellow")
    return sound


def review(choice: TaskChoice, console: Console) -> None:
    """Print every lesson in force, then those on trial, then the other known ones, and the commands that act on them."""
    experiences = open_experiences(choice, console)
    records = list(experiences.store.records())
    lessons: list[dict[str, Any]] = []
    for lesson, own in experiences.lessons(simulated=experiences.simulated)[1]:
        record = lesson.record
        first = min((each for each in records if each.experience_id in lesson.ids), key=lambda each: each.created_at)
        named = {"experience_id": record.experience_id, "polarity": record.polarity, "text": record.summary32}
        lessons.append({**named, **own, "cause": record.cause, "group_id": record.group_id, "first_run": first.run_id})
    lessons.sort(key=lambda each: task_lessons.STATES.index(each["state"]))
    if console.as_json:
        console.result({"simulated": experiences.simulated, "lessons": lessons})
        return
    by_id = {each["experience_id"]: each for each in lessons}
    for each in lessons:
        state = each["state"] + (f" ({each['kept_out']})" if each["state"] == "kept out" else "")
        likely = f"{chance(each['effect']['likely'])} likely to help"
        groups = f"{pluralize(each['groups_for'], 'group')} for, {each['groups_against']} against"
        support = f"support {each['support']:+.1f} ({groups}); {pluralize(each['nights'], 'night')} old"
        console.text(f"{each['experience_id']}  {state}: {task_lessons.effect_text(each['effect'])}, {likely}; {support}")
        console.text(f"    {each['polarity']}: {each['text']}")
        if each["cause"]:
            console.text(f"    because {each['cause']}")
        for name in each["opposites"]:
            console.text(f"    contradicts {name}, {by_id[name]['state']}: {task_lessons.effect_text(by_id[name]['effect'])}")
        console.text(f"    first learned in {each['first_run']}, from {each['group_id'] or 'no group'}")
    if not lessons:
        console.say("No lesson is known yet.")
        return
    console.say(
        "`tfgrpo experiences retire ID --why TEXT` keeps a lesson out, `measure ID` measures it, `blame ID` shows its "
        "attempts, `rollback TO` puts an earlier library into force (`tfgrpo history`)."
    )


def rollback(name: str, why: str | None, by: str | None, choice: TaskChoice, console: Console) -> None:
    """Put the library of an earlier decision, or none, into force. Raise ``SettingsError`` if one of its lessons fails."""
    experiences, who = open_experiences(choice, console), _who(by)
    store, paths = experiences.store, experiences.paths
    reason = "" if why is None else f": {checked_remark('--why', why)}"
    # Of damaged decisions or credit what is left counts from now on, and the damage is on record.
    damaged = decisions.decided_damage(paths.promotions) is not None

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        target = _target(name, earlier, damaged=damaged)
        shown = target or decisions.in_force(earlier)
        simulated = shown is not None and shown.simulated
        ids = target.experience_ids if target else ()
        now = decisions.in_force(earlier, simulated=simulated)
        accepted = [each for each in task_problems(store, paths) if "state.json:" not in each]
        if ids == (now.experience_ids if now else ()) and not (damaged or accepted):
            return None
        library = task_lessons.verified(task_lessons.decided_library(store, target), store)
        if lost := [each for each in ids if each not in {entry.experience_id for entry in library.entries}]:
            shown_name = f"{name!r}, of whose lessons {len(lost)} do not verify: {', '.join(lost)}"
            raise SettingsError.one("TO", shown_name, "a library whose stamps hold (`tfgrpo verify`)")
        to = f"back to {target.run_id}, decision {earlier.index(target) + 1}" if target else "back to no lessons"
        how: dict[str, Any] = {"simulated": simulated, "who": who, "why": f"{to}{reason}", "accepted": tuple(accepted)}
        decision = _persons_decision(store, library, "rollback", earlier, **how)
        bring_in(paths, library.entries, decision)
        return decision

    if not damaged:
        _target(name, list(decisions.read_decisions(paths.promotions)))  # refused before any file is made
    done = decisions.record_decided(paths.promotions, decide, accepts=True)
    _finish(store, paths, done, console, "that library is in force already")


def _correct(
    what: Literal["retire", "approve"], *, name: str, why: str | None, by: str | None, choice: TaskChoice, console: Console
) -> None:
    """Keep a lesson out, also of the library in force, until a rollback to a library with it; or let it in, on trial."""
    experiences, who = open_experiences(choice, console), _who(by)
    store, promotions, retires = experiences.store, experiences.paths.promotions, what == "retire"
    reason = checked_remark("--why", why)
    simulated, lesson = experiences.known(experiences.find(name).experience_id)
    name = lesson.record.experience_id

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        now, out = decisions.in_force(earlier, simulated=simulated), decisions.kept_out(earlier, simulated=simulated)
        is_in_force = now is not None and not lesson.ids.isdisjoint(now.experience_ids)
        alarms = _alarms(lesson, earlier, simulated=simulated)
        if (name in out and not is_in_force) if retires else not (lesson.kept_out or alarms):
            return None
        library = _whole(store, now, lesson.ids if retires else ())
        # To approve a lesson that the newest night kept out for what replies do with it is to let in what they do.
        why = "" if retires else "; ".join(f"overrules: {note}" for note in alarm_notes(alarms))
        reasons = dict.fromkeys((name, *sorted(lesson.ids - {name})), reason)  # of every wording of it
        decision = _persons_decision(store, library, what, earlier, simulated=simulated, who=who, why=why, reasons=reasons)
        if not retires:
            bring_in(experiences.paths, [lesson.record], decision)
        return decision

    unchanged = f"{name} is kept out already" if retires else f"{name} is not kept out"
    done = decisions.record_decided(promotions, decide)
    if done and not retires:
        console.say(f"{name} is let in: the next run has it on trial.")
    _finish(store, experiences.paths, done, console, unchanged)


def _alarms(lesson: KnownLesson, earlier: Sequence[Decision], *, simulated: bool) -> list[Alarm]:
    """Return the alarms of the newest night that a lesson may be behind, unless it was approved since."""
    for one in reversed(earlier):
        if one.decision == "approve" and lesson.record.experience_id in one.reasons:
            break
        if one.ends_night and one.simulated == simulated:
            return [each for each in one.alarms if not lesson.ids.isdisjoint(each.suspects)]
    return []


retire, approve = partial(_correct, "retire"), partial(_correct, "approve")


def _whole(store: ExperienceStore, now: Decision | None, without: Collection[str] = ()) -> Library:
    """Return what is in force, ``without`` some. Raise ``CorruptFile`` for lost lessons: a decision would end their force."""
    ids = [each for each in now.experience_ids if each not in without] if now else []
    signatures = now.signatures if now else {}
    if lost := task_lessons.missing(store, [(each, signatures.get(each)) for each in ids]):
        raise CorruptFile(f"{store.path}: {lost[0]}; accepted: {decisions.WAY_OUT}")
    return task_lessons.library_of(store, ids, signatures)


def _persons_decision(
    store: ExperienceStore, library: Library, what: Correction, earlier: Sequence[Decision], **fields: Any
) -> Decision:
    return Decision(
        run_id=f"{what}-{len(earlier) + 1}",
        decided_at=utc_now(),
        decision=what,
        experience_ids=tuple(entry.experience_id for entry in library.entries),
        library_id=library.library_id,
        signatures=task_lessons.signatures_in(store, library),
        **fields,
    )


def bring_in(
    paths: TaskPaths, lessons: Iterable[ExperienceRecord], decision: Decision, opposites: Mapping[str, str] = EMPTY
) -> None:
    """Give lessons the support of a person's word. ``opposites``: by id the lesson that says the opposite."""
    night = nights_begun(paths, simulated=decision.simulated)
    words = [
        Word(
            run_id=decision.run_id,
            night=night,
            experience_id=entry.experience_id,
            said="brought in",
            amount=PERSON_GROUPS,
            opposite=opposites.get(entry.experience_id),
            why=decision.why,
            simulated=decision.simulated,
            created_at=decision.decided_at,
        ).named()
        for entry in lessons
    ]
    CreditFile(paths.credit).append(words)


def _target(name: str, earlier: Sequence[Decision], *, damaged: bool = False) -> Decision | None:
    """Return None for no lessons. Raise ``SettingsError``."""
    changes = [each for each in changes_of(earlier) if each.lessons]
    if name == "none" and (changes or damaged):
        return None
    # The newest first: of several decisions of one run it counts. Runs before numbers: a run may be called 3.
    of_run = [each for each in reversed(changes) if each.run_id == name]
    if named := of_run or [each for each in changes if str(each.number) == name]:
        return named[0].decision
    libraries = ", ".join([f"{each.number} ({each.run_id})" for each in changes if each.added or each.removed][-10:])
    accepted = (
        f"none, or a change of `tfgrpo history`: {libraries}" if libraries else "a task with a library that was ever in force"
    )
    raise SettingsError.one("TO", repr(name), accepted)


def _finish(
    store: ExperienceStore, task: TaskPaths, done: Decision | None, console: Console, unchanged: str, **facts: int
) -> None:
    if done is not None:
        task_lessons.write_view(store, task, task.root.name)
    if console.as_json:
        change = done.model_dump(mode="json", exclude={"signatures", "previous"}) if done else None
        console.result({**facts, "change": change})
    elif done is None:
        console.say(f"The library in force is as it was: {unchanged}.")
    else:
        lessons = pluralize(len(done.experience_ids), "lesson") + (" (SIMULATED)" if done.simulated else "")
        for each in done.accepted:
            console.say(f"accepted: {each}", style="yellow")
        console.say(f"In force now: library {done.library_id} of {lessons}. `tfgrpo history` lists every change.")


def _who(by: str | None) -> str:
    if by is not None:
        return checked_remark("--by", by)
    with suppress(OSError, KeyError):
        return clean_text(getpass.getuser())
    return ""


_MAX_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _Import:
    name: str
    """Name of the file, with the beginning of its digest."""
    paths: TaskPaths
    store: ExperienceStore
    pack: LoadedPack
    simulated: bool
    screened: tuple[exports.Screened, ...]
    kept_out: Mapping[str, str]
    """Known lessons that a person keeps out of the task, by id, with the reason."""

    def why_left_out(self, entry: exports.Screened) -> str:
        return self.kept_out.get(entry.known.experience_id, "") if entry.known else ""


def import_lessons(
    file: str, pack: str | None, reviewed_by: str | None, choice: TaskChoice, console: Console, *, now: bool
) -> None:
    """Show the lessons of a file or, when it was reviewed, store them. Raise ``DatasetError`` for those that break a rule."""
    source = _read(Path(file), pack, choice.packs_root, choice.chosen(console))
    if reviewed_by is None:
        if now:
            raise SettingsError.one("--in-force", "no --reviewed-by", "--in-force only with --reviewed-by NAME")
        _show(source, console)
        return
    who = checked_remark("--reviewed-by", reviewed_by)
    if refused := [
        Problem(f"{file}: lesson {number}", f"{entry.lesson.text[:80]!r} ({entry.reason})", "a lesson within the rules")
        for number, entry in enumerate(source.screened, start=1)
        if entry.reason
    ]:
        raise DatasetError(refused)
    stored = sum(entry.known is None for entry in source.screened)
    decided = decisions.record_decided(source.paths.promotions, lambda earlier: _decided(source, earlier, who, now))
    if decided is not None and not console.as_json:
        console.say(f"Stored {pluralize(stored, 'lesson')}; `tfgrpo history` shows the file and the reviewer.")
        at_once = "They are in force at once, until the evidence speaks against them."
        on_trial = "They are on trial in the next run, which measures them; --in-force puts them into force at once."
        console.say(at_once if now else on_trial)
        if out := [entry.known.experience_id for entry in source.screened if entry.known and source.why_left_out(entry)]:
            console.say(f"Left out, because they are kept out here: {', '.join(sorted(out))}.")
    _finish(source.store, source.paths, decided, console, "this file was taken in before", stored=stored)


def _decided(source: _Import, earlier: Sequence[Decision], who: str, now: bool) -> Decision | None:
    """Return None if they were taken in before. ``now``: whether they are in force at once, in place of their opposites."""
    store, line = source.store, f"import-{len(earlier) + 1}"
    library = wanted = _whole(store, decisions.in_force(earlier, simulated=source.simulated))
    why = f"taken in from {source.name}"
    taken = [
        (entry, entry.known or exports.imported_record(entry, source.pack, source.paths.root.name, line, utc_now))
        for entry in source.screened
        if not source.why_left_out(entry)
    ]
    if fresh := [record for entry, record in taken if entry.known is None]:
        store.record_batch(fresh, source.paths.promotions)
    opposites = {record.experience_id: entry.opposite.experience_id for entry, record in taken if entry.opposite}
    if now:
        kept = [each for each in library.entries if each.experience_id not in opposites.values()]
        wanted = Library(tuple({each.experience_id: each for each in (*kept, *(record for _, record in taken))}.values()))
    imports = [one for one in earlier if one.decision == "import" and one.simulated == source.simulated]
    if wanted.library_id == library.library_id and any(one.why == why for one in imports):
        return None
    decision = _persons_decision(store, wanted, "import", earlier, simulated=source.simulated, who=who, why=why)
    bring_in(source.paths, [record for _, record in taken], decision, opposites)
    return decision


def _read(file: Path, pack_id: str | None, packs_root: Path | None, paths: TaskPaths) -> _Import:
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"no UTF-8 at byte {error.start}"
        raise DatasetError.one(str(file), why or type(error).__name__, "a file of lessons in UTF-8") from error
    if len(content) > _MAX_BYTES:
        raise DatasetError.one(str(file), f"{len(content):,} bytes", f"at most {_MAX_BYTES:,}")
    lessons = exports.read_lessons(text, source=str(file))
    if not pack_id:
        records = list(ExperienceStore(paths.experiences, approved={}).records())
        pack_id = records[-1].pack_id if records else lessons.pack_id
    own_packs = known_packs(packs_root) if packs_root is not None else ()
    if not pack_id:
        accepted = ", ".join(sorted({*known_packs(), *own_packs}))
        raise SettingsError.one("--pack", "nothing, for a task that has learned nothing yet", accepted)
    pack = load_prompt_pack(pack_id, packs_root if pack_id in own_packs else None)
    store = ExperienceStore(
        paths.experiences, approved=approved_stamps([pack]), task_id=paths.root.name, max_words=pack.max_words
    )
    valid = [record for record in store.records() if store.verify_stamp(record)]
    screened = exports.screen_lessons(lessons.lessons, pack, valid)
    out = decisions.kept_out(decisions.read_decisions(paths.promotions), simulated=lessons.simulated)
    name = f"{file.name} (SHA-256 {sha256_hex(content)[:12]})"
    return _Import(name, paths, store, pack, lessons.simulated, screened, out)


def _show(source: _Import, console: Console) -> None:
    rows, pack = [], source.pack.manifest.id
    for entry in source.screened:
        rival, why, verdict = entry.opposite, source.why_left_out(entry), "new"
        if entry.reason:
            verdict = f"refused: {entry.reason}"
        elif entry.known is not None:
            other = "" if entry.known.summary32 == entry.text else f", as: {entry.known.summary32}"
            verdict = f"known: {entry.known.experience_id}{other}" + (f", kept out: {why}" if why else "")
        elif rival is not None:
            verdict = f"new, the opposite of {rival.experience_id}, {rival.polarity}: {rival.summary32}"
        rows.append((verdict, entry.lesson.says, entry.text or entry.lesson.text))
    if console.as_json:
        lessons = [{"verdict": verdict, "says": polarity, "text": text} for verdict, polarity, text in rows]
        console.result({"stored": 0, "pack": pack, "lessons": lessons})
        return
    console.table(("verdict", "says", "lesson"), rows)
    console.say(f"Nothing was stored. Read every lesson; then --reviewed-by NAME stores them, stamped for {pack}.")
