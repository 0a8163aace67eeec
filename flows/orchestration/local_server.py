"""The Prefect server of a run: the one that the settings name, asked whether it answers, or a temporary one in a child process.

Prefect would start the same temporary server, but imports all of it into our process first: seconds, and 60 MB. This
one is started before Prefect is imported here, so that both get ready at the same time. A named server is asked within
a limit; Prefect's own limits are minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import httpx

import tfgrpo
from tfgrpo.flows.console.environment import API_URL, prefect_settings
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PrefectUnavailable

if TYPE_CHECKING:
    from prefect.settings import Settings

    from tfgrpo.flows.orchestration.request import RunSummary

_HOST: Final = "127.0.0.1"
_STOPPING_S: Final = 5.0
_POLL_S: Final = 0.05
# Marks the server as temporary for Prefect: no UI, and only the services that record runs.
_MANNER: Final = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
# What no run needs, unless the environment asks for it: a second of a first start, and usage data sent to Prefect.
_SPARED: Final = {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
# The line of a traceback that names the error; more may follow.
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*: ")
_PROGRAM: Final = f"import sys; sys.path += sys.argv[2:]; from {__name__} import serve_prefect; serve_prefect(int(sys.argv[1]))"
_T = TypeVar("_T")
_LOGIN: Final = re.compile(r"//[^/\s]*@")


def wanted(settings: Settings) -> bool:
    """Whether Prefect, set like this, would start a temporary server: none is named and one is allowed."""
    return settings.api.url is None and settings.server.ephemeral.enabled


def start_server(environment: Mapping[str, str]) -> LocalServer | None:
    """Start a server that ends with this process; None where the environment names one.

    Needs no Prefect here. Where it turns out that Prefect's profile names one, the server has already ended.
    """
    if environment.get(API_URL):
        return None
    server = LocalServer(environment)
    # Prefect's own farewells are registered later and called earlier: they tell the server of the last events.
    atexit.register(server.stop)
    return server


def start_prefect(environment: Mapping[str, str]) -> tuple[Callable[..., RunSummary], LocalServer | None]:
    """Start a server, and import Prefect while it gets ready; return ``run_locally`` and the server.

    Raise ``SettingsError`` for settings that Prefect refuses.
    """
    server = start_server(environment)
    with prefect_settings():
        from tfgrpo.flows.learning_flow import run_locally  # noqa: PLC0415 - most of a second; see above

    return run_locally, server


class LocalServer:
    """The process of a server, which is starting when this is made."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Kept to ourselves: stopped while it writes its last event, its database layer says so at length.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        # The socket is bound here, so that nobody else can take the port before the server does.
        with socket.create_server((_HOST, 0)) as listening:
            self.api_url = f"http://{_HOST}:{listening.getsockname()[1]}/api"
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                # Imported from where this process found it; last on the path, before which nothing of the user's is hidden.
                [sys.executable, "-P", "-c", _PROGRAM, str(listening.fileno()), str(Path(tfgrpo.__file__).parent.parent)],
                env={**_SPARED, **environment, **_MANNER},
                pass_fds=(listening.fileno(),),
                # Never written to: it ends when this process does, and the server with it.
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                # Ctrl-C reaches every process of a terminal's session; the run could not end without its server.
                start_new_session=True,
            )

    def serve(self, environment: MutableMapping[str, str], limit_s: float) -> None:
        """Wait until it answers and name it in the environment, which is this process's.

        Raises ``PrefectUnavailable`` when it has ended, or does not answer within the limit.
        """
        deadline = time.monotonic() + limit_s
        with httpx.Client(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.api_url}/health", timeout=_POLL_S * 20).is_success:
                        break
                if self._process.poll() is not None:
                    raise PrefectUnavailable(self._why_it_ended())
                if time.monotonic() > deadline:
                    raise PrefectUnavailable(f"Prefect's server did not answer within {limit_s:g} s")
                time.sleep(_POLL_S)
        environment[API_URL] = self.api_url

    def stop(self) -> None:
        """End it, gently at first; harmless when repeated."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_STOPPING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._said.close()

    def _why_it_ended(self) -> str:
        self._said.seek(0)
        lines = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        last = (errors or lines or ["it said nothing"])[-1].strip()
        return f"Prefect's server ended with {self._process.returncode} before it answered: {last}"


def without_login(text: str) -> str:
    """Text without the name and password of any address in it."""
    return _LOGIN.sub("//", text)


def error_line(error: BaseException) -> str:
    """An error as one line that may be shown."""
    return without_login(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def in_background(work: Callable[[], _T]) -> Future[_T]:
    """Do work in a daemon thread, which the end of the process does not wait for, and which has no event loop yet."""
    return RewarderThreads(1, "tfgrpo-background").submit(copy_context().run, work)


def serve_prefect(descriptor: int) -> None:
    """Serve Prefect's application in the child process, for as long as the process of the run lives.

    The socket to listen on is inherited, and so is a pipe on stdin that ends with the run's process, however that ends.
    Returns at once where Prefect's settings name a server or allow no temporary one.
    """
    import uvicorn  # noqa: PLC0415 - the run's process needs no server
    from prefect.settings import get_current_settings  # noqa: PLC0415 - most of a second, and not before Prefect's settings

    if not wanted(get_current_settings()):
        return
    gc.set_threshold(20_000, 20, 100)  # a twentieth of the time of a first start went into looking for no garbage
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    config = uvicorn.Config("prefect.server.api.server:create_app", factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def _end_with(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
