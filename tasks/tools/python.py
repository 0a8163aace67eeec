"""Run the model's Python code in a process of its own: the tool ``python`` of the ``tools`` actor.

A call gets an empty folder, limits, an environment without secrets, and, where the kernel allows user namespaces, no
network and no other process to see. It reads the files that the process's user can read: for walls around those there is
``actor.python.container``. What the kernel does not allow is a warning, never pretended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import sys
from dataclasses import replace
from typing import Final

from tfgrpo.pipelines.settings.actor import PythonSettings
from tfgrpo.stores.errors import ActorError
from tfgrpo.tasks.processes.process import Guard, Limits, isolation
from tfgrpo.tasks.tools.schema import Tool, priced, tool_from_function

_MOST_MB: Final = 1
"""Of what it prints; the model reads head and tail of it."""
_HELD: Final = Limits(memory_mb=1_024, file_mb=64, processes=64, output_mb=_MOST_MB)
"""Enough for a computation with numpy and its threads; a program that needs more has a container. Processes are those of
one call; where the kernel refuses namespaces, of the user in all, and root's not at all."""
_OF_A_CONTAINER: Final = Limits(cpu_s=None, memory_mb=None, file_mb=None, output_mb=_MOST_MB)
"""Of the client of a container; what runs inside has the limits of the command."""
_COMMAND: Final[tuple[str, ...]] = (sys.executable, "-I", "-B", "-X", "utf8", "-")
_CONTAINER_VARIABLES: Final = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR")
_LOG: Final = logging.getLogger("tfgrpo.tools")


class PythonProcesses:
    """The processes of the tool: one per call, and one that ends them if this process is killed."""

    def __init__(self, settings: PythonSettings) -> None:
        self._settings = settings
        self._guard: Guard | None = None

    @priced(0.0)
    async def python(self, code: str) -> str:
        """Run a Python program and return what it prints. Nothing is kept from one call to the next; there is no network.

        Raise ``ActorError``, with what it printed, for any other end than exit code 0.
        """
        settings = self._settings
        if self._guard is None:
            self._guard = Guard()
            for warning in python_warnings(settings):
                _LOG.warning("%s", warning)
        async with self._guard.folder() as folder:
            if settings.container is None:
                command, isolated = _COMMAND, isolation().means
                env = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
                held = _HELD.model_copy(update={"cpu_s": settings.timeout_s})
            else:  # the client of a container needs more
                command, isolated = tuple(shlex.split(settings.container)), ""
                env = {name: os.environ[name] for name in _CONTAINER_VARIABLES if name in os.environ}
                held = _OF_A_CONTAINER
            ended = await self._guard.run(
                command,
                stdin=code.encode("utf-8", "surrogatepass"),
                folder=folder,
                env=env,
                limits=held,
                wall_s=float(settings.timeout_s),
                isolated=isolated,
            )
        printed = ended.output[: _MOST_MB << 20].decode("utf-8", "replace")
        if ended.code == 0 and ended.limit is None:
            return printed
        why = {
            "time": f"ended after {settings.timeout_s} s",
            "output": f"ended, because it printed more than {_MOST_MB} MB",
            None: f"ended by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}",
        }
        raise ActorError("\n".join(filter(None, (why[ended.limit], printed.strip(), ended.errors))))

    async def close(self) -> None:
        """End what is left."""
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)


def python_tool(settings: PythonSettings) -> Tool:
    """Return the tool. Start nothing. Raise ``ValueError`` for a container command that is not found."""
    program = None if settings.container is None else shlex.split(settings.container)[0]
    if program is not None and shutil.which(program) is None:
        raise ValueError(f"actor.python.container: the program {program!r} is not found")
    processes = PythonProcesses(settings)
    return replace(tool_from_function(processes.python), close=processes.close)


def python_warnings(settings: PythonSettings) -> tuple[str, ...]:
    """Return what this machine cannot hold of the tool's bounds."""
    if settings.container is not None:
        return ()
    means, fault = isolation()
    root = os.geteuid() == 0 and "nobody" not in means
    open_here = (
        *(() if "namespaces" in means else ("it reaches the network",)),
        *(() if means else ("it can read the environment of this process with its keys",)),
        *(("it works as root, for whom processes are not counted and files are open",) if root else ()),
    )
    if not open_here:
        return ()
    warning = (
        f"the model's code in the tool python is not fully isolated ({fault}): {'; '.join(open_here)}. "
        "What isolates it: a user without rights and a kernel with user namespaces, or actor.python.container"
    )
    return (warning,)
