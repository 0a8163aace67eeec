"""Memory and speed of exporting a run of 100,000 recorded attempts.

The files of a finished run are written by hand, eight attempts to a group, and exported by ``tfgrpo export`` in a process
of its own, which is measured from outside.

``python -m benchmarks export``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT
from benchmarks.table import Row
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import LineFile

GROUP_SIZE, BATCH = 8, 64
SMALL, LARGE = 1_000, 100_000
_CLI = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"
_MIB = 2**20
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_STAMP = "ab" * 32
_WORDS = "Take the discount off first, then add the tax on what is left, and keep every digit until the end. " * 4


def write_run(out: Path, rollouts: int, *, run_id: str = "bench", group_size: int = GROUP_SIZE) -> RunPaths:
    """The files of a run with so many attempts, as a run of the plain chat actor leaves them."""
    run = TaskPaths.of(out, "bench").run(run_id)
    run.root.mkdir(parents=True)
    run.manifest.write_text(json.dumps(_manifest(run_id)), encoding="utf-8")
    groups = range(rollouts // group_size)
    _write(run.items, ({"item_id": f"q{group}", **_ITEM, "prompt": f"Question {group}: {_WORDS}"} for group in groups))
    _write(run.prompts, (_prompt(batch) for batch in range(len(groups) // BATCH + 1)))
    _write(run.groups, (_group(run_id, group, group_size) for group in groups))
    _write(run.rollouts, (_rollout(run_id, group, index) for group in groups for index in range(group_size)))
    _write(run.journal, (_reply(group, index) for group in groups for index in range(group_size)))
    return run


_ITEM = {"answer": "42", "system_prompt": "", "domain": "bench"}


def _manifest(run_id: str) -> dict[str, Any]:
    learning = {"temperature": {"train": 0.7, "eval": 0.3}, "min_spread": 1e-6}
    model = {"send_temperature": True, "max_tokens": 1024, "extra_body": {}}
    return {
        "schema_version": 1,
        "run_id": run_id,
        "task_id": "bench",
        "status": "finished",
        "simulated": True,
        "model": "simulated",
        "pack": {"id": "bench", "domain": "bench", "stamp": _STAMP},
        "settings": {"tfgrpo": learning, "model": model, "actor": {"kind": "chat"}},
        "tools": [],
    }


def _prompt(batch: int) -> dict[str, Any]:
    stamped = {"pack_id": "bench", "stamp": _STAMP, "experience_ids": []}
    return {"digest": f"prompt-{batch}", **stamped, "library_id": f"{batch:016x}", "system": f"Batch {batch}. {_WORDS}"}


def _group(run_id: str, group: int, size: int) -> dict[str, Any]:
    name = f"{run_id}:e1:train:{group:05d}"
    place = {"epoch": 1, "phase": "train", "arm": "train", "batch": group // BATCH, "draw": 0}
    return {"group_id": name, "item_id": f"q{group}", **place, "rollouts": [f"{name}/{index}" for index in range(size)]}


def _rollout(run_id: str, group: int, index: int) -> dict[str, Any]:
    name = f"{run_id}:e1:train:{group:05d}"
    reward = float((group + index) % 4 == 0)
    score = {"rewarder_id": "gt", "score": reward, "evidence": "numeric: as the reference", "details": None}
    return {
        "rollout_id": f"{name}/{index}",
        "group_id": name,
        "item_id": f"q{group}",
        "index": index,
        "epoch": 1,
        "phase": "train",
        "arm": "train",
        "seed": index,
        "finish_reason": "stop",
        "tools": [],
        "outcome": {"name": "scored", "reward": reward, "scores": [score]},
        "scores": [score],
        "advantage": 0.0,
        "relative_rank": 0.5,
        "summary": "1 model turn.",
        "output": _answer(group, index),
        "calls": 1,
        "prompt_tokens": 400,
        "completion_tokens": 60,
        "cost_usd": 0.0001,
        "latency_s": 0.5,
        "prompt_digest": f"prompt-{group // BATCH}",
    }


def _reply(group: int, index: int) -> dict[str, Any]:
    key = f"1/train/{group // BATCH}/q{group}/{index}/0/rollout/0#0123456789abcdef"
    payload = {
        "content": _answer(group, index),
        "finish_reason": "stop",
        "usage": [400, 60, 0, 0],
        "latency_s": 0.5,
        "cost_usd": 0.0001,
        "model": "simulated",
        "response_id": f"r{group}-{index}",
        "attempts": 1,
    }
    return {"schema": 1, "key": key, "kind": "reply", "at": "2026-01-01T00:00:00+00:00", "payload": payload}


def _answer(group: int, index: int) -> str:
    return f"Attempt {index} at {group}: {_WORDS}Answer: {group + index}"


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    file = LineFile(path)
    while group := list(islice(rows, BATCH)):
        file.append(group)


def measured_export(out: Path, target: str) -> tuple[float, float]:
    """Seconds and peak megabytes of one export in a process of its own."""
    command = [sys.executable, "-c", _CLI, "export", "bench", "--out", str(out), "--to", target, "--json"]
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"the export ended with {process.returncode}: {errors.read()[-2000:]}")
    return seconds, usage.ru_maxrss * _RSS_UNIT / _MIB


def measure(small: int = SMALL, large: int = LARGE, targets: tuple[str, ...] = ("trl-grpo", "trl-dpo")) -> list[Row]:
    """Write both runs, export each."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder / "small", small)
        write_run(folder / "large", large)
        for target in targets:
            _, few = measured_export(folder / "small", target)
            seconds, many = measured_export(folder / "large", target)
            rows += [
                Row(f"export {target}: peak at {large:,} attempts", many, "MB", 200.0),
                Row(f"export {target}: memory per attempt", (many - few) * 1024 / (large - small), "KB", 1.0),
                Row(f"export {target}: speed", large / seconds, "attempts/s"),
            ]
    return rows
