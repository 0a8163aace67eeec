"""``tfgrpo experiences import FILE``: lessons of another agent, looked at first, and stored when a person says they were read.

Without ``--reviewed-by`` nothing is written. With it, a file with any lesson that breaks a rule is refused whole. Stored
lessons are in no library until the gate, or ``--promote``, puts them there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tfgrpo.flows.commands.library.task_experiences import packs_root_of
from tfgrpo.flows.commands.options import unchecked_place_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import champion_library, promoted_library, signatures_in, write_view
from tfgrpo.prompt_packs.loader import known_packs, load_prompt_pack
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, SettingsError
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.promotions import Promotion, in_force, record_decided
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.state import read_state
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import replace_json
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import clean_text, pluralize
from tfgrpo.tasks.exports.lessons import LESSON_FORMS, LessonForm, LessonSet
from tfgrpo.tasks.exports.lessons_import import Review, Screened, records_of, review_of, screen_lessons
from tfgrpo.tasks.exports.lessons_reading import read_lessons

_LONGEST_NAME = 100
_LARGEST = 4 << 20
_ENDINGS: dict[str, LessonForm] = {".json": "json", ".txt": "text"}


IMPORT_OPTIONS: Final = ("from", "pack", "reviewed_by", "promote")


def add_import(parser: argparse.ArgumentParser) -> None:
    """Arguments of the import."""
    parser.add_argument("--from", choices=LESSON_FORMS, help="import: form of the file [by its ending]")
    parser.add_argument("--pack", metavar="ID", help="import: pack to stamp the lessons for [the task's own]")
    parser.add_argument(
        "--reviewed-by", metavar="NAME", help="import: store the lessons, on the word of this person, who has read them"
    )
    parser.add_argument(
        "--promote", action="store_true", help="import: also put them into force, without the gate's evidence"
    )


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a file offers to a task."""

    paths: TaskPaths
    store: ExperienceStore
    pack: LoadedPack
    found: LessonSet
    screened: tuple[Screened, ...]
    review: Review | None
    file: Path


def import_lessons(options: argparse.Namespace, console: Console) -> int:
    """Show what a file holds and, when it was reviewed, store it. Exit code 2 for a lesson that breaks a rule."""
    offer = _offer(options)
    if options.promote and offer.review is None:
        raise SettingsError.one("--promote", "no --reviewed-by", "--promote only with --reviewed-by NAME")
    if offer.review is None:
        return _show(offer, console)
    refused = [
        Problem(
            f"{offer.file}: lesson {place}", f"{entry.lesson.text[:80]!r} ({entry.reason})", "a lesson within the rules"
        )
        for place, entry in enumerate(offer.screened, start=1)
        if entry.reason
    ]
    if refused:
        raise DatasetError(refused)
    records = records_of(offer.screened, offer.pack, offer.review, utc_now)
    _write_manifest(offer, offer.review, records)
    stored = offer.store.record_batch(records, offer.paths.imported(offer.review.import_id)) if records else 0
    champion = _promote(offer, offer.review, records) if options.promote else None
    _tell(offer, stored, champion, console)
    return 0


def _offer(options: argparse.Namespace) -> _Offer:
    file = Path(options.names[0])
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        given = error.strerror if isinstance(error, OSError) else f"no UTF-8 at byte {error.start}"
        raise DatasetError.one(str(file), given or type(error).__name__, "a file of lessons in UTF-8") from error
    if len(content) > _LARGEST:
        raise DatasetError.one(str(file), f"{len(content):,} bytes", f"at most {_LARGEST:,}")
    form = getattr(options, "from") or _ENDINGS.get(file.suffix)
    if form is None:
        raise SettingsError.one("--from", f"nothing, for {file.name}", ", ".join(LESSON_FORMS))
    paths = unchecked_place_of(options)
    found = read_lessons(text, form, source=str(file))
    pack = _pack(options, paths)
    store = ExperienceStore(
        paths.experiences, approved=approved_stamps([pack]), task_id=paths.root.name, max_words=pack.max_words
    )
    valid = [record for record in store.records() if store.verify_stamp(record)]
    review = None
    if options.reviewed_by is not None:
        review = review_of(paths.root.name, _reviewer(options.reviewed_by), content)
    return _Offer(paths, store, pack, found, screen_lessons(found.lessons, pack, valid), review, file)


def _pack(options: argparse.Namespace, paths: TaskPaths) -> LoadedPack:
    root = packs_root_of(options)
    name = options.pack or _own_pack(paths)
    if name is None:
        known = sorted({*known_packs(), *(known_packs(root) if root else ())})
        raise SettingsError.one("--pack", "nothing, for a task that has learned nothing yet", ", ".join(known))
    if root is not None and name in known_packs(root):
        return load_prompt_pack(name, root)
    return load_prompt_pack(name)


def _own_pack(paths: TaskPaths) -> str | None:
    """The pack of the latest record."""
    last = None
    for record in ExperienceStore(paths.experiences, approved={}).records():
        last = record.pack_id
    return last


def _reviewer(name: str) -> str:
    cleaned = clean_text(name)
    if not cleaned or len(cleaned) > _LONGEST_NAME:
        raise SettingsError.one("--reviewed-by", repr(name[:60]), f"a name of 1 to {_LONGEST_NAME} characters")
    return cleaned


def _write_manifest(offer: _Offer, review: Review, records: list[ExperienceRecord]) -> None:
    """Before the records, so that no record is without its origin. An import done again forgets nothing it stored."""
    place = offer.paths.imported(review.import_id)
    earlier = _stored_before(place)
    if earlier and not records:
        return
    stored = list(dict.fromkeys([*earlier, *(record.experience_id for record in records)]))
    manifest = offer.pack.manifest
    replace_json(
        place,
        {
            "schema_version": 1,
            "import_id": review.import_id,
            "task_id": review.task_id,
            "file": offer.file.name,
            "file_sha256": review.file_digest,
            "reviewed_by": review.reviewed_by,
            "at": utc_now().isoformat(),
            "pack": {"id": manifest.id, "domain": manifest.domain, "stamp": manifest.stamp},
            "simulated": offer.found.simulated,
            "experience_ids": stored,
            "known": [entry.known_as for entry in offer.screened if entry.known_as and entry.known_as not in stored],
        },
    )


def _stored_before(manifest: Path) -> list[str]:
    """What the same import, done before, has stored."""
    if not manifest.exists():
        return []
    try:
        ids: list[str] = json.loads(manifest.read_bytes())["experience_ids"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{manifest}: is no record of an import") from error
    return ids


def _promote(offer: _Offer, review: Review, records: list[ExperienceRecord]) -> Library:
    """The champion with the imported lessons. The decision says that it rests on no pair of items."""
    simulated = offer.found.simulated
    named = {entry.known_as for entry in offer.screened if entry.known_as}
    again = offer.store.find(named)

    def decide(earlier: Sequence[Promotion]) -> Promotion | None:
        base = promoted_library(offer.store, in_force(earlier, simulated=simulated))
        champion = fold(base, [*again, *records])
        return None if champion.library_id == base.library_id else _promotion(offer, review, champion)

    promoted = record_decided(offer.paths.promotions, decide)
    if promoted is not None:
        last_run = (read_state(offer.paths.state) or {}).get("last_run")
        write_view(offer.store, offer.paths, review.task_id, last_run)
    return champion_library(offer.store, offer.paths, simulated=simulated)


def _promotion(offer: _Offer, review: Review, champion: Library) -> Promotion:
    return Promotion(
        run_id=review.import_id,
        decided_at=utc_now(),
        decision="promote",
        experience_ids=tuple(entry.experience_id for entry in champion.entries),
        library_id=champion.library_id,
        estimate=None,
        low=None,
        high=None,
        pairs=0,
        simulated=offer.found.simulated,
        signatures=signatures_in(offer.store, champion),
    )


def _rows(offer: _Offer) -> list[tuple[str, str, str]]:
    def verdict(entry: Screened) -> str:
        if entry.reason:
            return f"refused: {entry.reason}"
        return f"known: {entry.known_as}" if entry.known_as else "new"

    return [(verdict(entry), entry.lesson.polarity, entry.text or entry.lesson.text) for entry in offer.screened]


def _show(offer: _Offer, console: Console) -> int:
    rows = _rows(offer)
    if console.as_json:
        lessons = [{"verdict": verdict, "says": says, "text": text} for verdict, says, text in rows]
        console.result({"stored": 0, "pack": offer.pack.manifest.id, "lessons": lessons})
        return 0
    console.table(("verdict", "says", "lesson"), rows)
    console.say(
        f"Nothing was stored. Read every lesson, then say so: --reviewed-by NAME stamps them for {offer.pack.manifest.id}."
    )
    return 0


def _tell(offer: _Offer, stored: int, champion: Library | None, console: Console) -> None:
    review = offer.review
    place = offer.paths.imported(review.import_id) if review else None
    if console.as_json:
        answer = {"stored": stored, "import": review.import_id if review else None, "manifest": str(place)}
        console.result({**answer, "library_id": champion.library_id if champion else None})
        return
    console.say(f"Stored {pluralize(stored, 'lesson')}; {place} says from where and on whose word.", wrap=False)
    if champion is None:
        console.say("None of them is in force: only the gate, or --promote, changes the library.")
    else:
        library = f"library {champion.library_id} of {pluralize(len(champion.entries), 'lesson')}"
        console.say(f"In force now: {library}, without the gate's evidence.")
