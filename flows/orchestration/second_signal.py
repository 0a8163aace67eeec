"""Kill this process soon after a second SIGINT or SIGTERM, even if its interpreter hangs, and remove what it leaves behind.

CPython's C handler writes the number of every signal to the wakeup descriptor without the interpreter lock. Here that is a
pipe to a small process, which counts, and sees that the process has ended. The Python handlers still decide about the signals.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

# Seconds after the second signal for the process to end on its own.
_GRACE_S = 2.0


def kill_after_second_signal(*, hangup_ends: bool) -> None:
    """Watch this process until it ends. Sees only signals that have a Python handler; call it in the main thread.

    ``hangup_ends``: whether SIGHUP counts as the first signal. It is never the second: of a closed terminal, the kernel and the
    shell may send one each.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    subprocess.Popen(  # noqa: S603 - this file, by the interpreter that runs it
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(hangup_ends))],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches every process of the terminal's session
    ).returncode = 0  # it outlives this process, which must not warn of that
    os.close(reading)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=partial(signal.set_wakeup_fd, -1))  # Ctrl-C reaches a copy, too, and counts once


def _watch(watched: int, counted_once: set[int]) -> None:
    left = 2
    while left and (byte := os.read(0, 1)):
        left -= byte[0] in {signal.SIGINT, signal.SIGTERM} or (left == 2 and byte[0] in counted_once)
    if not left and not _ends_within(_GRACE_S) and os.getppid() == watched:
        os.kill(watched, signal.SIGKILL)
        _ends_within(_GRACE_S)
    left_behind = re.compile(rf"tfgrpo-code-(\d+-)?{watched}-.*")  # see ``code_tests``
    for pause in (0.1, 0.3, 0.6):  # code may be writing there for a moment yet
        folders = [each for each in Path(tempfile.gettempdir()).iterdir() if left_behind.fullmatch(each.name)]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if not folders:
            break
        time.sleep(pause)


def _ends_within(seconds: float) -> bool:
    """Return whether the pipe is closed in time, as it is when the process has ended."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0 and select.select([0], [], [], rest)[0]:
        if not os.read(0, 1):
            return True
    return False


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a supervisor may signal all processes of a service
    _watch(int(sys.argv[1]), {signal.SIGHUP} if sys.argv[2] == "1" else set())
