"""Signals of a run: SIGTERM stops it as Ctrl-C does, and it can be resumed; SIGHUP does not, and it outlives its terminal.

``docker stop``, ``timeout`` and service managers send SIGTERM where a person presses Ctrl-C. A closed terminal, or a lost
connection to one, sends SIGHUP.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console as RichConsole

from tfgrpo.flows.console.console import leave_lost_terminal

worker_lost = threading.Event()
"""Whether the worker whose child process this is has ended before the run."""


@contextmanager
def run_signals() -> Iterator[None]:
    """While it is open, SIGTERM interrupts as Ctrl-C does, and SIGHUP only ends what is written to a closed terminal."""
    is_ignored = signal.getsignal(signal.SIGHUP) != signal.SIG_DFL  # by ``nohup``
    # A handler, not SIG_IGN, which commands of an agent would inherit.
    hangup = nullcontext() if is_ignored else _handled(signal.SIGHUP, lambda *_: leave_lost_terminal())
    with termination_interrupts(), hangup:
        yield


def termination_interrupts() -> AbstractContextManager[None]:
    """While it is open, SIGTERM raises ``KeyboardInterrupt`` in the main thread; opened in another thread, it has no effect."""
    return _handled(signal.SIGTERM, signal.default_int_handler)


def outlive_worker() -> None:
    """Discard what is written to stdout and stderr when the worker that reads them has ended, and set ``worker_lost`` then.

    At the first line into the broken pipe, rich, by which Prefect logs to the console, would end the process.
    """
    for handler in (*logging.getLogger().handlers, *logging.getLogger("prefect").handlers):
        if isinstance(console := getattr(handler, "console", None), RichConsole):
            setattr(console, "on_broken_pipe", _discard_output)  # noqa: B010 - rich has it overridden by a subclass
    threading.Thread(target=_wait_for_lost_output, name="tfgrpo-worker", daemon=True).start()


def _wait_for_lost_output() -> None:
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)  # which reports the loss of the reader alone
    if poll.poll():
        _discard_output()


def _discard_output() -> None:
    worker_lost.set()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


@contextmanager
def _handled(number: signal.Signals, handler: Callable[..., Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # which alone may set a handler
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        # None: somebody's handler that is not Python's, which cannot be put back from here.
        signal.signal(number, signal.SIG_DFL if before is None else before)
