"""Build groups to export, and the files of a finished run."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.agents import steps as kit
from tfgrpo.flows.run.loop.books import Books, State
from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.tasks.exports.choosing import ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import export_groups
from tfgrpo.tasks.exports.run_reading import facts_of_run, groups_of_run
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.learning.credit import Memory
from tfgrpo.tasks.learning.tally import Tally

STAMP = "ab" * 32


def rollout(index: int = 0, reward: float | None = 1.0, *, group: str = "g", text: Any = None, **more: Any) -> Rollout:
    values: dict[str, Any] = {
        "completion": f"answer {index}" if text is None else text,
        "sampling": Sampling(model="m", temperature=0.7),
        "usage": RolloutUsage(completion_tokens=10 + index),
        **more,
    }
    return Rollout(id=f"{group}/{index}", group_id=group, index=index, reward=reward, **values)


def group(*rewards: float | None, name: str = "g", **more: Any) -> RolloutGroup:
    rollouts = more.pop("rollouts", tuple(rollout(index, reward, group=name) for index, reward in enumerate(rewards)))
    known = {"item_id": "q1", "answer": "7", "domain": "sums", "task_id": "t", "run_id": "r", "epoch": 1}
    values: dict[str, Any] = {
        "state": [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "3 + 4?"}],
        "bare_state": [{"role": "user", "content": "3 + 4?"}],
        "policy_version": "m",
        "experience_version": "arithmetic@1+2",
        "metadata": {**known, **more.pop("metadata", {})},
        **more,
    }
    return RolloutGroup(id=name, rollouts=rollouts, **values)


def logprobs(*tokens: float, **more: Any) -> LogProbs:
    values: dict[str, Any] = {"total": sum(tokens), "count": len(tokens), "complete": True, "kind": "processed", **more}
    return LogProbs(tokens=tokens, **values)


def export(
    groups: Iterable[RolloutGroup], target: Any, path: Path, **options: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Export groups; return the rows and the report."""
    chosen = ExportOptions(target=target, **options)
    report = ExportReport("test", chosen)
    export_groups(groups, path, report)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if report.file else []
    return rows, json.loads(path.with_name(f"{path.name}.report.json").read_text())


async def recorded_run(folder: Path, script: Any, specs: Any, **runtime: Any) -> RunPaths:
    """Run these groups with the real steps and write the files of a run, without a flow."""
    task = TaskPaths.of(folder, "t")
    run = task.run("run")
    running = kit.runtime(script, run.root, **runtime)
    results = [await run_group(spec, running) for spec in specs]
    books = Books(run, "run", task.credit, State.of(Memory((), Tally(), night=0, conditions="", slots=12), {}))
    books.prompts(half.pack for spec in specs for half, _ in spec.halves)
    books.items(spec.item for spec in specs)
    books.groups(results)
    write_manifest(run, running)
    return run


def write_manifest(run: RunPaths, running: Any, **fields: Any) -> None:
    settings = running.context.settings.model_dump(mode="json")
    pack = {"id": "arithmetic", "domain": "arithmetic", "stamp": STAMP}
    known = {"run_id": "run", "task_id": "t", "status": "finished", "simulated": False, "model": "m", "pack": pack}
    ManifestFile(run.manifest).update(settings=settings, **{**known, **fields})


def read(run: RunPaths) -> list[RolloutGroup]:
    return list(stream(run))


def stream(run: RunPaths, *, bare: bool = False) -> Iterator[RolloutGroup]:
    return groups_of_run(run, facts_of_run(run), Counter(), bare=bare)
