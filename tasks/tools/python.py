"""Run the model's Python code in a separate process: the tool ``python`` of the ``tools`` actor.

A call gets an empty folder, limits, and an environment without secrets. It reaches the network and what its user may read;
``actor.python_container`` puts walls around it, and without one every plan warns.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from dataclasses import replace
from typing import Final

from tfgrpo.stores.errors import ActorError
from tfgrpo.tasks.processes.process import Guard, Limits
from tfgrpo.tasks.tools.schema import Tool, priced, tool_from_function

_MOST_BYTES: Final = 1 << 20
"""Most bytes of what it prints; the model reads head and tail of it."""
_TIMEOUT_S: Final = 30
"""Seconds of one call: what takes longer is no step of an attempt."""
_HELD: Final = Limits(cpu_s=_TIMEOUT_S, memory_mb=1_024, file_mb=64, output_bytes=_MOST_BYTES)
"""Enough for a computation with numpy; a program that needs more has a container. Processes are not bounded: the kernel
would count all of the user's."""
_OF_A_CONTAINER: Final = Limits(cpu_s=None, memory_mb=None, file_mb=None, output_bytes=_MOST_BYTES)
"""Limits of the client of a container; what runs inside has the limits of the command."""
_COMMAND: Final[tuple[str, ...]] = (sys.executable, "-I", "-B", "-X", "utf8", "-")
_CONTAINER_VARIABLES: Final = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR")


class PythonProcesses:
    """The processes of the tool: one per call, and one that ends them if this process is killed."""

    def __init__(self, container: str | None) -> None:
        self._container = container
        self._guard: Guard | None = None

    @priced(0.0)
    async def python(self, code: str) -> str:
        """Run a Python program and return what it prints. Nothing is kept from one call to the next.

        Raise ``ActorError``, with what it printed, for any other end than exit code 0.
        """
        if self._guard is None:
            self._guard = Guard()
        async with self._guard.folder() as folder:
            if self._container is None:
                command = _COMMAND
                env = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
                held = _HELD
            else:  # the client of a container needs more
                command = tuple(shlex.split(self._container))
                env = {name: os.environ[name] for name in _CONTAINER_VARIABLES if name in os.environ}
                held = _OF_A_CONTAINER
            ended = await self._guard.run(
                command, stdin=code.encode("utf-8", "surrogatepass"), folder=folder, env=env, limits=held, wall_s=_TIMEOUT_S
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

    async def close(self) -> None:
        """End what is left."""
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)


def python_tool(container: str | None) -> Tool:
    """Return the tool. Start nothing. Raise ``ValueError`` for a container command that is not found."""
    program = None if container is None else shlex.split(container)[0]
    if program is not None and shutil.which(program) is None:
        raise ValueError(f"actor.python_container: the program {program!r} is not found")
    processes = PythonProcesses(container)
    return replace(tool_from_function(processes.python), close=processes.close)
