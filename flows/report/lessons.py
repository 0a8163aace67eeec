"""Lessons of a run with the attempts that were contrasted, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfgrpo.flows.report.files import Json, Rollouts, read_rollouts
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

_CONTRASTS = 2


class Contrast(NamedTuple):
    """Best and worst attempt of one group, as lines of ``rollouts.jsonl``; a single one if the others are lost."""

    prompt: str
    """Empty for a run from before items were recorded."""
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
    earlier = [task.run(name) for name in sorted({record.run_id for record in records.values()} - {own})]
    found = {name: row for each in earlier for name, row in read_rollouts(each, shown).wanted.items()} | rollouts.wanted
    items = {row["item_id"] for row in found.values()}
    rows = (row for each in (*earlier, run) for row in read_rows(each.items))
    prompts = {row["item_id"]: row["prompt"] for row in rows if row["item_id"] in items}
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
