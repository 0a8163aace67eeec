"""Start and measure the processes of a whole run: the job itself, the simulated model, a Prefect server.

The job is measured from outside, by what the system says of it when it has ended: nothing that it might forget to count.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.generated_items import generate_items
from tfgrpo.flows.console.environment import quiet_prefect

ROOT = Path(__file__).resolve().parent.parent
_CLI = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"
_PATIENCE_S = 120.0
_MIB = 2**20
# Linux counts the largest resident set in kilobytes, macOS in bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of the job took, process start to exit."""

    wall_s: float
    cpu_s: float
    """User and system time of the process and of its children."""
    peak_mb: float
    """Largest resident set of the process."""
    run: Path
    """Directory of the run."""
    manifest: Mapping[str, Any]
    """The manifest of the run, as it was closed."""


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a job: nothing of ours set but ``more``, Prefect's state under ``home``, modules compiled once."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TFGRPO_", "PREFECT_", "OTEL_", "FEATURE_", "OPENAI_", "PYTHONDONTWRITE"))
    }
    kept |= {"PREFECT_HOME": str(home), "PYTHONPATH": str(ROOT), **more}
    quiet_prefect(kept)
    return kept


def measured_run(environment: Mapping[str, str], out: Path, *arguments: str) -> Measured:
    """Run the job to its end. The caller has to be small: a process begins with the peak memory of the one it came from.

    Raises ``SystemExit`` with its last words when it did not finish.
    """
    command = [sys.executable, "-m", "flows.tfgrpo", "--out", str(out), "--json", *arguments]
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=dict(environment), cwd=ROOT, stdout=printed, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (printed, errors):
            stream.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"the job ended with {process.returncode}: {errors.read()[-2000:]}")
        summary = json.loads(printed.read())
    cpu = usage.ru_utime + usage.ru_stime
    run = ROOT / summary["run"]
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    return Measured(wall, cpu, usage.ru_maxrss * _RSS_UNIT / _MIB, run, manifest)


@contextlib.contextmanager
def simulated_server(latency_s: float, world: str = "arithmetic") -> Iterator[str]:
    """The simulated model in a process of its own; gives its base URL."""
    options = ("--port", "0", "--latency", str(latency_s), "--world", world)
    command = [sys.executable, "-c", _CLI, "serve-simulated", *options]
    with _process(command, dict(os.environ), stdout=subprocess.PIPE) as process:
        line = process.stdout.readline().decode() if process.stdout else ""
        found = re.search(r"http://\S+", line)
        if found is None:
            raise SystemExit(f"the simulated server did not start: {line!r}")
        yield found.group(0)


@contextlib.contextmanager
def prefect_server(environment: Mapping[str, str], port: int | None = None) -> Iterator[str]:
    """A Prefect server of its own on this port, else on a free one; gives its API URL once it answers."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"]
    with _process(command, environment, stdout=subprocess.DEVNULL) as process:
        _wait_for(f"{url}/health", process)
        yield url


@contextlib.contextmanager
def otlp_receiver() -> Iterator[str]:
    """An OpenTelemetry receiver in a process of its own, so that only the sender is measured; gives its URL."""
    command = [sys.executable, "-m", "benchmarks.receiver"]
    with _process(command, dict(os.environ), stdout=subprocess.PIPE) as process:
        yield process.stdout.readline().decode().strip() if process.stdout else ""


def cpu_of_children(word: str) -> float:
    """CPU seconds so far of those processes of ours that were started with this word."""
    own = [child.cpu_times() for child in psutil.Process().children() if word in child.cmdline()]
    return sum(times.user + times.system for times in own)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def datasets(folder: Path, learn: int, held_out: int, world: str = "arithmetic") -> tuple[str, ...]:
    """Write so many items of a simulated world and give the options that name the files."""
    items = generate_items(world, learn + held_out, seed=1)
    options: list[str] = []
    for flag, part in (("--dataset", items[:learn]), ("--eval-dataset", items[learn:])):
        path = folder / f"{flag.strip('-')}-{learn}.jsonl"
        path.write_text("".join(f"{json.dumps(item)}\n" for item in part), encoding="utf-8")
        options += [flag, str(path)]
    return tuple(options)


@contextlib.contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str], *, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, env=dict(environment), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):  # noqa: S310 - a local address
            return
        time.sleep(0.25)
    raise SystemExit(f"nothing answers at {url}")
