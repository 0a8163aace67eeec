"""What does a termination do to a run? The same as an interrupt: the run stops, its books are closed, it can be resumed.

``docker stop``, ``timeout`` and service managers send SIGTERM where a person presses Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """While it is open, SIGTERM raises ``KeyboardInterrupt`` in the main thread; opened elsewhere, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        # None: somebody's handler that is not Python's, which cannot be put back from here.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
