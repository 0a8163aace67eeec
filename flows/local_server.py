"""Which Prefect server does a run use on a machine that has none? One in a process of its own, for as long as ours lives.

Prefect would start the same server by itself, but imports all of it into our process first: seconds, and 60 MB.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

import httpx
import prefect
from prefect.context import refresh_global_settings_context
from prefect.settings import Settings, get_current_settings

from stores.errors import RunAborted

_HOST: Final = "127.0.0.1"
_API_URL: Final = "PREFECT_API_URL"
_STOPPING_S: Final = 5.0
_POLL_S: Final = 0.05
_MANNER: Final = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""How Prefect tells its own temporary server that it is one: no UI, and only the services that record runs."""


def serve_locally(environment: MutableMapping[str, str]) -> None:
    """Start a server and name it in the environment, which is this process's; both stay until the process ends.

    Nothing happens where an address is set, in the environment or in Prefect's profile, or where Prefect's settings
    allow no temporary server. Raises ``RunAborted`` when the server ends or does not answer in time.
    """
    settings = get_current_settings()
    if settings.api.url is not None or not settings.server.ephemeral.enabled:
        return
    server = LocalServer(environment, settings)
    # Prefect's own farewells are registered later and called earlier: they tell the server of the last events.
    atexit.register(server.stop)
    server.wait(float(settings.server.ephemeral.startup_timeout_seconds))
    environment[_API_URL] = server.api_url
    refresh_global_settings_context()


class LocalServer:
    """The process of a server, which is starting when this is made."""

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        # Kept to ourselves: stopped while it writes its last event, its database layer says so at length.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        # The socket is bound here, so that nobody else can take the port before the server does.
        with socket.create_server((_HOST, 0)) as listening:
            self.api_url = f"http://{_HOST}:{listening.getsockname()[1]}/api"
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                _command(listening.fileno()),
                env={**environment, **_MANNER, **settings.to_environment_variables(exclude_unset=True)},
                pass_fds=(listening.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                # Ctrl-C reaches every process of a terminal's session; the run could not end without its server.
                start_new_session=True,
            )

    def wait(self, limit_s: float) -> None:
        """Return when it answers. Raises ``RunAborted`` when it has ended, or does not answer within the limit."""
        deadline = time.monotonic() + limit_s
        with httpx.Client(trust_env=False) as client:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise RunAborted(self._why_it_ended())
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.api_url}/health", timeout=_POLL_S * 20).is_success:
                        return
                time.sleep(_POLL_S)
        raise RunAborted(f"Prefect's server did not answer within {limit_s:g} s")

    def stop(self) -> None:
        """End it, gently at first."""
        self._process.terminate()
        try:
            self._process.wait(_STOPPING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _why_it_ended(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"Prefect's server ended with {self._process.returncode} before it answered: {last}"


def _command(descriptor: int) -> list[str]:
    """Prefect's own, but for the socket."""
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
        *("--app-dir", str(Path(prefect.__file__).parent.parent), "--fd", str(descriptor)),
        *("--log-level", "error", "--lifespan", "on"),
    ]
