"""What does the morning page say? A self-contained ``report.html``, a pure function of the files of a task and a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.observer import EPOCH_COLUMNS, EPOCH_FIELDS
from flows.report_charts import Curve, Intervals, curve, intervals
from stores.atomic import read_lines, replace_text
from stores.layout import RunPaths, TaskPaths

_EVIDENCE_SHOWN = 2
_FLIPS_SHOWN = 12


def write_report(task: TaskPaths, run: RunPaths) -> Path:
    """Write the page of a run and return its path."""
    environment = Environment(
        loader=PackageLoader("flows"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    replace_text(run.report, environment.get_template("report.html.j2").render(_page(task, run)))
    return run.report


def _page(task: TaskPaths, run: RunPaths) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(run.manifest.read_text(encoding="utf-8"))
    groups = list(_lines(run.groups))
    records = {record["experience_id"]: record for record in _lines(task.experiences)}
    tfgrpo = manifest["tfgrpo"]
    lessons = [records[name] for name in tfgrpo["library"] if name in records]
    return {
        **{
            name: manifest[name] for name in ("run_id", "task_id", "status", "started_at", "simulated", "pack", "model")
        },
        "ended_at": manifest.get("ended_at"),
        "message": "" if manifest.get("gate") else manifest.get("message", ""),
        "gate": manifest.get("gate"),
        "comparison": _comparison(manifest.get("gate")),
        "facts": _facts(manifest),
        "curve": _training_curve(groups),
        "epoch_columns": EPOCH_COLUMNS,
        "epochs": [[_cell(row[name]) for name in EPOCH_FIELDS] for row in tfgrpo["epochs"]],
        "lessons": _lessons(lessons, run),
        "tools": [_tool(row) for row in tfgrpo["per_tool_metrics"]],
        "flips": _flips(groups),
        "rejected": [pair for group in groups for pair in group["rejected"]] + tfgrpo["rejected"],
        "warnings": manifest["warnings"],
        "settings": _settings(manifest),
    }


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    return (json.loads(line) for line in read_lines(path)) if path.is_file() else ()


def _comparison(gate: Mapping[str, Any] | None) -> Intervals | None:
    if not gate or not all(gate[arm] for arm in ("champion", "candidate", "difference")):
        return None
    arms = [
        (name, *(gate[arm][part] for part in ("low", "estimate", "high")))
        for name, arm in (("before", "champion"), ("after", "candidate"), ("difference", "difference"))
    ]
    return intervals(arms)


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    ledger, tfgrpo = manifest["ledger"], manifest["tfgrpo"]
    lost = sum(row["lost"] for row in tfgrpo["epochs"])
    everything = lost + sum(row["scored"] for row in tfgrpo["epochs"])
    return [
        ("spent", ledger["spent"]),
        ("calls", f"{ledger['calls']:,}"),
        ("tokens", f"{ledger['tokens']:,}"),
        ("lessons in the library", str(len(tfgrpo["library"]))),
        ("operations stored", str(tfgrpo["experiences_written"])),
        ("evidence lost", f"{lost} of {everything}" if everything else "–"),
    ]


def _training_curve(groups: Sequence[Mapping[str, Any]]) -> Curve | None:
    batches: dict[tuple[int, int], list[float]] = {}
    for group in groups:
        if group["phase"] == "train" and group["mean_reward"] is not None:
            batches.setdefault((group["epoch"], group["batch"]), []).append(group["mean_reward"])
    means = [
        (
            f"epoch {epoch}, batch {batch + 1}: {sum(values) / len(values):.3f} over {len(values)} groups",
            sum(values) / len(values),
        )
        for (epoch, batch), values in sorted(batches.items())
    ]
    return curve(means) if means else None


def _lessons(records: Sequence[Mapping[str, Any]], run: RunPaths) -> list[dict[str, Any]]:
    wanted = {name for record in records for name in record["evidence"][:_EVIDENCE_SHOWN]}
    attempts = {
        row["rollout_id"]: {
            "id": row["rollout_id"],
            "reward": _cell(row["outcome"].get("reward")),
            "output": row["output"],
        }
        for row in _lines(run.rollouts)
        if row["rollout_id"] in wanted
    }
    return [
        {
            "id": record["experience_id"],
            "polarity": record["polarity"],
            "text": record["summary32"],
            "operation": record["operation"],
            "epoch": record["epoch"],
            "run_id": record["run_id"],
            "support": len({name.rpartition("/")[0] for name in record["evidence"]}),
            "reward": _cell(record["reward"]["gt_score"]),
            "rank": _cell(record["reward"]["relative_rank"]),
            "supersedes": record["supersedes"],
            "evidence": [attempts[name] for name in record["evidence"][:_EVIDENCE_SHOWN] if name in attempts],
            "hidden": max(0, len(record["evidence"]) - _EVIDENCE_SHOWN),
        }
        for record in records
    ]


def _tool(row: Mapping[str, Any]) -> dict[str, str]:
    cost = "unknown" if row["cost_usd"] is None else f"${row['cost_usd']:.4f}"
    return {
        **{name: str(row[name]) for name in ("tool", "calls", "errors", "tokens")},
        "cost": cost,
        "latency": f"{row['latency_ms'] / 1000:.1f} s",
    }


def _flips(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    means: dict[str, dict[str, float]] = {}
    for group in groups:
        if group["phase"] == "eval" and group["mean_reward"] is not None:
            means.setdefault(group["item_id"], {})[group["arm"]] = group["mean_reward"]
    pairs = [(item, arms["champion"], arms["candidate"]) for item, arms in means.items() if len(arms) == 2]
    changed = sorted(
        (pair for pair in pairs if pair[1] != pair[2]), key=lambda pair: (-abs(pair[2] - pair[1]), pair[0])
    )
    return [
        {"item": item, "before": _cell(before), "after": _cell(after)} for item, before, after in changed[:_FLIPS_SHOWN]
    ]


def _settings(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (row["key"], json.dumps(row["value"], ensure_ascii=False), row["source"]) for row in manifest["settings_table"]
    ]


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
