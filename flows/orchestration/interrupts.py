"""Signals of a run: SIGTERM stops it as Ctrl-C does, and it can be resumed; SIGHUP does not, and it outlives its terminal.

``docker stop``, ``timeout`` and service managers send SIGTERM where a person presses Ctrl-C. A closed terminal, or a lost
connection to one, sends SIGHUP.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tfgrpo.flows.console.console import leave_lost_terminal


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
