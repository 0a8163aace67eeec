"""Lessons of a run with the attempts that were contrasted, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tfgrpo.flows.report.files import Json, Rollouts, read_rollouts
from tfgrpo.pipelines.datasets.datasets import prompts_by_id, shipped_dataset
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import ConfigError
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

_CONTRASTS = 2
_LONG = 2000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as the page shows it."""

    label: str
    rollout_id: str
    reward: str
    scores: tuple[str, ...]
    """Evidence given by each rewarder."""
    output: str


@dataclass(frozen=True, slots=True)
class Contrast:
    """Best and worst attempt of one group."""

    item_id: str
    prompt: str
    """Empty when the dataset can no longer be read."""
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One record of the store as the page shows it."""

    experience_id: str
    polarity: str
    text: str
    origin: str
    support: int
    reward: str
    supersedes: tuple[str, ...]
    contrasts: tuple[Contrast, ...]
    more: int
    """Groups whose attempts are not shown."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Lessons for the page."""

    library: tuple[Lesson, ...]
    replaced: tuple[Lesson, ...]
    """Stored by this run and no longer in its library."""
    missing: int
    """Lessons of the library that are not in the store."""


def learned(task: TaskPaths, run: RunPaths, manifest: Json) -> tuple[Learned, Rollouts]:
    """Lessons with their evidence, and the sums of the run's rollouts."""
    names: list[str] = list(manifest.get("tfgrpo", {}).get("library", ()))
    own = str(manifest.get("run_id", run.root.name))
    kept: dict[str, Json] = {}
    wanted = set(names)
    for record in ExperienceStore(task.experiences, approved={}).records():
        if record.experience_id in wanted or record.run_id == own:
            kept.setdefault(record.experience_id, record.model_dump(mode="json"))
    contrasts = {name: _contrasts(record["evidence"]) for name, record in kept.items()}
    shown = {rollout for pairs in contrasts.values() for pair in pairs[:_CONTRASTS] for rollout in pair}
    rollouts = read_rollouts(run, shown)
    found = rollouts.wanted | _elsewhere(task, own, kept.values(), shown)
    prompts = _prompts(manifest, {row["item_id"] for row in found.values()})
    made = {name: _lesson(record, contrasts[name], found, prompts) for name, record in kept.items()}
    library = tuple(made[name] for name in names if name in made)
    replaced = tuple(lesson for name, lesson in made.items() if name not in wanted)
    return Learned(library, replaced, len(names) - len(library)), rollouts


def _contrasts(evidence: Sequence[str]) -> list[tuple[str, ...]]:
    """Best and worst rollout of every group, in the order of the evidence, which names the best of a group first."""
    groups: dict[str, list[str]] = {}
    for rollout in evidence:
        groups.setdefault(rollout.rpartition("/")[0], []).append(rollout)
    return [tuple(dict.fromkeys((members[0], members[-1]))) for members in groups.values()]


def _elsewhere(task: TaskPaths, own: str, records: Iterable[Json], shown: set[str]) -> dict[str, dict[str, Any]]:
    """Evidence that earlier runs of the task recorded."""
    found: dict[str, dict[str, Any]] = {}
    for run_id in sorted({record["run_id"] for record in records} - {own}):
        found |= read_rollouts(task.run(run_id), shown).wanted
    return found


def _prompts(manifest: Json, wanted: set[str]) -> dict[str, str]:
    """Prompts of items by id, out of the dataset as it is now; empty when it cannot be read."""
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


def _lesson(
    record: Json, contrasts: Sequence[tuple[str, ...]], found: Mapping[str, Json], prompts: Mapping[str, str]
) -> Lesson:
    shown = [contrast for pair in contrasts[:_CONTRASTS] if (contrast := _contrast(pair, found, prompts)) is not None]
    return Lesson(
        experience_id=record["experience_id"],
        polarity=record["polarity"],
        text=record["summary32"] or "(the lesson it names was taken out)",
        origin=f"{record['operation']} in epoch {record['epoch']} of {record['run_id']}",
        support=len(contrasts),
        reward=f"{record['reward']['gt_score']:.3f}",
        supersedes=tuple(record["supersedes"]),
        contrasts=tuple(shown),
        more=len(contrasts) - len(shown),
    )


def _contrast(pair: Sequence[str], found: Mapping[str, Json], prompts: Mapping[str, str]) -> Contrast | None:
    rows = [found[name] for name in pair if name in found]
    if not rows:
        return None
    item = rows[0]["item_id"]
    labels = ("better", "worse") if len(rows) == 2 else ("attempt",)
    return Contrast(item, _short(prompts.get(item, "")), tuple(map(_attempt, labels, rows)))


def _attempt(label: str, row: Json) -> Attempt:
    reward = row["outcome"].get("reward")
    return Attempt(
        label=label,
        rollout_id=row["rollout_id"],
        reward="no reward" if reward is None else f"reward {reward:.3f}",
        scores=tuple(f"{score['rewarder_id']}: {score['evidence']}" for score in row["scores"]),
        output=_short(row["output"]) or "(no output)",
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]} … ({len(text) - _LONG:,} more characters in the files)"
