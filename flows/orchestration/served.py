"""The child process that serves Prefect's application for one run, and ends with the process of the run."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from typing import Final

import uvicorn
from prefect.settings import get_current_settings

from tfgrpo.flows.orchestration.local_server import wanted

_APPLICATION: Final = "prefect.server.api.server:create_app"
_COLLECT_AFTER: Final = (20_000, 20, 100)
"""When the garbage collector looks; a twentieth of the time of a first start went into looking for none."""


def serve_prefect(descriptor: int) -> None:
    """Serve Prefect's application, for as long as the process of the run lives.

    The socket to listen on is inherited, and so is a pipe on stdin that ends with the run's process, however that ends.
    Returns at once where Prefect's settings name a server or allow no temporary one.
    """
    if not wanted(get_current_settings()):
        return
    gc.set_threshold(*_COLLECT_AFTER)
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    config = uvicorn.Config(_APPLICATION, factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def _end_with(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
