"""Signals of a run: SIGTERM stops it as Ctrl-C does, and it can be resumed; SIGHUP does not, and it outlives its terminal.

``docker stop``, ``timeout`` and service managers send SIGTERM where a person presses Ctrl-C. A closed terminal, or a lost
connection to one, sends SIGHUP.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tfgrpo.flows.console.console import leave_lost_terminal


@contextmanager
def run_signals() -> Iterator[None]:
    """While it is open, SIGTERM interrupts as Ctrl-C does, and SIGHUP only ends what is written to a closed terminal."""
    with termination_interrupts(), _hangup_is_survived():
        yield


@contextmanager
def _hangup_is_survived() -> Iterator[None]:
    # ``nohup`` ignores the signal already; a handler is for the main thread to set.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGHUP) != signal.SIG_DFL:
        yield
        return
    # A handler, not SIG_IGN, which commands of an agent would inherit.
    signal.signal(signal.SIGHUP, lambda *_: leave_lost_terminal())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """While it is open, SIGTERM raises ``KeyboardInterrupt`` in the main thread; opened in another thread, it has no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        # None: somebody's handler that is not Python's, which cannot be put back from here.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
