"""Report the end of a run to the webhook of ``notify.url``: one POST with the morning page, as JSON and as text for Slack.

A webhook that fails is a warning of the run. It never ends one, and never changes its exit code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from dataclasses import replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Final

import httpx

from tfgrpo.flows.console.environment import installed_version
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary
from tfgrpo.flows.run.index import new_run_id, record_unbegun
from tfgrpo.flows.run.prepare import earlier_run, task_of_request
from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import ConfigError, TfgrpoError
from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure

_PAUSES_S: Final = (0.5, 2.0)
"""Before the second attempt, and before the third and last."""
_ATTEMPT_S: Final = 3.0
_LIMIT_S: Final = 10.0
"""Longest wait in all: Prefect gives a cancelled run 30 s to close its books."""
_MOST_LINES: Final = 10


def notify(settings: Settings, summary: RunSummary) -> str | None:
    """Report an end that ``notify.on`` names. Return a warning if the webhook did not take it."""
    events = events_of(summary)
    if settings.notify.url is None or not events & {*settings.notify.on}:
        return None
    begun = "" if "run" in summary.details else " before it began"
    lines = (summary.details.get("morning") or {}).get("lines") or [
        {"label": "night", "text": f"{summary.status}{begun} (task {settings.task_id})"},
        *({"label": summary.status, "text": text} for text in summary.message.splitlines()[: _MOST_LINES - 1]),
    ]
    body = {
        # Slack reads <!channel> in a text as an order, and lessons are a model's words.
        "text": escape("\n".join(f"{line['label']}: {line['text']}" for line in lines), quote=False),
        "events": sorted(events),
        "task_id": settings.task_id,
        **{name: summary.as_json()[name] for name in ("run_id", "status", "message")},
        "exit_code": summary.exit_code,
        "simulated": choose_models(settings).simulated,
        "decision": (summary.details.get("decision") or {}).get("decision"),
        "lines": lines,
    }
    variable = settings.notify.url.removeprefix(ENV_VALUE)
    url = os.environ.get(variable, "").strip()
    why = f"{variable} is not set"
    if url:
        try:
            why = RewarderThreads(1).submit(_post, url, body).result(_LIMIT_S)
        except OutOfTime:
            why = f"no answer within {_LIMIT_S:g} s"
    if not why:
        return None
    return f"the end of the run was not reported to the webhook of notify.url ({variable}): {why}"


def events_of(summary: RunSummary) -> set[str]:
    """Return what happened in a run, in the words of ``notify.on``: its status, what became of lessons, saturation."""
    details, events = summary.details, {"failed" if summary.status == "refused" else summary.status}
    page, decision = details.get("morning") or {}, (details.get("decision") or {}).get("decision")
    if decision == "taken back" or (decision == "in force" and (page.get("added") or page.get("removed"))):
        events.add(decision)
    return events | ({"saturated"} if details.get("saturated") else set())


def _post(url: str, body: Mapping[str, Any]) -> str:
    """Post until it is taken, at most three times. Return why it was not; empty when it was. The address is secret."""
    why = ""
    for pause_s in chain((0.0,), _PAUSES_S):
        time.sleep(pause_s)
        try:
            # Streamed: the answer is not read.
            with httpx.Client(timeout=_ATTEMPT_S) as client, client.stream("POST", url, json=body) as reply:
                status = reply.status_code
        except httpx.TransportError as error:
            why = type(error).__name__
            continue
        except Exception as error:  # noqa: BLE001 - an address that is none; whatever it is, the run goes on
            return type(error).__name__
        if status < httpx.codes.MULTIPLE_CHOICES:
            return ""
        why = f"HTTP {status}"
        if status < httpx.codes.INTERNAL_SERVER_ERROR and status != httpx.codes.TOO_MANY_REQUESTS:
            break  # refused: asking again changes nothing
    return why


def report_unbegun(
    request: RunRequest, error: TfgrpoError | OSError, env: Mapping[str, str], *, listed_at: Clock | None = None
) -> RunSummary:
    """Return the summary of a run that ended before it began; count and report it, if its settings can be read.

    With a clock, it is a line of `tfgrpo runs` where its task is known.
    """
    run_id = request.earlier or request.run_id
    if isinstance(error, ConfigError):
        summary = RunSummary.refused(run_id, error)
    else:
        summary = RunSummary("failed", run_id, f"the run could not be opened: {type(error).__name__}: {error}", {})
    if listed_at is not None:
        list_unbegun(request, env, summary, listed_at)
    try:
        asked = request.resolved(env) if request.earlier is None else earlier_run(request, env).resolved
    except (TfgrpoError, OSError):
        return summary
    settings, warnings = asked.settings, list[str | None]()
    with suppress(ConfigError):  # of an endpoint of telemetry, which may be why it was refused
        telemetry = configure(TelemetryOptions(installed_version(), task_id=settings.task_id), os.environ)
        simulated = choose_models(settings).simulated
        telemetry.record("ended", simulated=simulated, run_status=summary.status)
        warnings.append(telemetry.shutdown())
    warnings.append(notify(settings, summary))
    known = [warning for warning in warnings if warning]
    return replace(summary, details={**summary.details, **({"warnings": known} if known else {})})


def list_unbegun(request: RunRequest, env: Mapping[str, str], ended: RunSummary, clock: Clock) -> None:
    """Record a run that did not start, where its task is known."""
    if request.earlier is None:
        with suppress(ValueError):
            run = task_of_request(request, env).run(request.run_id or new_run_id(clock))
            asked = {"flow_run_id": request.flow_run_id, "pipeline": Path(request.pipeline).stem}
            record_unbegun(run, ended.status, ended.message, clock=clock, **asked)
