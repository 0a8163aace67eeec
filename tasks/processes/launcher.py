"""Prepare a new process for a program, and become it. Run as a script, of the standard library.

    launcher.py GUARD TEMPLATE '{"DATA": bytes, …}' ISOLATED PROGRAM ARGUMENT …

It tells the guard of itself on the descriptor ``GUARD``, copies the folder ``TEMPLATE``, unless it is empty, into the one
that it is in, and sets the limits. As a child of its own it can be ended at any of that. ``ISOLATED`` may hold the
words ``nobody``, for the user of that name in the place of root, and ``namespaces``, without network and other processes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence


def main(arguments: Sequence[str]) -> int:
    """Replace this process. Return 126 when it cannot be prepared, and 127 when the program cannot be started."""
    guard, template, limits, isolated, *command = arguments
    os.write(int(guard), f"+{os.getpid()}\n".encode())
    os.close(int(guard))  # the program must not hold it open: the guard acts at the end of its input
    try:
        if template:
            _copy(template)
        if "nobody" in isolated:
            _become_nobody()
        if "namespaces" in isolated:
            _enter_namespaces()
        _limit(json.loads(limits))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 126
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
    return 127


def _copy(template: str) -> None:
    import shutil  # noqa: PLC0415 - most agents start without a template, and none should wait for it

    try:
        shutil.copytree(template, ".", symlinks=True, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise OSError(f"actor.workdir cannot be copied: {error}") from error


_NOBODY = 65534
_NAMESPACES = 0x10000000 | 0x40000000 | 0x20000000 | 0x08000000
"""Of users, of the network, of processes, and of memory that processes share, as ``unshare`` takes them."""
_SET_PDEATHSIG, _SET_DUMPABLE = 1, 4


def _become_nobody() -> None:
    """Give up root, whose files are open to it and whose processes are not counted. Raise ``OSError``."""
    os.chown(".", _NOBODY, _NOBODY)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # otherwise its files in /proc are root's


def _enter_namespaces() -> None:
    """Return in a child in new namespaces; this process waits for it, and ends as it does.

    Between the two is the first process of the namespace, with whose end the kernel ends all others of it, also those that
    have left the group. Environment and memory of processes outside cannot be read from within. Raise ``OSError``.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if not hasattr(libc, "unshare") or libc.unshare(_NAMESPACES):
        raise OSError(f"no user namespaces: {os.strerror(ctypes.get_errno() or errno.ENOSYS)}")
    for name, text in (
        ("setgroups", "deny"),  # the kernel takes the map of groups only after it
        ("uid_map", f"{_NOBODY} {user} 1"),
        ("gid_map", f"{_NOBODY} {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)
    first = os.fork()
    if first:
        _end_as(first)
    libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # not to be traced by the program
    program = os.fork()
    if program:
        while True:  # orphans are its children, too
            ended, status = os.wait()
            if ended == program:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


def _end_as(child: int) -> None:
    """Wait for a child, and end as the program has ended for which it stands."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 128:
        signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)
    os._exit(code if code >= 0 else 128 - code)


def _limit(limits: Mapping[str, int]) -> None:
    for name, asked in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        # A second of processor time between SIGXCPU, which says what has happened, and SIGKILL.
        soft, last = asked, asked + 1 if name == "CPU" else asked
        if hard != resource.RLIM_INFINITY:
            soft, last = min(soft, hard), min(last, hard)
        try:
            resource.setrlimit(kind, (soft, last))
        except (OSError, ValueError) as error:
            raise OSError(f"the system refuses the limit {name} of {asked}: {error}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
