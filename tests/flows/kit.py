"""Runs without Prefect, servers that count, and readers of what a run wrote: helpers of the tests of the flow."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from flows.execution import execute
from flows.observer import Observers
from flows.request import RunRequest
from flows.session import RunGroups
from flows.stops import RunSummary
from stores.clock import utc_now
from stores.layout import RunPaths, TaskPaths
from tasks.context import RunContext
from tasks.group import run_group
from tasks.host import runtime_for
from tasks.shapes import GroupResult, GroupSpec

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@contextmanager
def in_process(_name: str) -> Iterator[RunGroups]:
    """Groups straight on the runtime of this process, yielded as they come back."""

    def run_groups(context: RunContext, specs: Sequence[GroupSpec]) -> Iterator[GroupResult]:
        host = runtime_for(context)
        futures = [host.submit(partial(run_group, spec)) for spec in specs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()

    yield run_groups


def run(out: Path, *, env: dict[str, str] | None = None, runner: Any = in_process, observer: Any = None, **asked: Any) -> RunSummary:
    """One run without Prefect; ``asked`` are fields of the request, dotted keys go into ``settings``."""
    return execute(request(out, **asked), env or {}, observer or Observers(), runner, clock=utc_now)


def request(out: Path, **asked: Any) -> RunRequest:
    fields = set(RunRequest.model_fields)
    plain = {key: value for key, value in asked.items() if key in fields}
    dotted = {key.replace("__", "."): value for key, value in asked.items() if key not in fields}
    return RunRequest(out=str(out), settings=dotted, **plain)
