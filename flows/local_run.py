"""How is a run done in this process? On the Prefect server that is named, or on one of its own; its end is a summary."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import numpy.ma  # noqa: F401 - numpy's percentiles import it at first use: between two epochs, while the model waits
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import refresh_global_settings_context
from prefect.settings import Settings, get_current_settings

from flows.learning_flow import tfgrpo_learning
from flows.local_server import API_URL, LocalServer, wanted
from flows.request import RunRequest
from flows.stops import RunSummary
from stores.errors import FlowFailed, PrefectUnavailable, SettingsError

_LOGIN: Final = re.compile(r"//[^/@\s]*@")
"""Name and password in an address, which are nobody's business."""


def run_locally(request: RunRequest, server: LocalServer | None = None) -> RunSummary:
    """Run the flow in this process, on the server that Prefect's settings name, or else on the one that is starting.

    Raises ``SettingsError`` when no server answers where one is named, or none may be started, and
    ``PrefectUnavailable`` when one does not start or does not go along.
    """
    _be_served(get_current_settings(), server)
    try:
        state: State[Any] = tfgrpo_learning(request=request, return_state=True)
    except Exception as error:
        # Nothing of ours: what the flow itself raises is in its state.
        why = _first_line(error)
        raise PrefectUnavailable(f"Prefect failed the run; what it has written is kept: {why}") from error
    data: object = state.result(raise_on_failure=False)
    if isinstance(data, FlowFailed):
        data = dict(data.summary)
    if isinstance(data, dict) and "status" in data:
        rest = {key: value for key, value in data.items() if key not in {"status", "run_id", "message"}}
        return RunSummary(data["status"], data["run_id"], data["message"], rest)
    return RunSummary("failed", None, f"Prefect ended the run: {state.message or state.name}", {})


def _be_served(settings: Settings, server: LocalServer | None) -> None:
    if settings.api.url is not None:
        with get_client(sync_client=True) as client:
            error = client.api_healthcheck()
        if error is not None:
            answer = f"the API of a Prefect server that answers ({_first_line(error)})"
            raise SettingsError.one(API_URL, _LOGIN.sub("//", settings.api.url), answer) from error
    elif not wanted(settings):
        raise SettingsError.one(API_URL, "nothing", "the API of a Prefect server; its settings allow no temporary one")
    elif server is not None:
        server.serve(os.environ, float(settings.server.ephemeral.startup_timeout_seconds))
        refresh_global_settings_context()


def _first_line(error: Exception) -> str:
    said = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {_LOGIN.sub('//', said)}"
