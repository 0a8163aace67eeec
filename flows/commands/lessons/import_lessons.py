"""``tfgrpo experiences import FILE``: show the lessons of another task's export, and store them after review.

Without ``--reviewed-by`` nothing is written. With it, lessons are refused whole if any of them breaks a rule. Stored ones are
on trial with the support of a person's word, and in force at once only with ``--in-force``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tfgrpo.flows.commands.lessons.review import bring_in, persons_decision
from tfgrpo.flows.commands.options import Place, checked_text
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.index import known_tasks
from tfgrpo.flows.run.lessons import decided_library, write_view
from tfgrpo.prompt_packs.loader import known_packs, load_prompt_pack
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.decisions import (
    Decision,
    in_force,
    kept_out,
    read_decisions,
    record_decided,
)
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons import Screened, imported_record, read_lessons, screen_lessons

_MAX_BYTES: Final = 4 << 20
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class _Import:
    """The lessons of a file, screened for a task."""

    name: str
    """Of the file, with the beginning of its digest."""
    paths: TaskPaths
    store: ExperienceStore
    pack: LoadedPack
    simulated: bool
    screened: tuple[Screened, ...]
    kept_out: Mapping[str, str]
    """Known lessons that a person keeps out of the task, by id, with the reason."""

    def left_out(self, entry: Screened) -> str:
        """Return why a known lesson is kept out of the task; empty for any other."""
        return self.kept_out.get(entry.known.experience_id, "") if entry.known else ""


def import_lessons(
    file: str,
    pack: str | None,
    reviewed_by: str | None,
    place: Place,
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
    who = checked_text("--reviewed-by", reviewed_by)
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
    """Store the lessons with their support, and return the decision; None if they were taken in before.

    ``now``: whether they are in force at once, in place of those that say the opposite.
    """
    store, task_id = source.store, source.paths.root.name
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
    library = decided_library(store, in_force(earlier, simulated=source.simulated))
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
    """Load the pack that is asked for, else that of the task's latest record, else that of the file."""
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
