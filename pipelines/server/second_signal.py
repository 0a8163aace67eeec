"""Kill this process at its second SIGINT or SIGTERM, even while other code has the interpreter lock.

CPython's C handler writes the number of every signal to the wakeup descriptor without that lock. Here the descriptor is a
pipe to a small process, which counts and kills. The Python handlers still decide about the first signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a supervisor may signal all processes of a service
    while left and (byte := os.read(0, 1)):
        left -= byte[0] in {signal.SIGINT, signal.SIGTERM}
    if not left and os.getppid() == watched:
        os.kill(watched, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
