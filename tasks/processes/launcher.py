"""Prepare a new process for a program, and become it. Run as a script, of the standard library.

    launcher.py GUARD TEMPLATE '{"DATA": bytes, …}' PROGRAM ARGUMENT …

It registers with the guard on the descriptor ``GUARD``, copies the folder ``TEMPLATE``, unless it is empty, into the one
that it is in, and sets the limits. As a separate child it can be ended at any of that.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Replace this process. Return 126 when it cannot be prepared, and 127 when the program cannot be started."""
    guard, template, limits, *command = arguments
    os.write(int(guard), f"+{os.getpid()}\n".encode())
    os.close(int(guard))  # the program must not hold it open: the guard acts at the end of its input
    if template:
        import shutil  # noqa: PLC0415 - 8 ms of each process; most agents start without a template

        try:
            shutil.copytree(template, ".", symlinks=True, dirs_exist_ok=True)
        except OSError as error:
            sys.stderr.write(f"actor.workdir cannot be copied: {error}\n")
            return 126
    for name, most in json.loads(limits).items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        # A second of processor time between SIGXCPU, which says what has happened, and SIGKILL.
        soft, last = most, most + 1 if name == "CPU" else most
        if hard != resource.RLIM_INFINITY:
            soft, last = min(soft, hard), min(last, hard)
        try:
            resource.setrlimit(kind, (soft, last))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"the system refuses the limit {name} of {most}: {error}\n")
            return 126
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
