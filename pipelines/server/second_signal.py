"""Signals that end a server: the first one gracefully; a second SIGINT or SIGTERM kills it, whatever holds its interpreter.

CPython's C handler writes the number of every signal to the wakeup descriptor without that lock. Here the descriptor is a
pipe to a small process, which counts and kills. The Python handlers still decide about the first signal.
A second SIGHUP does not count: of a closed terminal, the kernel and the shell may send one each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a server gracefully: that of a closed terminal too, unless it is ignored, as by ``nohup``."""
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


@contextmanager
def killed_by_second_signal() -> Iterator[None]:
    """Watch for the length of a block in the main thread. Sees only signals that have a Python handler."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = subprocess.Popen(  # noqa: S603 - this file, by the interpreter that runs it
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches every process of the terminal's session
    )
    os.close(reading)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.kill()
        watcher.wait()


def _watch(watched: int) -> None:
    """Kill the parent after two signals; return when it has ended."""
    left = 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a supervisor may signal all processes of a service
    while left and (byte := os.read(0, 1)):
        left -= byte[0] in {signal.SIGINT, signal.SIGTERM} or (byte[0] == signal.SIGHUP and left == 2)
    if not left and os.getppid() == watched:
        os.kill(watched, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
