"""What has a task learned, as the commands read it? One task's store, its records and its promoted library, opened once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfgrpo.flows.commands.options import place_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.files import rows_of
from tfgrpo.flows.run.champion import champion_problems, promoted_library, verified
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs, load_prompt_pack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.errors import PackError, SettingsError
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.promotions import Promotion, in_force, promotions
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.signing import PackStamp
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons import SIMULATED

_NAMED = 5
"""Ids that are named where an id was ambiguous."""


@dataclass(frozen=True, slots=True)
class TaskExperiences:
    """One task's store and what is in force of it."""

    paths: TaskPaths
    store: ExperienceStore
    champion: Library
    """The library in force, also what of it does not verify."""
    packs: frozenset[str]
    """Ids of the packs that verify."""
    promoted: Promotion | None
    """What put the library into force."""
    problems: tuple[str, ...]
    """In what ways less is in force than was promoted."""

    @property
    def simulated(self) -> bool:
        """Whether the library in force was learned with the simulated model."""
        return self.promoted is not None and self.promoted.simulated

    def find(self, name: str) -> ExperienceRecord:
        """The record whose id is, or begins with, ``name``. Raises ``SettingsError`` for none or several."""
        found = self.store.find_by_prefix(name, limit=_NAMED)
        exact = [record for record in found if record.experience_id == name]
        if len(exact or found) != 1:
            accepted = "an id that `tfgrpo experiences list --all` shows"
            if found:
                accepted = f"one of {', '.join(record.experience_id for record in found)}"
            raise SettingsError.one("ID", repr(name), accepted)
        return (exact or found)[0]

    def ancestry(self, record: ExperienceRecord) -> Iterator[tuple[int, ExperienceRecord]]:
        """The record and every one it descends from, each with its depth."""
        waiting, seen = [(0, record)], {record.experience_id}
        while waiting:
            depth, entry = waiting.pop()
            yield depth, entry
            found = {one.experience_id: one for one in reversed(self.store.find(entry.supersedes))}  # the first counts
            for name in reversed(entry.supersedes):
                if name in found and name not in seen:
                    seen.add(name)
                    waiting.append((depth + 1, found[name]))

    def rollouts(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """The rollouts of these ids, as their runs recorded them. Raises ``CorruptFile``."""
        wanted = set(names)
        found = []
        for path in sorted(self.paths.root.glob("runs/*/rollouts.jsonl")):
            found += [row for row in rows_of(path) if row.get("rollout_id") in wanted]
        return found

    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Experience ids of the candidate of every run that the gate decided on, oldest first."""
        return {decision.run_id: decision.experience_ids for decision in promotions(self.paths.promotions)}

    def library(self, ids: Iterable[str]) -> Library:
        """The library with these ids."""
        names = tuple(ids)
        return Library.of_ids(self.store.find(names), names)


def add_packs_root(parser: argparse.ArgumentParser, *, shipped: Literal["besides", "instead of"]) -> None:
    """Add ``--packs-root``, and say whether the packs that ship are known as well."""
    parser.add_argument(
        "--packs-root",
        metavar="DIR",
        help=f"directory of your own packs, {shipped} those that ship (TFGRPO_PACKS_ROOT)",
    )


def packs_root_of(options: argparse.Namespace) -> Path | None:
    """The directory that the option, else the environment, names."""
    named = options.packs_root or os.environ.get("TFGRPO_PACKS_ROOT")
    return Path(named) if named else None


def open_experiences(options: argparse.Namespace) -> TaskExperiences:
    """The experiences that ``--out`` and ``--task-id`` name. Raises ``SettingsError`` when nothing was learned there."""
    paths = place_of(options)
    if not paths.experiences.is_file():
        raise SettingsError.one(
            "--task-id", repr(paths.root.name), f"a task that has learned something; there is no {paths.experiences}"
        )
    approved = _approved(packs_root_of(options))
    store = ExperienceStore(paths.experiences, approved=approved, task_id=paths.root.name)
    promoted = in_force(promotions(paths.promotions))
    champion = promoted_library(store, promoted)
    problems = tuple(champion_problems(store, paths))
    return TaskExperiences(paths, store, champion, frozenset(approved), promoted, problems)


def shown_champion(experiences: TaskExperiences, console: Console) -> Library:
    """What of the library in force verifies; the person is told of what does not, and of a simulated model."""
    sound = verified(experiences.champion, experiences.store)
    kept_out = [entry for entry in experiences.champion.entries if entry not in sound.entries]
    if kept_out:
        unknown = sorted({entry.pack_id for entry in kept_out} - experiences.packs)
        why = "not stamped for the version of the pack in force (`tfgrpo experiences verify`)"
        if unknown:
            why = f"no version of the pack {', '.join(unknown)} verifies here; --packs-root names the directory of your own"
        console.say(f"{pluralize(len(kept_out), 'lesson')} kept out: {why}.", style="yellow")
    for problem in experiences.problems:
        console.say(problem, style="yellow")
    if experiences.simulated:
        console.say(f"{SIMULATED}: these lessons were learned with the simulated model.", style="bold yellow")
    return sound


def _approved(root: Path | None) -> dict[str, PackStamp]:
    """Stamps of the packs that verify. One that does not has no stamp in force: its lessons count as unverified."""
    approved: dict[str, PackStamp] = {}
    for each in (SHIPPED_ROOT, *([root] if root else [])):
        for name in known_packs(each):
            try:
                approved |= approved_stamps([load_prompt_pack(name, each)])
            except PackError:
                continue
    return approved
