"""Run a command that serves in a process of its own, until it is told to end."""

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.runs.running import PATIENCE_S, ROOT

COMMAND = "import sys; from tfgrpo.flows.cli import entry_point; entry_point()"


class Serving:
    """A server, what it printed first, and its URL."""

    def __init__(self, process: subprocess.Popen[bytes], first: str) -> None:
        self.process, self.first = process, first
        found = re.search(r"http://[\d.:]+", first)
        assert found, first or process.communicate()
        self.url = found[0]

    def end(self, number: int) -> tuple[bytes, bytes]:
        """Return what it printed since then on either stream."""
        self.process.send_signal(number)
        out, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        return out, said


@contextmanager
def serving(*arguments: str, cwd: Path = ROOT, **environment: str) -> Iterator[Serving]:
    """Start a command with a free port; warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", COMMAND, *arguments, "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        yield Serving(process, os.read(process.stdout.fileno(), 1 << 16).decode())
    finally:
        process.kill()
        process.communicate()
