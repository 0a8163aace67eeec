"""End the programs of a run that was killed, and remove their folders. Run as a script, of the standard library.

It reads ``+NAME`` and ``-NAME`` in lines from its standard input: process groups by number, and folders by path. At the
end of the input what was not removed is ended: the run, and launchers on their way, keep the other end open.

    guard.py PROGRAM ARGUMENT …

With a program it runs that instead, on its own standard input and output, and ends it with its process group, of which it
is the first, when the process that started it has ended in any way.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL."""
_POLL_S = 0.2


def left_over(lines: Iterable[bytes]) -> set[bytes]:
    """Return the names that were added and not removed."""
    names: set[bytes] = set()
    for line in lines:
        (names.add if line[:1] == b"+" else names.discard)(line[1:].rstrip(b"\n"))
    return names


def signal_group(group: int, number: signal.Signals) -> bool:
    """Send a signal to a process group and to the others of its session; return whether any process of them is there."""
    groups = {group: None}
    with suppress(FileNotFoundError):  # Linux lists processes
        # Shells with job control and ``timeout`` make other groups of a session.
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError):
                if group and os.getsid(int(process.name)) == group:
                    groups[os.getpgid(int(process.name))] = None
    is_there = False
    for each in groups:
        with suppress(ProcessLookupError, PermissionError):  # macOS says so of zombies
            os.killpg(each, number)
            is_there = True
    return is_there


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Remove a folder in which dying processes may still write, and agents may have made read-only folders."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        for path, names, _files in os.walk(folder):
            for name in (".", *names):
                with suppress(OSError):  # perhaps its process has removed it
                    Path(path, name).chmod(0o700)
        time.sleep(0.05)


def supervised(command: Sequence[str]) -> int:
    """Run a program for as long as the starter lives. Return its exit code; 127 if it cannot be started."""
    import subprocess  # noqa: PLC0415 - 10 ms of each process; a guard without a program does without

    starter = os.getppid()
    try:
        program = subprocess.Popen(command)  # noqa: S603 - the user's own command, without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        return 127
    while os.getppid() == starter:
        with suppress(subprocess.TimeoutExpired):
            code = program.wait(_POLL_S)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal_group(0, signal.SIGTERM)  # what it has left behind
            return code if code >= 0 else 128 - code
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal_group(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    signal_group(0, signal.SIGKILL)
    return 1


def main() -> None:
    """Wait for the end of the input, then end processes and remove folders."""
    names = left_over(sys.stdin.buffer)
    groups = [int(name) for name in names if name.isdigit()]
    if [group for group in groups if signal_group(group, signal.SIGTERM)]:
        time.sleep(GRACE_S)
        for group in groups:
            signal_group(group, signal.SIGKILL)
    for name in names:
        if not name.isdigit():
            remove_folder(os.fsdecode(name))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(supervised(sys.argv[1:]))
    main()
