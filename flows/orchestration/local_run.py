"""Run in this process, registered with the Prefect server that is named or with a temporary one.

The run happens in the caller's thread and Prefect's flow run in another, so that no end of a run waits for a reply
of Prefect's: summary and exit code come from the run, and Prefect is informed afterwards, within a limit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextvars import Context, copy_context
from functools import partial
from threading import Event
from typing import Any, Final

import numpy.ma  # noqa: F401 - numpy's percentiles import it at first use: between two epochs, while the model waits
from prefect.context import refresh_global_settings_context
from prefect.settings import Settings, get_current_settings

from tfgrpo.flows.console.environment import API_URL
from tfgrpo.flows.console.observer import Observer, Observers, Screen
from tfgrpo.flows.learning_flow import RUN_BODY, mapped_groups, tfgrpo_learning
from tfgrpo.flows.orchestration.artifacts import warn_run
from tfgrpo.flows.orchestration.deployed import is_refusal, why_silent
from tfgrpo.flows.orchestration.local_server import LocalServer, error_line, in_background, wanted, without_login
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, Status
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.index import new_run_id, record_unbegun
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import PrefectUnavailable, SettingsError

_ANSWER_S: Final = 20.0
"""Seconds that a named server gets to answer at all."""
_BEGIN_S: Final = 60.0
"""Seconds to register the flow run; a server on a busy machine with SQLite needs many."""
_END_S: Final = 15.0
"""Seconds to take the end of the run and what is left of its artifacts."""
_UNSEEN_S: Final = 3.0
"""Longest wait without a line on the screen."""
_REPETITIVE: Final = ("prefect.events.clients", "EventsWorker")
"""Loggers that complain of a lost server once for every event; Prefect's environment has no level for them."""


def run_locally(
    prepared: Prepared, screen: Screen, server: LocalServer | None = None, *, stop: Event | None = None
) -> RunSummary:
    """Run here until ``stop``, on the server that Prefect's settings name, or else on the one that is starting.

    Raises ``SettingsError`` when the server that is named refuses, or none may be started, and ``PrefectUnavailable`` when
    one does not answer, start or register the run.
    """
    for name in _REPETITIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        _find_server(get_current_settings(), server, screen.say)
        flow_run = _FlowRun(prepared.request)
        context, artifacts = flow_run.begin()
    except PrefectUnavailable as error:
        if prepared.request.earlier is None:
            run = prepared.plan.paths.run(prepared.request.run_id or new_run_id(utc_now))
            about = {"pipeline": prepared.plan.settings.pipeline, "simulated": prepared.plan.simulated}
            record_unbegun(run, "failed", str(error), clock=utc_now, **about)
        raise
    observers = Observers(screen.progress, artifacts)
    runner = partial(mapped_groups, stop=stop)
    summary = flow_run.summary_of(partial(context.run, execute, prepared, os.environ, observers, runner, clock=utc_now))
    try:
        screen.ended(summary)
    finally:
        why = flow_run.end(screen.say)
        if why is not None:
            warning = f"Prefect was not informed of the end of the run: {why}"
            screen.say(f"warning: {warning}; the record of the run is complete")
            warn_run(summary, warning)
    return summary


class _FlowRun:
    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._begun: Future[tuple[Context, Observer]] = Future()
        self._summary: Future[RunSummary] = Future()
        self._ended = in_background(self._serve)

    def begin(self) -> tuple[Context, Observer]:
        """Wait until Prefect has registered the flow run. Raise ``PrefectUnavailable`` if it does not."""
        either: tuple[Future[Any], Future[Any]] = (self._begun, self._ended)
        wait(either, _BEGIN_S, return_when=FIRST_COMPLETED)
        if self._begun.done():
            return self._begun.result()
        if not self._ended.done():
            raise PrefectUnavailable(f"Prefect did not register the run within {_BEGIN_S:g} s")
        error = self._ended.exception()
        why = f"it ended in state {self._ended.result()!r}" if error is None else error_line(error)
        raise PrefectUnavailable(f"Prefect did not register the run: {why}")

    def summary_of(self, run: Callable[[], RunSummary]) -> RunSummary:
        try:
            summary = run()
        except BaseException as error:  # also an interrupt: Prefect's thread waits for a summary
            status: Status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            self._summary.set_result(RunSummary(status, None, f"ended by {type(error).__name__}", {}))
            raise
        self._summary.set_result(summary)
        return summary

    def end(self, say: Callable[[str], object]) -> str | None:
        """Wait, within a limit, until Prefect has taken the end of the run; otherwise say why it has not."""
        try:
            if not wait((self._ended,), _UNSEEN_S).done:
                say(f"waiting for Prefect to take the end of the run, at most {_END_S:g} s …")
                wait((self._ended,), _END_S)
        except KeyboardInterrupt:
            return "interrupted"
        if not self._ended.done():
            return f"no reply within {_END_S:g} s"
        error = self._ended.exception()
        return None if error is None else error_line(error)

    def _serve(self) -> object:
        RUN_BODY.set(self._body)
        return tfgrpo_learning(request=self._request, return_state=True)

    def _body(self, _request: RunRequest, artifacts: Observer) -> RunSummary:
        if not self._begun.done():  # Prefect may call the flow again
            self._begun.set_result((copy_context(), artifacts))
        return self._summary.result()


def _find_server(settings: Settings, server: LocalServer | None, say: Callable[[str], object]) -> None:
    if settings.api.url is not None:
        address = without_login(settings.api.url)
        say(f"connecting to Prefect at {address}, at most {_ANSWER_S:g} s …")
        why = why_silent(_ANSWER_S)
        if why is not None and is_refusal(why):
            raise SettingsError.one(API_URL, address, f"the API of a Prefect server that answers ({error_line(why)})")
        if why is not None:
            raise PrefectUnavailable(f"Prefect's server at {address}, of {API_URL}, does not answer: {error_line(why)}")
    elif not wanted(settings):
        raise SettingsError.one(API_URL, "nothing", "the API of a Prefect server; its settings allow no temporary one")
    elif server is not None:
        server.serve(os.environ, float(settings.server.ephemeral.startup_timeout_seconds))
        refresh_global_settings_context()
