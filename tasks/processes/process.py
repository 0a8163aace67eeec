"""Run a program in a separate session, limited in resources, time and output, so that nothing of it is left.

Cancelling the run of a program ends its session: SIGTERM, then SIGKILL. A guard process does the same when this process is
killed. What starts another session (``setsid``) leaves it, and only its limits still hold; on macOS, another group as well.

The tool ``python`` of the ``tools`` actor runs the model's code so: a call gets an empty folder, limits, and an environment
without secrets. It reaches the network and what its user may read; ``actor.python_container`` puts walls around it, and
without one every plan warns.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Literal, cast

from tfgrpo.stores.errors import ActorError
from tfgrpo.tasks.processes import guard as guard_script
from tfgrpo.tasks.processes import launcher
from tfgrpo.tasks.processes.guard import GRACE_S, signal_group
from tfgrpo.tasks.tools.schema import Tool, priced, tool_from_function

_PYTHON: Final = (sys.executable, "-I", "-S")
# Seconds for output that is still in the pipes when the program has ended.
_DRAIN_S: Final = 1.0
_POLL_S: Final = 0.1
# Looks, in which a guard has ended all processes and removed their folders.
_VACATING: Final = 30
_TAIL_BYTES: Final = 2_000
OUTPUT_BYTES: Final = 16 << 20
"""Bytes of output, of an answer file, of changes or of an HTTP reply, above which an attempt fails: prompts and answers
have thousandths of that."""
ATTEMPT_PREFIX: Final = "tfgrpo-attempt-"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on each process of a program, as far as the system holds them. None: no limit."""

    memory_mb: int | None
    """Megabytes of data in memory."""
    cpu_s: int | None = 3_600
    """Seconds of processor time: more than an attempt needs, and less than a night."""
    output_bytes: int = OUTPUT_BYTES
    file_mb: int | None = 1_024
    """Megabytes of one file that it writes: more than an attempt needs, and less than fills a disk."""

    def resources(self) -> dict[str, int]:
        """Return the limits that the system holds, by the names of its resources."""
        # Of memory, DATA and not AS: language runtimes reserve far more addresses than they use.
        sizes = {"DATA": self.memory_mb, "FSIZE": self.file_mb}
        bytes_of = {name: size << 20 for name, size in sizes.items() if size is not None}
        return {"CORE": 0, **bytes_of, **({} if self.cpu_s is None else {"CPU": self.cpu_s})}


class Guard:
    """The process that cleans up after this one, from its first folder to ``close``, or until this one ends in any way."""

    @cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        # In a session of its own: Ctrl-C in the terminal must not reach it.
        command = [*_PYTHON, guard_script.__file__]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)  # noqa: S603

    @property
    def descriptor(self) -> int:
        """Its input, for launchers, which tell it of their process group."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        return self._process.stdin.fileno()

    def holds(self, name: object) -> None:
        """Have it end this group or remove this folder if it is not released before this process ends."""
        # One write for a line: launchers write to the same pipe, which keeps short ones whole.
        os.write(self.descriptor, b"+" + os.fsencode(str(name)) + b"\n")

    def releases(self, name: object) -> None:
        """Take that back."""
        with suppress(ValueError, OSError):  # closed in the meantime, when it has seen to it itself
            os.write(self.descriptor, b"-" + os.fsencode(str(name)) + b"\n")

    @asynccontextmanager
    async def folder(self, name: str | None = None) -> AsyncIterator[Path]:
        """Give an empty folder, removed afterwards in any case. A ``name`` has one path, for this process and a later one."""
        folder = Path(tempfile.gettempdir(), f"{ATTEMPT_PREFIX}{name or secrets.token_hex(8)}").resolve()  # noqa: ASYNC240
        for _ in range(_VACATING):  # while the guard of a killed process removes it
            if not folder.exists():
                break
            await asyncio.sleep(_POLL_S)
        else:  # no guard is left to do so
            await asyncio.to_thread(guard_script.remove_folder, folder)

        def remove() -> None:
            guard_script.remove_folder(folder)
            self.releases(folder)

        self.holds(folder)  # before it is there, so that no kill in between leaves it
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(remove))  # to its end, also when the attempt is cancelled again

    async def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes,
        folder: Path,
        env: Mapping[str, str],
        limits: Limits,
        template: Path | None = None,
        wall_s: float | None = None,
    ) -> Ended:
        """Run a program in a folder with a copy of ``template``. No process is left. Raise ``ActorError`` if none starts."""
        orders = (launcher.__file__, str(self.descriptor), str(template or ""), json.dumps(limits.resources()))
        child = _Child(limits.output_bytes)
        transport = await self._started(child, (*_PYTHON, *orders, *command), folder, env)
        group = transport.get_pid()
        try:
            pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
            pipe.write(stdin)
            pipe.close()  # once everything is written
            in_time, _ = await asyncio.wait([child.over], timeout=wall_s)
            limit: Literal["output", "time"] | None = "output" if child.too_long else None if in_time else "time"
            if limit:
                await _end(group, child)
            signal_group(group, signal.SIGKILL)  # what it has left behind
            await asyncio.wait([child.drained], timeout=_DRAIN_S)
            errors = child.errors.decode("utf-8", "replace").strip()
            return Ended(transport.get_returncode() or 0, bytes(child.output), errors, limit)
        finally:
            try:
                await _end(group, child)
            finally:
                transport.close()
                self.releases(group)

    async def _started(
        self, child: _Child, words: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> asyncio.SubprocessTransport:
        loop, fds = asyncio.get_running_loop(), (self.descriptor,)
        starting = asyncio.ensure_future(
            loop.subprocess_exec(lambda: child, *words, cwd=folder, env=dict(env), start_new_session=True, pass_fds=fds)
        )
        try:
            return (await asyncio.shield(starting))[0]
        except asyncio.CancelledError:
            starting.add_done_callback(self._abandon)  # its number is known only then
            raise
        except (OSError, ValueError) as error:  # too long, or with a character that no argument can have
            why = getattr(error, "strerror", None) or str(error)
            raise ActorError(
                f"the command cannot be started: {why}; long texts go to its standard input (actor.stdin)"
            ) from error

    def _abandon(self, started: asyncio.Future[tuple[asyncio.SubprocessTransport, _Child]]) -> None:
        if not started.cancelled() and started.exception() is None:
            transport = started.result()[0]
            signal_group(transport.get_pid(), signal.SIGKILL)
            transport.close()
            self.releases(transport.get_pid())

    def close(self) -> None:
        """Have it clean up, and wait for its end."""
        if "_process" in vars(self):  # it has been started
            self._process.__exit__(None, None, None)  # closes its input and waits


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended on its own, or for one of two limits."""

    code: int
    """Exit code; the number of a signal, negative, if that ended it."""
    output: bytes
    errors: str
    limit: Literal["output", "time"] | None = None
    """The limit for which it was ended."""


class _Child(asyncio.SubprocessProtocol):
    """Collects what a program writes. Its end is seen even if a process that it leaves behind keeps its pipes open."""

    def __init__(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        self._most = most
        self.output, self.errors, self.too_long = bytearray(), b"", False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        """When it has ended, or written too much."""
        self.drained: asyncio.Future[None] = loop.create_future()
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.errors = (self.errors + data)[-_TAIL_BYTES:]
        elif len(self.output) <= self._most:
            self.output += data
            self.too_long = len(self.output) > self._most
            if self.too_long:
                _resolve(self.over)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open.discard(fd)
        if not self._open:
            _resolve(self.drained)

    def process_exited(self) -> None:
        _resolve(self.ended)
        _resolve(self.over)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end(group: int, child: _Child) -> None:
    """End a group, also when this is cancelled again."""
    try:
        if not child.ended.done() and signal_group(group, signal.SIGTERM):
            await asyncio.wait([child.ended], timeout=GRACE_S)
    finally:
        signal_group(group, signal.SIGKILL)


# Most bytes of what it prints; the model reads head and tail of it.
_MOST_BYTES: Final = 1 << 20
# Seconds of one call: what takes longer is no step of an attempt.
_TIMEOUT_S: Final = 30
# Enough for a computation with numpy; a program that needs more has a container. Processes are not bounded: the kernel would
# count all of the user's.
_OF_THE_TOOL: Final = Limits(cpu_s=_TIMEOUT_S, memory_mb=1_024, file_mb=64, output_bytes=_MOST_BYTES)
# Limits of the client of a container; what runs inside has the limits of the command.
_OF_A_CONTAINER: Final = Limits(cpu_s=None, memory_mb=None, file_mb=None, output_bytes=_MOST_BYTES)
_COMMAND: Final[tuple[str, ...]] = (sys.executable, "-I", "-B", "-X", "utf8", "-")
_CONTAINER_VARIABLES: Final = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR")


def python_tool(container: str | None) -> Tool:
    """Return the tool. Start nothing. Raise ``ValueError`` for a container command that is not found."""
    program = None if container is None else shlex.split(container)[0]
    if program is not None and shutil.which(program) is None:
        raise ValueError(f"actor.python_container: the program {program!r} is not found")
    guard = Guard()

    @priced(0.0)
    async def python(code: str) -> str:
        """Run a Python program and return what it prints. Nothing is kept from one call to the next.

        Raise ``ActorError``, with what it printed, for any other end than exit code 0.
        """
        async with guard.folder() as folder:
            command, limits = _COMMAND, _OF_THE_TOOL
            env = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
            if container is not None:  # its client needs more
                command, limits = tuple(shlex.split(container)), _OF_A_CONTAINER
                env = {name: os.environ[name] for name in _CONTAINER_VARIABLES if name in os.environ}
            ended = await guard.run(
                command, stdin=code.encode("utf-8", "surrogatepass"), folder=folder, env=env, limits=limits, wall_s=_TIMEOUT_S
            )
        printed = ended.output[:_MOST_BYTES].decode("utf-8", "replace")
        if ended.code == 0 and ended.limit is None:
            return printed
        why = {
            "time": f"ended after {_TIMEOUT_S} s",
            "output": f"ended, because it printed more than {_MOST_BYTES >> 20} MB",
            None: f"ended by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}",
        }
        raise ActorError("\n".join(filter(None, (why[ended.limit], printed.strip(), ended.errors))))

    return replace(tool_from_function(python), close=partial(asyncio.to_thread, guard.close))
