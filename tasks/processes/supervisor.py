"""Run a program for as long as the process that started this one. Run as a script, of the standard library.

    supervisor.py PROGRAM ARGUMENT …

The program has this process's standard input and output. When the starter has ended in any way, the program and all of
its process group are ended; this process has to be the first of that group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

POLL_S = 0.2
GRACE_S = 1.0


def main(command: Sequence[str]) -> int:
    """Return the exit code of the program; 127 if it cannot be started."""
    starter = os.getppid()
    try:
        program = subprocess.Popen(command)  # noqa: S603 - the user's own command, without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        return 127
    while os.getppid() == starter:
        try:
            code = program.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
        return code if code >= 0 else 128 - code
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
