"""``tfgrpo experiences review``, ``retire``, ``approve``, ``rollback`` and ``import``: a person's word about lessons.

Each correction is a line of ``promotions.jsonl``, written under its lock. A run that is under way keeps what it began
with, and puts nothing into force over the change. An import without ``--reviewed-by`` writes nothing; with it, a file is
refused whole if any of its lessons breaks a rule.
"""

from __future__ import annotations

import getpass
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

from tfgrpo.flows.commands.lessons.experiences import TaskExperiences, open_experiences
from tfgrpo.flows.commands.options import TaskPlace, checked_remark
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.night import changes_of
from tfgrpo.flows.run.damage import task_problems
from tfgrpo.flows.run.index import known_tasks, nights_begun
from tfgrpo.flows.run.lessons import (
    decided_library,
    effect_text,
    lesson_json,
    library_of,
    missing,
    signatures_in,
    task_credit,
    verified,
    write_view,
)
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps, known_packs, load_prompt_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.credit import PERSON_GROUPS, CreditFile, Word
from tfgrpo.stores.experiences.decisions import (
    WAY_OUT,
    Correction,
    Decision,
    Library,
    decided_damage,
    in_force,
    kept_out,
    read_decisions,
    record_decided,
)
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.text import clean_text, pluralize
from tfgrpo.tasks.decision import ALARM, chance, suspects_of
from tfgrpo.tasks.exports.lessons import Screened, imported_record, read_lessons, screen_lessons

_STATES: Final = ("in force", "on trial", "known", "kept out")
_NONE: Final = "none"
_SHOWN: Final = 10


def review(place: TaskPlace, packs_root: Path | None, console: Console) -> None:
    """Print every lesson in force, then those on trial, then the other known ones, and the commands that act on them."""
    experiences = open_experiences(place, packs_root, console)
    in_force_ids = experiences.in_force(simulated=experiences.simulated)
    credit = task_credit(experiences.paths, experiences.store, simulated=experiences.simulated)
    records = list(experiences.store.find({name for each in credit.known.values() for name in each.ids}))
    lessons: list[dict[str, Any]] = []
    for each in credit.known.values():
        first = min((one for one in records if one.experience_id in each.ids), key=lambda one: one.created_at)
        origin = {"cause": each.record.cause, "group_id": each.record.group_id, "first_run": first.run_id}
        named = {"experience_id": each.record.experience_id, "polarity": each.record.polarity}
        lessons.append({**named, "text": each.record.summary32, **lesson_json(each, credit, in_force_ids), **origin})
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


def rollback(name: str, why: str | None, by: str | None, place: TaskPlace, packs_root: Path | None, console: Console) -> None:
    """Put the library of an earlier decision, or none, into force. Raise ``SettingsError`` if one of its lessons fails.

    Where decisions or credit are damaged, what is left of them counts from now on.
    """
    experiences, who = open_experiences(place, packs_root, console), _who(by)
    why = "" if why is None else checked_remark("--why", why)
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


def _correct(
    what: Literal["retire", "approve"],
    *,
    name: str,
    why: str | None,
    by: str | None,
    place: TaskPlace,
    packs_root: Path | None,
    console: Console,
) -> None:
    """Keep a lesson out, also of the library in force, until a rollback to a library with it; or let it in, on trial.

    To approve one that the newest night kept out for what replies do with it is to let in what they do.
    """
    experiences, who = open_experiences(place, packs_root, console), _who(by)
    reason = checked_remark("--why", why)
    simulated, lesson = experiences.known(experiences.find(name).experience_id)
    name, retires = lesson.record.experience_id, what == "retire"

    def decide(earlier: Sequence[Decision]) -> Decision | None:
        now, out = in_force(earlier, simulated=simulated), kept_out(earlier, simulated=simulated)
        serves = now is not None and not lesson.ids.isdisjoint(now.experience_ids)
        nights = [one for one in earlier if one.ends_night and one.simulated == simulated]
        suspected = bool(nights) and not lesson.ids.isdisjoint(suspects_of(nights[-1]))
        for one in takewhile(lambda one: one is not nights[-1], reversed(earlier) if suspected else ()):
            suspected &= one.decision != "approve" or name not in one.reasons
        if (name in out and not serves) if retires else not (lesson.kept_out or suspected):
            return None
        library = _whole(experiences.store, now, lesson.ids if retires else ())
        alarms = [f"overrules: {note}" for note in nights[-1].notes if note.startswith(ALARM)] if suspected else []
        why = "" if retires else "; ".join([reason, *alarms])
        given: dict[str, Any] = {"simulated": simulated, "who": who, "why": why}
        given["reasons"] = dict.fromkeys((name, *sorted(lesson.ids - {name})), reason)  # of every wording of it
        decision = persons_decision(experiences.store, library, what, earlier, **given)
        if not retires:
            bring_in(experiences.paths, [lesson.record], decision)
        return decision

    unchanged = f"{name} is kept out already" if retires else f"{name} is not kept out"
    _finish(experiences, console, record_decided(experiences.paths.promotions, decide), unchanged)


retire, approve = partial(_correct, "retire"), partial(_correct, "approve")


def _whole(store: ExperienceStore, now: Decision | None, without: Collection[str] = ()) -> Library:
    """Return what is in force, ``without`` some. Raise ``CorruptFile`` for lost lessons: a decision would end their force."""
    ids = [each for each in now.experience_ids if each not in without] if now else []
    signatures = now.signatures if now else {}
    if lost := missing(store, [(each, signatures.get(each)) for each in ids]):
        raise CorruptFile(f"{store.path}: {lost[0]}; accepted: {WAY_OUT}")
    return library_of(store, ids, signatures)


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
    paths: TaskPaths, lessons: Iterable[ExperienceRecord], decision: Decision, opposites: Mapping[str, str | None] | None = None
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
    """Return None for no lessons. Raise ``SettingsError``."""
    changes = [each for each in changes_of(earlier) if each.lessons]
    if name == _NONE and (changes or damaged):
        return None
    named = {key: each.decision for keys in ("number", "run_id") for each in changes for key in [str(getattr(each, keys))]}
    if name in named:
        return named[name]
    libraries = [f"{each.number} ({each.run_id})" for each in changes if each.added or each.removed]
    shown = ", ".join(libraries[-_SHOWN:])
    accepted = f"none, or a change of `tfgrpo history`: {shown}" if shown else "a task with a library that was ever in force"
    raise SettingsError.one("TO", repr(name), accepted)


def _sound(experiences: TaskExperiences, name: str, target: Decision | None) -> Library:
    """Raise ``SettingsError`` unless every lesson of it is there and verifies."""
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
        return checked_remark("--by", by)
    with suppress(OSError, KeyError):
        return clean_text(getpass.getuser())
    return ""


_MAX_BYTES: Final = 4 << 20
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class _Import:
    name: str
    """Name of the file, with the beginning of its digest."""
    paths: TaskPaths
    store: ExperienceStore
    pack: LoadedPack
    simulated: bool
    screened: tuple[Screened, ...]
    kept_out: Mapping[str, str]
    """Known lessons that a person keeps out of the task, by id, with the reason."""

    def left_out(self, entry: Screened) -> str:
        return self.kept_out.get(entry.known.experience_id, "") if entry.known else ""


def import_lessons(
    file: str,
    pack: str | None,
    reviewed_by: str | None,
    place: TaskPlace,
    packs_root: Path | None,
    console: Console,
    *,
    now: bool,
) -> None:
    """Show the lessons of a file or, when it was reviewed, store them. Raise ``DatasetError`` for those that break a rule."""
    source = _read(Path(file), pack, packs_root, place.task)
    if not place.is_named and len(known_tasks(source.paths.root.parent)) > 1:
        console.say(f"task {source.paths.root.name}, the one used last; --task-id names another")
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
    decided = record_decided(source.paths.promotions, lambda earlier: _decided(source, earlier, who, now))
    if decided is not None:
        write_view(source.store, source.paths, source.paths.root.name)
    _print_stored(source, stored, decided, console, in_force=now)


def _decided(source: _Import, earlier: Sequence[Decision], who: str, now: bool) -> Decision | None:
    """Return None if they were taken in before. ``now``: whether they are in force at once, in place of their opposites."""
    store, task_id = source.store, source.paths.root.name
    library = _whole(store, in_force(earlier, simulated=source.simulated))
    why = f"taken in from {source.name}"
    line = f"import-{len(earlier) + 1}"
    taken = [
        (entry, entry.known or imported_record(entry, source.pack, task_id, line, utc_now))
        for entry in source.screened
        if not source.left_out(entry)
    ]
    fresh = [record for entry, record in taken if entry.known is None]
    if fresh:
        store.record_batch(fresh, source.paths.promotions)
    if now:
        opposed = {entry.opposite.experience_id for entry, _ in taken if entry.opposite}
        before = [each for each in library.entries if each.experience_id not in opposed]
        records = {each.experience_id: each for each in (*before, *(record for _, record in taken))}
        wanted = Library(tuple(records.values()))
    else:
        wanted = library
    imports = [one for one in earlier if one.decision == "import" and one.simulated == source.simulated]
    if wanted.library_id == library.library_id and any(one.why == why for one in imports):
        return None
    decision = persons_decision(store, wanted, "import", earlier, simulated=source.simulated, who=who, why=why)
    opposites = {record.experience_id: entry.opposite.experience_id for entry, record in taken if entry.opposite}
    bring_in(source.paths, [record for _, record in taken], decision, opposites)
    return decision


def _read(file: Path, pack_id: str | None, packs_root: Path | None, paths: TaskPaths) -> _Import:
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        given = error.strerror if isinstance(error, OSError) else f"no UTF-8 at byte {error.start}"
        raise DatasetError.one(str(file), given or type(error).__name__, "a file of lessons in UTF-8") from error
    if len(content) > _MAX_BYTES:
        raise DatasetError.one(str(file), f"{len(content):,} bytes", f"at most {_MAX_BYTES:,}")
    lessons = read_lessons(text, source=str(file))
    pack = _pack(pack_id, packs_root, paths, lessons.pack_id)
    store = ExperienceStore(
        paths.experiences, approved=approved_stamps([pack]), task_id=paths.root.name, max_words=pack.max_words
    )
    valid = [record for record in store.records() if store.verify_stamp(record)]
    screened = screen_lessons(lessons.lessons, pack, valid)
    out = kept_out(read_decisions(paths.promotions), simulated=lessons.simulated)
    name = f"{file.name} (SHA-256 {sha256_hex(content)[:_DIGITS]})"
    return _Import(name, paths, store, pack, lessons.simulated, screened, out)


def _pack(name: str | None, root: Path | None, paths: TaskPaths, of_file: str) -> LoadedPack:
    if not name:
        records = ExperienceStore(paths.experiences, approved={}).records()
        name = next((record.pack_id for record in deque(records, maxlen=1)), of_file or None)
    if name is None:
        known = sorted({*known_packs(), *(known_packs(root) if root else ())})
        raise SettingsError.one("--pack", "nothing, for a task that has learned nothing yet", ", ".join(known))
    return load_prompt_pack(name, root if root is not None and name in known_packs(root) else None)


def _verdict(source: _Import, entry: Screened) -> str:
    if entry.reason:
        return f"refused: {entry.reason}"
    if entry.known is None:
        rival = entry.opposite
        return f"new, the opposite of {rival.experience_id}, {rival.polarity}: {rival.summary32}" if rival else "new"
    other = "" if entry.known.summary32 == entry.text else f", as: {entry.known.summary32}"
    why = source.left_out(entry)
    return f"known: {entry.known.experience_id}{other}" + (f", kept out: {why}" if why else "")


def _show(source: _Import, console: Console) -> None:
    rows = [(_verdict(source, entry), entry.lesson.says, entry.text or entry.lesson.text) for entry in source.screened]
    pack = source.pack.manifest.id
    if console.as_json:
        lessons = [{"verdict": verdict, "says": polarity, "text": text} for verdict, polarity, text in rows]
        console.result({"stored": 0, "pack": pack, "lessons": lessons})
        return
    console.table(("verdict", "says", "lesson"), rows)
    console.say(f"Nothing was stored. Read every lesson; then --reviewed-by NAME stores them, stamped for {pack}.")


def _print_stored(source: _Import, stored: int, decided: Decision | None, console: Console, *, in_force: bool) -> None:
    if console.as_json:
        change = decided.model_dump(mode="json", exclude={"signatures", "previous"}) if decided else None
        console.result({"stored": stored, "change": change})
        return
    if decided is None:
        console.say("Nothing changed: this file was taken in before.")
        return
    console.say(f"Stored {pluralize(stored, 'lesson')}; `tfgrpo history` shows the file and the reviewer.")
    if in_force:
        library = f"library {decided.library_id} of {pluralize(len(decided.experience_ids), 'lesson')}"
        console.say(f"In force now: {library}, until the evidence speaks against it.")
    else:
        console.say("They are on trial in the next run, which measures them; --in-force puts them into force at once.")
    if out := [entry.known.experience_id for entry in source.screened if entry.known and source.left_out(entry)]:
        console.say(f"Left out, because they are kept out here: {', '.join(sorted(out))}.")
