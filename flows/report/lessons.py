"""Lessons of a run with the attempts that were contrasted, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from tfgrpo.flows.report.files import Json, Rollouts, read_rollouts
from tfgrpo.pipelines.datasets.datasets import prompts_by_id, shipped_dataset
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import ConfigError
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

_CONTRASTS = 2


class Contrast(NamedTuple):
    """Best and worst attempt of one group, as lines of ``rollouts.jsonl``; a single one if the others are lost."""

    prompt: str
    """Empty when the dataset can no longer be read."""
    attempts: tuple[Json, ...]


class Lesson(NamedTuple):
    """One record of the store with its evidence."""

    record: ExperienceRecord
    groups: int
    """Groups it was drawn from, of which the page shows the first contrasts."""
    contrasts: tuple[Contrast, ...]


class Learned(NamedTuple):
    """Lessons for the page."""

    library: tuple[Lesson, ...]
    replaced: tuple[Lesson, ...]
    """Stored by this run and no longer in its library."""
    missing: int
    """Lessons of the library that are not in the store."""


def learned(task: TaskPaths, run: RunPaths, manifest: Json) -> tuple[Learned, Rollouts]:
    """Return the lessons with their evidence, and the sums of the run's rollouts."""
    names: list[str] = list(manifest.get("tfgrpo", {}).get("library", ()))
    wanted, own = set(names), str(manifest.get("run_id", run.root.name))
    records: dict[str, ExperienceRecord] = {}
    for record in ExperienceStore(task.experiences, approved={}).records():
        if record.experience_id in wanted or record.run_id == own:
            records.setdefault(record.experience_id, record)
    pairs = {name: _contrasted(record.evidence) for name, record in records.items()}
    shown = {rollout for groups in pairs.values() for pair in groups[:_CONTRASTS] for rollout in pair}
    rollouts = read_rollouts(run, shown)
    found = rollouts.wanted | _elsewhere(task, own, records.values(), shown)
    prompts = _prompts(manifest, {row["item_id"] for row in found.values()})
    lessons = {
        name: Lesson(record, len(pairs[name]), tuple(_contrasts(pairs[name][:_CONTRASTS], found, prompts)))
        for name, record in records.items()
    }
    library = tuple(lessons[name] for name in names if name in lessons)
    replaced = tuple(lesson for name, lesson in lessons.items() if name not in wanted)
    return Learned(library, replaced, len(names) - len(library)), rollouts


def _contrasted(evidence: Sequence[str]) -> list[tuple[str, ...]]:
    """Return best and worst rollout of every group, in the order of the evidence, which names the best of a group first."""
    groups: dict[str, list[str]] = {}
    for rollout in evidence:
        groups.setdefault(rollout.rpartition("/")[0], []).append(rollout)
    return [tuple(dict.fromkeys((members[0], members[-1]))) for members in groups.values()]


def _contrasts(
    pairs: Iterable[tuple[str, ...]], found: Mapping[str, Json], prompts: Mapping[str, str]
) -> Iterable[Contrast]:
    for pair in pairs:
        if rows := tuple(found[name] for name in pair if name in found):
            yield Contrast(prompts.get(rows[0]["item_id"], ""), rows)


def _elsewhere(
    task: TaskPaths, own: str, records: Iterable[ExperienceRecord], shown: set[str]
) -> dict[str, dict[str, Any]]:
    """Return the evidence that earlier runs of the task recorded."""
    found: dict[str, dict[str, Any]] = {}
    for run_id in sorted({record.run_id for record in records} - {own}):
        found |= read_rollouts(task.run(run_id), shown).wanted
    return found


def _prompts(manifest: Json, wanted: set[str]) -> dict[str, str]:
    """Return the prompts of items by id, out of the dataset as it is now; empty when it cannot be read."""
    settings = manifest.get("settings", {})
    dataset = settings.get("dataset", {})
    if not wanted or not dataset:
        return {}
    try:
        if dataset.get("mix"):
            from tfgrpo.pipelines.mix.items import mix_prompts  # noqa: PLC0415 - a run on a dataset needs no mix

            return mix_prompts(dataset["mix"], wanted)
        path = dataset.get("path") or str(shipped_dataset(settings["simulated"]["world"]))
        return prompts_by_id(path, FieldMap.model_validate(dataset.get("fields", {})), wanted)
    except (ConfigError, ValidationError, KeyError, OSError):
        return {}
