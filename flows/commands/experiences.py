"""``tfgrpo experiences``: what a task has learned, where each lesson came from, and what is in force."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flows.champion import champion_library
from flows.console import Console
from prompt_packs import approved_stamps, known_packs, load_prompt_pack
from prompt_packs.loader import SHIPPED_ROOT
from stores.atomic import read_lines
from stores.errors import SettingsError
from stores.experience_store import ExperienceStore, support_of
from stores.layout import TaskPaths
from stores.library import Library
from stores.models import ExperienceRecord
from stores.promotions import promotions

EXPORTS = ("text", "json")


@dataclasses.dataclass(frozen=True, slots=True)
class _Shelf:
    """One task's store, opened for reading."""

    paths: TaskPaths
    store: ExperienceStore
    records: tuple[ExperienceRecord, ...]
    champion: Library

    def find(self, name: str) -> ExperienceRecord:
        """The record whose id is, or begins with, ``name``."""
        found = [record for record in self.records if record.experience_id.startswith(name)]
        if len(found) != 1:
            accepted = (
                "an id, or the unambiguous beginning of one" if found else "an id that `experiences list --all` shows"
            )
            raise SettingsError.one("tfgrpo experiences", name, accepted)
        return found[0]


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("action", choices=tuple(_ACTIONS))
    parser.add_argument("names", nargs="*", metavar="ID", help="experience ids (show, blame) or two run ids (diff)")
    parser.add_argument("--out", default="out", help="where tasks are kept [default: out]")
    parser.add_argument("--task-id", default="tfgrpo-learning", help="task [default: tfgrpo-learning]")
    parser.add_argument("--packs-root", metavar="DIR", help="directory of your own packs")
    parser.add_argument("--all", action="store_true", help="list every record, not only the champion library")
    parser.add_argument("--to", choices=EXPORTS, default="text", help="form of the export [default: text]")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Do what was asked."""
    return _ACTIONS[options.action](_shelf(options), options, console)


def _shelf(options: argparse.Namespace) -> _Shelf:
    try:
        paths = TaskPaths.of(options.out, options.task_id)
    except ValueError as error:
        raise SettingsError.one("--task-id", options.task_id, str(error)) from error
    if not paths.experiences.exists():
        raise SettingsError.one(
            "--task-id", options.task_id, f"a task that has learned something: no {paths.experiences}"
        )
    root = Path(options.packs_root) if options.packs_root else SHIPPED_ROOT
    approved = approved_stamps([load_prompt_pack(name, root) for name in known_packs(root)])
    store = ExperienceStore(paths.experiences, approved=approved)
    return _Shelf(paths, store, tuple(store.records()), champion_library(store, paths))


def _list(shelf: _Shelf, options: argparse.Namespace, console: Console) -> int:
    shown = shelf.records if options.all else shelf.champion.entries
    if console.as_json:
        console.result([record.model_dump(mode="json") for record in shown])
        return 0
    rows = [
        (record.experience_id, record.operation, record.polarity, str(support_of(record)), record.summary32)
        for record in shown
    ]
    title = "" if rows or options.all else "No library was promoted yet; --all lists every record."
    console.table(title, ("id", "operation", "says", "groups", "lesson"), rows, result=True)
    return 0


def _show(shelf: _Shelf, options: argparse.Namespace, console: Console) -> int:
    for name in options.names:
        fields = shelf.find(name).model_dump(mode="json")
        if console.as_json:
            console.result(fields)
        else:
            console.text(
                "\n".join(f"{key:>16}  {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items())
            )
    return 0


def _blame(shelf: _Shelf, options: argparse.Namespace, console: Console) -> int:
    """Every record a lesson descends from, and the rollouts that showed it."""
    for name in options.names:
        record = shelf.find(name)
        lines = list(_ancestry(shelf, record))
        rollouts = [row for row in _rollouts(shelf) if row["rollout_id"] in set(record.evidence)]
        if console.as_json:
            console.result({"ancestry": [entry.model_dump(mode="json") for _, entry in lines], "rollouts": rollouts})
            continue
        for depth, entry in lines:
            console.text(f"{'  ' * depth}{entry.experience_id} {entry.operation} by {entry.run_id}: {entry.summary32}")
        for row in rollouts:
            reward = row["outcome"].get("reward")
            console.text(f"  {row['rollout_id']}  reward {reward}  {row['summary']}")
    return 0


def _ancestry(shelf: _Shelf, record: ExperienceRecord, depth: int = 0) -> Iterator[tuple[int, ExperienceRecord]]:
    yield depth, record
    by_id = {entry.experience_id: entry for entry in shelf.records}
    for name in record.supersedes:
        if name in by_id:
            yield from _ancestry(shelf, by_id[name], depth + 1)


def _rollouts(shelf: _Shelf) -> Iterator[dict[str, Any]]:
    for path in sorted(shelf.paths.root.glob("runs/*/rollouts.jsonl")):
        yield from (json.loads(line) for line in read_lines(path))


def _diff(shelf: _Shelf, options: argparse.Namespace, console: Console) -> int:
    """What the candidate library of a run changed, against the champion it started from or another run's candidate."""
    decided = {decision.run_id: decision for decision in promotions(shelf.paths.promotions)}
    unknown = [name for name in options.names if name not in decided]
    if unknown or not 1 <= len(options.names) <= 2:
        raise SettingsError.one(
            "tfgrpo experiences diff", " ".join(options.names), f"one or two of: {', '.join(decided)}"
        )
    *base, last = options.names
    after = Library.of_ids(shelf.records, decided[last].experience_ids)
    before = Library.of_ids(shelf.records, decided[base[0]].experience_ids) if base else _before(shelf, last)
    old, new = ({entry.experience_id: entry for entry in library.entries} for library in (before, after))
    gone = [entry for name, entry in old.items() if name not in new]
    come = [entry for name, entry in new.items() if name not in old]
    if console.as_json:
        console.result({"removed": [e.experience_id for e in gone], "added": [e.experience_id for e in come]})
        return 0
    for sign, entries in (("-", gone), ("+", come)):
        for entry in entries:
            console.text(f"{sign} {entry.experience_id} {entry.polarity}: {entry.summary32}")
    return 0


def _before(shelf: _Shelf, run_id: str) -> Library:
    manifest = json.loads(shelf.paths.run(run_id).manifest.read_text(encoding="utf-8"))
    return Library.of_ids(shelf.records, manifest["champion"]["experience_ids"])


def _verify(shelf: _Shelf, _options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 when any record of the champion library does not verify, or any line was passed over."""
    stale = [entry.experience_id for entry in shelf.champion.entries if not shelf.store.verify_stamp(entry)]
    retired = sum(not shelf.store.verify_stamp(record) for record in shelf.records)
    skipped = dataclasses.asdict(shelf.store.skipped)
    sound = not stale and not skipped["unreadable"] and not skipped["over_long"]
    if console.as_json:
        console.result({"ok": sound, "records": len(shelf.records), "stale": stale, "retired": retired, **skipped})
    else:
        console.text(f"{len(shelf.records)} records, {retired} stamped for another version of their pack")
        console.text(f"{skipped['unreadable']} unreadable and {skipped['over_long']} over-long lines passed over")
        console.text(f"champion: {len(shelf.champion.entries)} lessons, {len(stale)} of them no longer verify")
    return 0 if sound else 1


def _export(shelf: _Shelf, options: argparse.Namespace, console: Console) -> int:
    """The champion library as text to paste into any prompt, or as JSON."""
    entries = shelf.champion.entries
    if options.to == "json" or console.as_json:
        console.result(
            [{"id": entry.experience_id, "says": entry.polarity, "text": entry.summary32} for entry in entries]
        )
    else:
        console.text("\n".join(f"- {entry.polarity.capitalize()}: {entry.summary32}" for entry in entries))
    return 0


_ACTIONS: dict[str, Callable[[_Shelf, argparse.Namespace, Console], int]] = {
    "list": _list,
    "show": _show,
    "blame": _blame,
    "diff": _diff,
    "verify": _verify,
    "export": _export,
}
