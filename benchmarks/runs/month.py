"""Check what is on record after a month of nights with kills, a cancel, a retry, a dead endpoint and another dataset.

Thirty nights as a deployment asks for them, each with the id of a flow run, against the simulated model over HTTP. Killed
nights are processes that get SIGKILL; the others run here. One is a command on a Prefect server that ends in the middle and
starts again; the others do without Prefect, which would take half a minute each, and a cancel is Prefect's own signal, raised
between two groups. A real server with a real worker is in ``tests/flows/orchestration/test_left_alone.py``.

``python -m benchmarks month``
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

from prefect.exceptions import TerminationSignal

from benchmarks.processes import ROOT, clean_environment, free_port, prefect_server
from benchmarks.table import Row
from tests.support.runs.running import TASK, Server, finish, lines, paths, request, run, start
from tests.support.runs.webhook import Webhook
from tfgrpo.flows.console.observer import Observer
from tfgrpo.flows.report.night import history_of
from tfgrpo.flows.run.index import runs_of
from tfgrpo.pipelines.datasets.datasets import shipped_dataset
from tfgrpo.stores.files.layout import TaskPaths

MONTH: Final = {7: "killed", 11: "cancelled", 13: "dataset", 15: "killed", 19: "retried", 22: "dead", 26: "restart"}
"""What happens in which of thirty nights."""
_ENDS: Final = {"dead": "failed", "retried": "failed", "cancelled": "stopped"}
"""How a night ends at first; the others finish."""
IN_FLIGHT: Final = 16
_SMALL: Final = {"sample_size": 10, "batch_size": 5, "tfgrpo__concurrency": IN_FLIGHT}
_HOOK: Final = "MONTH_OF_NIGHTS_WEBHOOK"
_NIGHT: Final = """
import json, sys
from pathlib import Path
from tests.support.runs.running import run
run(Path(sys.argv[1]), **json.loads(sys.argv[2]))
"""
"""A night in a process of its own."""


@dataclass
class Record:
    """What is on record after the nights, and what is wrong with it."""

    nights: int = 0
    seconds: float = 0.0
    calls: int = 0
    unlisted: list[str] = field(default_factory=list)
    """Nights that the history or the list of runs lacks, or that have no number of their own."""
    paid_twice: int = 0
    """Answered calls beyond the journalled ones and those in flight when a process was killed."""
    untold: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Ends that the webhook got more or less than once."""
    unbooked: int = 0
    """Calls that the ledgers lack or have too much, killed nights aside."""


class _Cancel(Observer):
    """Prefect's signal for a cancelled run, after some groups."""

    def __init__(self, groups: int) -> None:
        self._left = groups

    def group_done(self, *_: Any) -> None:
        """Raise the signal when the last of them has ended."""
        self._left -= 1
        if not self._left:
            raise TerminationSignal(signal=signal.SIGTERM)


def nights(folder: Path, count: int, events: Mapping[int, str]) -> Record:
    """Run so many nights of a task in ``folder / "out"``, and return what is on record."""
    out, found, ends = folder / "out", Record(nights=count), Counter[tuple[str, str]]()
    lost, names = 0, [str(uuid4()) for _ in range(count)]
    items, less = Path(str(shipped_dataset("arithmetic"))), folder / "less.jsonl"
    less.write_text("".join(items.read_text(encoding="utf-8").splitlines(keepends=True)[40:]), encoding="utf-8")
    began = time.monotonic()
    with Server() as server, Webhook() as hook, patch.dict(os.environ, {_HOOK: hook.url}):
        dataset = items
        told = ["finished", "stopped", "failed", "in force", "taken back", "saturated"]
        for number, name in enumerate(names, start=1):
            event = events.get(number)
            dataset = less if event == "dataset" else dataset
            asked: dict[str, Any] = {"run_id": name, "flow_run_id": name, "model": "simulated", "base_url": server.url}
            asked |= {"dataset": str(dataset), "notify__url": f"env:{_HOOK}", "notify__on": told, **_SMALL}
            if event in {"killed", "restart"}:
                lost += IN_FLIGHT * (event == "killed")
                (_killed if event == "killed" else _restarted)(folder, server, asked)
                ends[name, "finished"] += 1  # of a killed one when the next night goes on with it
                continue
            if event == "dead":
                asked |= {"base_url": f"http://127.0.0.1:{free_port()}/v1", "model__wait_s": 1}
            if event == "retried":
                server.before_answer = partial(_broken, len(server.bodies) + 20)
                asked |= {"model__max_retries": 0}
            run(out, observer=_Cancel(12) if event == "cancelled" else None, **asked)
            ends[name, _ENDS.get(event or "", "finished")] += 1
            if event == "cancelled":
                lost += IN_FLIGHT
            if event == "retried":
                server.before_answer = lambda _: None
                run(out, **asked)
                ends[name, "finished"] += 1
        answered = len(server.bodies) - server.answered[500]
        bodies = Counter((body["run_id"], body["status"]) for body in hook.bodies)
    found.seconds, found.calls = time.monotonic() - began, len(server.bodies)
    _checked(out, names, events, found)
    journalled = sum(_replies(out, name) for name in names)
    found.paid_twice += max(0, answered - journalled - lost)
    found.untold = Counter({end: bodies[end] - ends[end] for end in ends | bodies if bodies[end] != ends[end]})
    return found


def _broken(after: int, call: int) -> int | None:
    return 500 if call > after else None


def _checked(out: Path, names: Sequence[str], events: Mapping[int, str], found: Record) -> None:
    task = TaskPaths.of(out, TASK)
    entries, history = {each.run_id: each for each in runs_of(task)}, {each.run_id for each in history_of(task)}
    numbers = [entries[name].night for name in names if name in entries]
    for number, name in enumerate(names, start=1):
        entry = entries.get(name)
        whole = entry is not None and name in history and entry.state in {"finished", "stopped", "failed"}
        if entry is None or not whole or entry.night != number or entry.ended_at is None or entry.ledger is None:
            found.unlisted.append(f"night {number}, {events.get(number)}: {entry}")
            continue
        keys = Counter(row["key"] for row in lines(paths(out, name).journal) if row["kind"] == "reply")
        found.paid_twice += keys.total() - len(keys)
        if events.get(number) is None:
            found.unbooked += abs(entry.ledger.calls - len(keys))
    if len({*numbers}) < len(numbers):
        found.unlisted.append(f"two nights have one number: {numbers}")


def _replies(out: Path, name: str) -> int:
    return sum(row["kind"] == "reply" and "/tool/" not in row["key"] for row in lines(paths(out, name).journal))


def _killed(folder: Path, server: Server, asked: Mapping[str, Any]) -> None:
    """Run a night in a process that gets SIGKILL in the middle."""
    before = len(server.bodies)
    process = subprocess.Popen(
        [sys.executable, "-c", _NIGHT, str(folder / "out"), json.dumps(asked)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    server.wait_for(before + 40)
    process.kill()
    process.wait()
    server.wait_until_idle(0.2)


def _restarted(folder: Path, server: Server, asked: Mapping[str, Any]) -> None:
    """Run a night as a command on a Prefect server that is killed in the middle, and started again."""
    environment = clean_environment(folder / "prefect", OPENAI_API_KEY="unused", **{_HOOK: os.environ[_HOOK]})
    out = folder / "out"
    with ExitStack() as running:
        environment["PREFECT_API_URL"] = running.enter_context(prefect_server(environment))
        options = ["--run-id", asked["run_id"], "--model", "simulated", "--base-url", server.url]
        for key, value in request(out, **{**asked, "run_id": None}).settings.items():
            text = json.dumps(value) if isinstance(value, list) else value
            options += ["--set", f"{key}={text}"] if key not in {"out", "model.name", "model.base_url"} else []
        before = len(server.bodies)
        process = start(out, *options, env=environment)
        server.wait_for(before + 40)
        running.close()
        with prefect_server(environment, int(environment["PREFECT_API_URL"].rpartition(":")[2].partition("/")[0])):
            finish(process)


def measure() -> list[Row]:
    """Run the month and return what is wrong with its record: each bar is none."""
    with tempfile.TemporaryDirectory() as folder:
        found = nights(Path(folder), 30, MONTH)
    ends = sum(map(abs, found.untold.values()))
    rows = (
        ("nights missing from the history", len(found.unlisted), "; ".join(found.unlisted)),
        ("calls paid for twice", found.paid_twice, f"of {found.calls:,}"),
        ("calls missing from a ledger", found.unbooked, ""),
        ("ends not told exactly once", ends, f"to the webhook; {dict(found.untold) or ''}"),
    )
    note = f"{found.nights} nights of {found.calls // found.nights} calls"
    bars = [Row(f"month: {name}", wrong, "", 0.0, said) for name, wrong, said in rows]
    return [*bars, Row("month: a night", found.seconds / found.nights, "s", note=note)]
