"""Run one solution with one test, as ``python code_process.py FOLDER``, within limits of processor time, memory and files.

Started by ``code_tests``, without this package. It refuses new processes, the network, and writing outside its folder; that
stops accidents, and no attack: code may undo it.
"""

from __future__ import annotations

import builtins
import marshal
import os
import resource
import signal
import sys

TYPE_CHECKING = False  # that of typing takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Most bytes of one file, and of what is printed
FILE_BYTES = 16 << 20
_SHOWN = 200
_REFUSED = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"}
    | {"signal.pthread_kill", "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"}
)
_WRITING = frozenset(
    {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
    | {"os.utime", "shutil.rmtree"}
)


def main(folder: str) -> None:
    """Read the job, run it, write a verdict: the key of the job, and if the solution failed why."""
    with open(f"{folder}/job", "rb") as file:  # noqa: PTH123 - pathlib takes as long to import as all of this
        job = marshal.load(file)  # noqa: S302 - of the process that started this one
    os.unlink(f"{folder}/job")  # noqa: PTH108 - as above
    verdict = os.open(f"{folder}/verdict", os.O_WRONLY | os.O_CREAT, 0o600)
    _limit(resource.RLIMIT_DATA, job["memory"])  # less than the addresses that libraries reserve and never touch
    _limit(resource.RLIMIT_CPU, int(job["cpu_s"]) + 2)  # for code that stops the timer
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, 64)
    _limit(resource.RLIMIT_CORE, 0)
    if os.path.exists("/proc/loadavg"):  # noqa: PTH110 - the limit counts all processes and threads of the user
        with open("/proc/loadavg") as loads:  # noqa: PTH123 - as above
            _limit(resource.RLIMIT_NPROC, int(loads.read().split()[3].partition("/")[2]) + 64)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, job["cpu_s"])
    sys.addaudithook(_hook(f"{os.getcwd()}{os.sep}"))  # noqa: PTH109 - as above
    why = _failure(job["code"], job["test"])
    os.write(verdict, f"{job['key']}{'' if why is None else f' {why}'}".encode(errors="replace"))
    if job["test"] is not None:
        os._exit(0)  # without what the solution registered for the end
    sys.exit(why is not None)  # a program may still have threads that print


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (value, value))


def _hook(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    def inside(path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a descriptor
        name = os.path.realpath(os.fsdecode(path))
        return name == os.devnull or f"{name}{os.sep}".startswith(folder)

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        paths = arguments[:2] if event in _WRITING else ()
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & ~(os.O_RDONLY | os.O_CLOEXEC):
            paths = arguments[:1]
        if event in _REFUSED or not all(map(inside, paths)):
            raise PermissionError(f"{event} is not allowed to tested code")

    return check


def _failure(code: str, test: str | None) -> str | None:
    space = {"__name__": "__main__" if test is None else "solution", "__builtins__": builtins}
    try:
        exec(compile(code, "<solution>", "exec"), space)  # noqa: S102 - what this process is for
        if test is not None:
            exec(compile(test, "<test>", "exec"), space)  # noqa: S102 - as above
    except SystemExit as error:
        return None if test is None and not error.code else f"SystemExit: {error.code}"
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises
        return _explained(error, test or "")[: 5 * _SHOWN]
    return None


def _explained(error: BaseException, test: str) -> str:
    # In one line; of an assertion of the test also both sides of its comparison.
    import ast  # noqa: PLC0415 - 15 ms of each process; most tests pass
    import traceback  # noqa: PLC0415 - as above

    text = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
    frame, line = [*traceback.walk_tb(error.__traceback__)][-1]
    if not isinstance(error, AssertionError) or frame.f_code.co_filename != "<test>":
        return text
    asserts = [each for each in ast.walk(ast.parse(test)) if isinstance(each, ast.Assert)]
    failed = next((each.test for each in asserts if each.lineno <= line <= (each.end_lineno or line)), None)
    if failed is None:
        return text
    shown = f"assert {_cut(ast.unparse(failed))}"
    if isinstance(failed, ast.Compare) and [*map(type, failed.ops)] == [ast.Eq]:
        sides = failed.left, failed.comparators[0]
        # The side with a call is the solution's.
        got, expected = sides if any(isinstance(each, ast.Call) for each in ast.walk(sides[0])) else sides[::-1]
        try:
            codes = (compile(ast.Expression(each), "<test>", "eval") for each in (expected, got))
            values = [_cut(repr(eval(each, frame.f_globals, frame.f_locals))) for each in codes]  # noqa: S307 - as above
        except BaseException:  # noqa: BLE001 - evidence that cannot be had
            return shown
        return f"{shown}: expected {values[0]}, got {values[1]}"
    return f"{shown}{f': {_cut(str(error))}' if str(error) else ''}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


if __name__ == "__main__":
    main(sys.argv[1])
