"""The experiences of one task as the commands read them: its store, its records and its promoted library."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfgrpo.flows.commands.options import existing_task, names_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import champion_problems, promoted_library, verified
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs, load_prompt_pack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.errors import PackError, SettingsError
from tfgrpo.stores.experiences.library import Library, Promotion, in_force, promotions
from tfgrpo.stores.experiences.record import ExperienceRecord, PackStamp
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.lessons.forms import SIMULATED

_MAX_MATCHES = 5
"""Ids that a message names when a prefix is ambiguous."""


@dataclass(frozen=True, slots=True)
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
    problems: tuple[str, ...]
    """Why less is in force than was promoted."""

    @property
    def simulated(self) -> bool:
        """Whether the library in force was learned with the simulated model."""
        return self.promoted is not None and self.promoted.simulated

    def find(self, prefix: str) -> ExperienceRecord:
        """Return the record whose id is, or starts with, ``prefix``. Raise ``SettingsError`` for none or several."""
        matches = self.store.find_by_prefix(prefix, limit=_MAX_MATCHES)
        exact = [record for record in matches if record.experience_id == prefix]
        if len(exact or matches) != 1:
            accepted = "an id that `tfgrpo experiences list --all` shows"
            if matches:
                accepted = f"one of {', '.join(record.experience_id for record in matches)}"
            raise SettingsError.one("ID", repr(prefix), accepted)
        return (exact or matches)[0]

    def ancestry(self, record: ExperienceRecord) -> Iterator[tuple[int, ExperienceRecord]]:
        """Yield the record and every one it descends from, each with its depth."""
        waiting, seen = [(0, record)], {record.experience_id}
        while waiting:
            depth, entry = waiting.pop()
            yield depth, entry
            parents = {
                each.experience_id: each for each in reversed(self.store.find(entry.supersedes))
            }  # the first counts
            for name in reversed(entry.supersedes):
                if name in parents and name not in seen:
                    seen.add(name)
                    waiting.append((depth + 1, parents[name]))

    def rollouts(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the rollouts of these ids, as their runs recorded them. Raise ``CorruptFile``."""
        from tfgrpo.flows.report.files import rows_of  # noqa: PLC0415 - a report needs numpy, the other actions do not

        wanted = set(names)
        paths = sorted(self.paths.root.glob("runs/*/rollouts.jsonl"))
        return [row for path in paths for row in rows_of(path) if row.get("rollout_id") in wanted]

    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Return the experience ids of the candidate of every run with a decision, oldest first."""
        return {decision.run_id: decision.experience_ids for decision in promotions(self.paths.promotions)}

    def library(self, ids: Iterable[str]) -> Library:
        """Return the library with these ids."""
        names = tuple(ids)
        return Library.of_ids(self.store.find(names), names)


def packs_root_of(options: argparse.Namespace) -> Path | None:
    """Return the directory that the option, else the environment, names."""
    root = options.packs_root or os.environ.get("TFGRPO_PACKS_ROOT")
    return Path(root) if root else None


def open_experiences(options: argparse.Namespace) -> TaskExperiences:
    """Open the task that ``--out`` and ``--task-id`` name. Raise ``SettingsError`` when it has learned nothing."""
    paths = existing_task(options)
    if not paths.experiences.is_file():
        accepted = f"a task that has learned something; there is no {paths.experiences}"
        source = "--task-id" if names_task(options) else f"the default task in {paths.root.parent}"
        raise SettingsError.one(source, repr(paths.root.name), accepted)
    approved = _approved(packs_root_of(options))
    store = ExperienceStore(paths.experiences, approved=approved, task_id=paths.root.name)
    promoted = in_force(promotions(paths.promotions))
    champion = promoted_library(store, promoted)
    problems = tuple(champion_problems(store, paths))
    return TaskExperiences(paths, store, champion, frozenset(approved), promoted, problems)


def shown_champion(experiences: TaskExperiences, console: Console) -> Library:
    """Return the records in force that verify; warn people of the others, and of a simulated model."""
    sound = verified(experiences.champion, experiences.store)
    excluded = [entry for entry in experiences.champion.entries if entry not in sound.entries]
    if excluded:
        unknown = sorted({entry.pack_id for entry in excluded} - experiences.packs)
        why = "not stamped for the version of the pack in force (`tfgrpo experiences verify`)"
        if unknown:
            why = f"no version of the pack {', '.join(unknown)} verifies here; --packs-root names the directory of your own"
        console.say(f"{pluralize(len(excluded), 'lesson')} kept out: {why}.", style="yellow")
    for problem in experiences.problems:
        console.say(problem, style="yellow")
    if experiences.simulated:
        console.say(f"{SIMULATED}: these lessons were learned with the simulated model.", style="bold yellow")
    return sound


def _approved(root: Path | None) -> dict[str, PackStamp]:
    """Return the stamps of the packs that verify. Lessons for any other pack count as unverified."""
    approved: dict[str, PackStamp] = {}
    for each in (SHIPPED_ROOT, *([root] if root else [])):
        for name in known_packs(each):
            try:
                approved |= approved_stamps([load_prompt_pack(name, each)])
            except PackError:
                continue
    return approved
