"""Show a run on its page in Prefect: the artifact ``night``, kept up to date, one bar of progress, a name and tags.

Each write is one API call that takes as long as the server likes, so they happen in a separate thread, per tenth of an
epoch, per epoch and per run; a newer one takes the place of one that waits. One that cannot be written is logged, and the run
continues: the files under ``out`` are the record. The last ones are tried again for as long as ``wait`` has patience.
"""

from __future__ import annotations

import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import UUID

import httpx
from jinja2 import Environment, PackageLoader, Template
from prefect.artifacts import create_markdown_artifact, create_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.runtime import flow_run

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import decimal
from tfgrpo.flows.console.observer import EpochEnd, EpochStart, Observer
from tfgrpo.flows.orchestration.deployed import current_run
from tfgrpo.flows.orchestration.local_server import error_line
from tfgrpo.flows.orchestration.request import RunSummary, resume_command
from tfgrpo.flows.run.lessons import effect_text
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import TfgrpoError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult

_T = TypeVar("_T")
_STEPS = 10
_COLUMNS: Final = ("epoch", "phase", "mean reward", "scored", "lost", "informative", "lessons")
_GO_ON: Final = (
    "Retry resumes a run of a deployment; no answered call is sent again. One that stopped at a cap, or where nothing was "
    "right, goes on by a flow run with this run as resume, and a higher cap or allow_zero"
)
_WARNINGS: Final = 20
_AGAIN_S: Final = 2.0
_log = logging.getLogger("tfgrpo.artifacts")


class PrefectArtifacts(Observer):
    """An observer that writes artifacts of the current flow run."""

    def __init__(self, patience_s: float = 10.0) -> None:
        """``patience_s``: how long the end of the flow waits for a slow server."""
        self._patience_s = patience_s
        # Their daemon threads do not keep the process from ending when a server hangs.
        self._threads = RewarderThreads(1)
        self._last: Future[None] | None = None
        self._complaint = logging.WARNING
        self._turn = Lock()
        self._waiting: dict[str, Callable[[], None]] = {}
        """The newest of each key that is not written yet."""
        self._faults: dict[str, str] = {}
        """Why the last try failed, by key."""
        self._again = False
        """Whether the server may take at the next try what it did not take at the last."""
        self._written: dict[str, UUID] = {}
        self._start: EpochStart | None = None
        self._groups = 0
        self._run_id: str | None = None
        self._details: Mapping[str, Any] = {}
        self._name, self._tags = "", list[str]()

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """Name the flow run, and show which run it is and how to go on with it should it be killed."""
        self._run_id = run_id
        self._name = f"{plan.settings.task_id} night {(plan.settings.tfgrpo.night or 0) + 1}"
        self._label(plan.settings.task_id, *(["simulated"] if plan.simulated else []))
        self._details = {
            "task_id": plan.settings.task_id,
            "simulated": plan.simulated,
            "run": str(plan.paths.run(run_id).root),
            "resume with": f"--resume {run_id}",
            "warnings": list(warnings),
        }
        self._show("running", str(plan.forecast))

    def waiting(self, what: str) -> None:
        """Show what the run waits for."""
        self._show("running", what)

    def epoch_started(self, start: EpochStart) -> None:
        """Move the bar to the beginning of the epoch."""
        self._start, self._groups = start, 0
        self._move(start)

    def group_done(self, result: GroupResult, totals: Totals) -> None:  # noqa: ARG002 - the protocol's signature
        """Move the bar at every tenth of the epoch."""
        start = self._start
        if start is None:
            return
        before = self._groups * _STEPS // max(start.groups, 1)
        self._groups += 1
        if self._groups * _STEPS // max(start.groups, 1) > before:
            self._move(start)

    def epoch_ended(self, end: EpochEnd) -> None:
        """Show the rewards so far."""
        self._details = {**self._details, "epochs": [*self._details.get("epochs", ()), asdict(end)]}
        self._show("running", f"epoch {end.epoch} is done")

    def finish(self, summary: RunSummary) -> None:
        """Show how the run ended."""
        self._run_id, self._details = summary.run_id, summary.details
        self._show(summary.status, summary.message)
        if summary.run_id != flow_run.id:
            self.resumed(summary)
        if summary.status != "refused":  # also a night without a sweep, or one that stopped
            self._show_progress(100.0)
        if decision := summary.details.get("decision"):
            self._label(decision["decision"])

    def resumed(self, ended: RunSummary) -> None:
        """Show the end on the page of the flow run that the run began with, which is dead."""
        with suppress(ValueError, TypeError):  # begun by a command
            begun_by = UUID(ended.run_id)
            page = partial(night_page, ended.status, ended.message, ended.run_id, ended.details)
            self._write(f"night of {begun_by}", page, partial(_replace, begun_by, "night"))
            self._write(f"progress of {begun_by}", lambda: 100.0, partial(_replace, begun_by, "progress"))

    def _label(self, *tags: str) -> None:
        self._tags += tags
        self._write("name", lambda: self._name or None, partial(update_flow_run, self._tags))

    def _show(self, status: str, message: str) -> None:
        page = partial(night_page, status, message, self._run_id, self._details)
        about = "How the run went, and how to go on"
        self._write("night", page, partial(create_markdown_artifact, key="night", description=about))

    def _move(self, start: EpochStart) -> None:
        whole = start.epoch - 1 + self._groups / max(start.groups, 1)
        self._show_progress(min(100.0, 100.0 * whole / max(start.epochs, 1)))

    def _show_progress(self, done: float) -> None:
        create = partial(create_progress_artifact, key="progress", description="Groups of all epochs")
        self._write("progress", lambda: done, create)

    def wait(self) -> str | None:
        """Wait until everything is written, within a limit, and return what is not written and why.

        The run itself never waits.
        """
        until = time.monotonic() + self._patience_s
        with suppress(TimeoutError):
            while self._last is not None:
                self._last.result(max(0.0, until - time.monotonic()))
                if not self._again or time.monotonic() + _AGAIN_S > until:
                    break
                time.sleep(_AGAIN_S)
                self._submit()
        self._threads.shutdown()
        late = f"no reply within {self._patience_s:g} s"
        why = "; ".join(f"{key} ({self._faults.get(key, late)})" for key in [*self._waiting])
        return f"Prefect did not take the last of this run's page: {why}" if why else None

    def _write(self, key: str, content: Callable[[], _T], create: Callable[[_T], object]) -> None:
        with self._turn:
            self._waiting[key] = partial(self._attempt, key, content, create)
        self._submit()

    def _submit(self) -> None:
        if self._last is not None:
            self._last.cancel()  # if it has not begun: the next one writes everything
        # In the context of the flow run, from which Prefect takes whose artifact it is.
        self._last = self._threads.submit(copy_context().run, self._write_waiting)

    def _write_waiting(self) -> None:
        self._again = False
        for key, write in [*self._waiting.items()]:
            try:
                write()
                with self._turn:
                    if self._waiting.get(key) is write:
                        del self._waiting[key]
            except Exception as error:  # noqa: BLE001 - whatever breaks between here and the server, the run goes on
                self._faults[key] = error_line(error)
                self._again |= isinstance(error, httpx.HTTPError)
                # A server that is gone takes none of them: the first says so.
                level, self._complaint = self._complaint, logging.DEBUG
                _log.log(level, "an artifact could not be written: %s", error_line(error))

    def _attempt(self, key: str, content: Callable[[], _T], create: Callable[[_T], object]) -> None:
        known = self._written.get(key) or _of_earlier_try(key)
        if known is not None:
            update_artifact(known, content())
        elif isinstance(created := create(content()), UUID):
            known = created
        if known is not None:
            self._written[key] = known


def update_flow_run(tags: Sequence[str], name: str | None) -> None:
    """Name the current flow run in place of Prefect's random name, and add tags to those that it began with."""
    # Not by ``flow_run_name``, for which Prefect knows the parameters alone: task and night follow from file and store.
    if (run := current_run()) is not None:
        with get_client(sync_client=True) as client:
            client.update_flow_run(run.id, name=name, tags=[*{*run.tags, *tags}])


def warn_run(summary: RunSummary, warning: str) -> None:
    """Add a warning to the manifest of a run that has ended, if there is one."""
    if "run" in summary.details:
        with suppress(TfgrpoError, OSError):
            ManifestFile(RunPaths(Path(summary.details["run"])).manifest).warn(warning, lasting=True)


def update_artifact(artifact: UUID, content: object) -> None:
    """Replace the text of a Markdown artifact, or the percentage of a bar of progress."""
    with get_client(sync_client=True) as client:
        client.update_artifact(artifact, ArtifactUpdate(data=content))


def _of_earlier_try(key: str) -> UUID | None:
    """The artifact that an earlier try of this flow run wrote; a retry updates it."""
    run = current_run()
    return None if run is None or run.run_count < 2 else _artifact_of(run.id, key)


def _artifact_of(run: UUID, key: str) -> UUID | None:
    ours = ArtifactFilter(key=ArtifactFilterKey(any_=[key]), flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    with get_client(sync_client=True) as client:
        return next((found.id for found in client.read_artifacts(artifact_filter=ours, limit=1)), None)


def _replace(run: UUID, key: str, content: object) -> None:
    known = _artifact_of(run, key)
    if known is not None:
        update_artifact(known, content)


_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#!~&]|:(?=//))")


def night_page(status: str, message: str, run_id: str | None, details: Mapping[str, Any]) -> str:
    """Return the page of a run as it is now, in Markdown. ``status`` is that of its summary, or ``running``.

    Lessons, warnings and messages may contain a model's words: they are shown as text, never as Markdown or HTML.
    """
    return _template().render(
        status=status,
        message=message,
        details=details,
        morning=details.get("morning"),
        facts=list(_facts(run_id, details)),
        columns=_COLUMNS,
        epochs=[[epoch[name.replace(" ", "_")] for name in _COLUMNS] for epoch in details.get("epochs", ())],
        before_after=_before_after(details),
        lessons=list(map(_lesson, details.get("lessons", ()))),
    )


def _facts(run_id: str | None, details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the morning page, before the end what names the run; then where its files are and how to go on with it."""
    morning, command = details.get("morning"), resume_command(details)
    if morning:
        yield from ((line["label"], line["text"]) for line in morning["lines"] if line["label"] != "report")
    else:
        warnings = (("warning", text) for text in details.get("warnings", ())[:_WARNINGS])
        named = (("run", run_id), ("task", details.get("task_id")), ("resume", command), *warnings)
        yield from ((label, text) for label, text in named if text)
    for label, name in (("directory", "run"), ("report", "report")):
        if details.get(name):
            yield label, str(Path(details[name]).absolute())
    if command:
        yield "go on", _GO_ON


def _before_after(details: Mapping[str, Any]) -> list[tuple[str, float]]:
    rewards = (details.get("decision") or {}).get("rewards") or {}
    sides = (("without lessons", rewards.get("none")), ("with lessons", rewards.get("library")))
    return [(label, side["mean"]) for label, side in sides if side] if all(side for _, side in sides) else []


def _lesson(lesson: Mapping[str, Any]) -> str:
    effect, groups = effect_text(lesson["effect"]), f"{lesson['groups_for']} for, {lesson['groups_against']} against"
    known = f"{lesson['state']}; {effect}; groups: {groups}; {pluralize(lesson['tokens'], 'token')}"
    return f"{lesson['polarity']}: {lesson['text']} ({lesson['id']}; {known})"


@cache
def _template() -> Template:
    # Markdown, not HTML: the filter ``text`` escapes it.
    environment = Environment(loader=PackageLoader("tfgrpo.flows"), trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    environment.filters |= {
        "text": lambda value: _SPECIAL.sub(r"\\\1", visible(" ".join(str(value).split()))),
        "figure": lambda value: str(value) if isinstance(value, str | int) else decimal(value),
        "base64": lambda text: b64encode(text.strip().encode()).decode(),
    }
    return environment.get_template("night.md.j2")
