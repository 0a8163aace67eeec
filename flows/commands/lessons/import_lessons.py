"""``tfgrpo experiences import FILE`` and ``merge STORE``: show the lessons of another agent or task, store them after review.

Without ``--reviewed-by`` nothing is written. With it, lessons are refused whole if any of them breaks a rule, or conflicts
with a known one and neither ``--ours`` nor ``--theirs`` is given. Stored lessons have an account, and are in no library
until the gate, or ``--promote``, adds them.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.flows.commands.lessons.experiences import accounts_now, lesson_set
from tfgrpo.flows.commands.options import checked_text, packs_root_of, say_which
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import champion_library, promoted_library, signatures_in, verified, write_view
from tfgrpo.flows.run.index import task_named
from tfgrpo.prompt_packs.loader import known_packs, load_prompt_pack, stamps_in_force
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.accounts import append_events, opening_event, read_events
from tfgrpo.stores.experiences.library import (
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
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import replace_json
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons.forms import LESSON_FORMS, LessonForm, LessonSet, as_json, read_lessons
from tfgrpo.tasks.exports.lessons.screening import Review, Screened, records_of, review_of, screen_lessons

_MAX_BYTES = 4 << 20
_ENDINGS: dict[str, LessonForm] = {".json": "json", ".txt": "text"}


@dataclass(frozen=True, slots=True)
class _Import:
    """The lessons of a file or another task, screened for a task."""

    name: str
    """The file or directory that they are of."""
    content: bytes
    paths: TaskPaths
    store: ExperienceStore
    pack: LoadedPack
    lessons: LessonSet
    screened: tuple[Screened, ...]
    retired: Mapping[str, str]
    """Known lessons that the task keeps out, by id, with the reason."""


def import_lessons(options: argparse.Namespace, console: Console) -> None:
    """Show the lessons of a file or, when it was reviewed, store them. Raise ``DatasetError`` for those that break a rule."""
    _take_in(_read(options), options, console)


def merge_store(options: argparse.Namespace, console: Console) -> None:
    """Do the same with the lessons that are in force in another task. Raise ``SettingsError`` for no such task."""
    _take_in(_read_store(options), options, console)


def _take_in(source: _Import, options: argparse.Namespace, console: Console) -> None:
    if options.ours and options.theirs:
        raise SettingsError.one("--theirs", "it beside --ours", "one of the two")
    say_which(source.paths, options, console)
    if options.reviewed_by is None:
        if options.promote:
            raise SettingsError.one("--promote", "no --reviewed-by", "--promote only with --reviewed-by NAME")
        _show(source, console)
        return
    review = review_of(source.paths.root.name, checked_text("--reviewed-by", options.reviewed_by), source.content)
    if refused := list(_refused(source, settled=options.ours or options.theirs)):
        raise DatasetError(refused)
    records = records_of(source.screened, source.pack, review, utc_now, theirs=options.theirs)
    _write_manifest(source, review, records)
    stored = source.store.record_batch(records, source.paths.imported(review.import_id)) if records else 0
    _open_accounts(source, review)
    champion = _promote(source, review, records) if options.promote else None
    _print_stored(source, review, stored, champion, console)


def _refused(source: _Import, *, settled: bool) -> Iterator[Problem]:
    """Yield a problem for each lesson that breaks a rule, and for each conflict that nobody settled."""
    for number, entry in enumerate(source.screened, start=1):
        where, text = f"{source.name}: lesson {number}", repr(entry.lesson.text[:80])
        if entry.reason:
            yield Problem(where, f"{text} ({entry.reason})", "a lesson within the rules")
        elif entry.conflict and not settled:
            yield Problem(
                where, f"{text} ({entry.conflict})", "--ours to leave such out, --theirs to replace the known"
            )


def _open_accounts(source: _Import, review: Review) -> None:
    """Open the account of each lesson of this import, also of those that an earlier try stored."""
    ids = _stored_before(source.paths.imported(review.import_id))
    groups = {(entry.lesson.polarity, entry.text): entry.lesson.support for entry in source.screened}
    night = nights_before(promotions(source.paths.promotions))
    append_events(
        source.paths.accounts,
        [
            opening_event(
                record,
                night=night,
                simulated=source.lessons.simulated,
                now=utc_now(),
                support=groups.get((record.polarity, record.summary32)),
                why=f"taken in from {Path(source.name).name}, reviewed by {review.reviewed_by}",
            )
            for record in source.store.find(ids)
        ],
    )


def _read(options: argparse.Namespace) -> _Import:
    file = Path(options.file)
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        given = error.strerror if isinstance(error, OSError) else f"no UTF-8 at byte {error.start}"
        raise DatasetError.one(str(file), given or type(error).__name__, "a file of lessons in UTF-8") from error
    if len(content) > _MAX_BYTES:
        raise DatasetError.one(str(file), f"{len(content):,} bytes", f"at most {_MAX_BYTES:,}")
    form = options.form or _ENDINGS.get(file.suffix)
    if form is None:
        raise SettingsError.one("--from", f"nothing, for {file.name}", ", ".join(LESSON_FORMS))
    return _screened(options, str(file), content, read_lessons(text, form, source=str(file)))


def _read_store(options: argparse.Namespace) -> _Import:
    given = Path(options.store)
    folder = given.parent if given.is_file() else given
    theirs = TaskPaths(folder.resolve())
    if not theirs.experiences.is_file() or (given.is_file() and given.name != theirs.experiences.name):
        accepted = f"the directory of a task with lessons, or its {theirs.experiences.name}"
        raise SettingsError.one("STORE", repr(options.store), accepted)
    if theirs.root == task_named(options.task_id, options.out).root.resolve():
        raise SettingsError.one("STORE", repr(options.store), "another task than the one that takes the lessons in")
    store = ExperienceStore(theirs.experiences, approved=stamps_in_force(packs_root_of(options)))
    decided = list(promotions(theirs.promotions))
    promoted = in_force(decided)
    # Of a store that was sent alone every lesson that nothing supersedes.
    library = promoted_library(store, promoted) if decided else fold(Library(()), store.records())
    sound = verified(library, store)
    if not library.entries:
        raise SettingsError.one("STORE", f"{options.store!r}, with no lessons in force", "a task with some")
    if not sound.entries:
        unstamped = f"{options.store!r}, {pluralize(len(library.entries), 'lesson')} and none that verifies"
        raise SettingsError.one("STORE", unstamped, "one with stamped lessons")
    simulated = promoted.simulated if promoted else any(each.simulated for each in read_events(theirs.accounts))
    lesson_list = lesson_set(sound, theirs.root.name, simulated=simulated)
    return _screened(options, str(folder), canonical_json(as_json(lesson_list)).encode(), lesson_list)


def _screened(options: argparse.Namespace, name: str, content: bytes, lessons: LessonSet) -> _Import:
    paths = task_named(options.task_id, options.out)
    pack = _pack(options, paths)
    store = ExperienceStore(
        paths.experiences, approved=approved_stamps([pack]), task_id=paths.root.name, max_words=pack.max_words
    )
    valid = [record for record in store.records() if store.verify_stamp(record)]
    screened = screen_lessons(lessons.lessons, pack, valid)
    accounts = accounts_now(paths, store, simulated=lessons.simulated)
    retired = {name: account.retired for name, account in accounts.items() if account.retired}
    return _Import(name, content, paths, store, pack, lessons, screened, retired)


def _pack(options: argparse.Namespace, paths: TaskPaths) -> LoadedPack:
    """Load the pack that is asked for, or else that of the task's latest record."""
    root, name = packs_root_of(options), options.pack or None
    if name is None:
        records = ExperienceStore(paths.experiences, approved={}).records()
        name = next((record.pack_id for record in deque(records, maxlen=1)), None)
    if name is None:
        known = sorted({*known_packs(), *(known_packs(root) if root else ())})
        raise SettingsError.one("--pack", "nothing, for a task that has learned nothing yet", ", ".join(known))
    return load_prompt_pack(name, root if root is not None and name in known_packs(root) else None)


def _write_manifest(source: _Import, review: Review, records: list[ExperienceRecord]) -> None:
    """Write the manifest, before the records so that each has its origin; ids of the same import done before are kept."""
    path = source.paths.imported(review.import_id)
    earlier = _stored_before(path)
    if earlier and not records:
        return
    stored = list(dict.fromkeys([*earlier, *(record.experience_id for record in records)]))
    manifest = source.pack.manifest
    replace_json(
        path,
        {
            "schema_version": 1,
            "import_id": review.import_id,
            "task_id": review.task_id,
            "file": Path(source.name).name,
            "file_sha256": review.file_digest,
            "reviewed_by": review.reviewed_by,
            "at": utc_now().isoformat(),
            "pack": {"id": manifest.id, "domain": manifest.domain, "stamp": manifest.stamp},
            "simulated": source.lessons.simulated,
            "experience_ids": stored,
            "known": [entry.known_as for entry in source.screened if entry.known_as and entry.known_as not in stored],
        },
    )


def _stored_before(manifest: Path) -> list[str]:
    """Return the ids that the same import stored before."""
    if not manifest.exists():
        return []
    try:
        ids: list[str] = json.loads(manifest.read_bytes())["experience_ids"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{manifest}: is no record of an import") from error
    return ids


def _promote(source: _Import, review: Review, records: list[ExperienceRecord]) -> Library:
    """Add the imported lessons to the champion, by a decision without pairs of items, and return it.

    Known ones that the task keeps out stay out: the next run would take them out again.
    """
    simulated = source.lessons.simulated
    known = source.store.find({entry.known_as for entry in source.screened} - {"", *source.retired})

    def decide(earlier: Sequence[Promotion]) -> Promotion | None:
        base = promoted_library(source.store, in_force(earlier, simulated=simulated))
        champion = fold(base, [*known, *records])
        if champion.library_id == base.library_id:
            return None
        return uncompared(
            champion,
            "promote",
            run_id=review.import_id,
            decided_at=utc_now(),
            simulated=simulated,
            signatures=signatures_in(source.store, champion),
            who=review.reviewed_by,
            why=f"taken in from {Path(source.name).name}",
        )

    promoted = record_decided(source.paths.promotions, decide)
    if promoted is not None:
        write_view(source.store, source.paths, review.task_id)
    return champion_library(source.store, source.paths, simulated=simulated)


def _show(source: _Import, console: Console) -> None:
    rows = []
    for entry in source.screened:
        known = f"known: {entry.known_as}" if entry.known_as else entry.conflict or "new"
        known += f", retired: {source.retired[entry.known_as]}" if entry.known_as in source.retired else ""
        verdict = f"refused: {entry.reason}" if entry.reason else known
        rows.append((verdict, entry.lesson.polarity, entry.text or entry.lesson.text))
    pack = source.pack.manifest.id
    if console.as_json:
        lessons = [{"verdict": verdict, "says": polarity, "text": text} for verdict, polarity, text in rows]
        console.result({"stored": 0, "pack": pack, "lessons": lessons})
        return
    console.table(("verdict", "says", "lesson"), rows)
    console.say(f"Nothing was stored. Read every lesson; then --reviewed-by NAME stores them, stamped for {pack}.")


def _print_stored(source: _Import, review: Review, stored: int, champion: Library | None, console: Console) -> None:
    path = source.paths.imported(review.import_id)
    if console.as_json:
        answer = {"stored": stored, "import": review.import_id, "manifest": str(path)}
        console.result({**answer, "library_id": champion.library_id if champion else None})
        return
    console.say(f"Stored {pluralize(stored, 'lesson')}; {path} records the file and the reviewer.", wrap=False)
    if champion is None:
        console.say("None of them is in force: only the gate, or --promote, changes the library.")
    else:
        library = f"library {champion.library_id} of {pluralize(len(champion.entries), 'lesson')}"
        console.say(f"In force now: {library}, without the gate's evidence.")
        out = {entry.known_as for entry in source.screened} & set(source.retired)
        if out:
            console.say(f"Left out, because they are retired here: {', '.join(sorted(out))}.")
