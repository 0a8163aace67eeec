"""Time to summarize an attempt that printed 10 MB: ``python -m benchmarks summaries``.

Every shape of output that could be slow is measured: lines, one line without an end, words without spaces, blank lines,
control characters, combining marks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from benchmarks.table import Row
from tfgrpo.tasks.rollout import summarize_trajectory
from tfgrpo.tasks.shapes import Frame

MEGABYTES, REPEATS, BAR_MS = 10, 9, 50.0
_SHAPES: Mapping[str, str] = {
    "lines": "The next 12 boxes of 1,080 apples each are counted, then set aside.\n",
    "one line": "word ",
    "no spaces": "x",
    "blank lines": "\n",
    "control characters": "\x1b[2K\x07",
    "combining marks": "e\u0301",
    "ideographs": "数",
}


def outputs(megabytes: int = MEGABYTES) -> dict[str, str]:
    """Outputs of so many megabytes of UTF-8 each, by shape."""
    size = megabytes * 1_000_000
    return {name: text * (size // len(text.encode())) for name, text in _SHAPES.items()}


def milliseconds(output: str) -> float:
    """Wall time of one summary of an attempt with tool calls."""
    frames = _frames(output)
    start = time.perf_counter()
    summarize_trajectory(frames, output)
    return 1e3 * (time.perf_counter() - start)


def _frames(output: str) -> list[Frame]:
    asked = Frame("model", "chat", "I look it up first.", tokens=7, cost_usd=None, latency_ms=200.0)
    looked_up = Frame("tool", "lookup", output, tokens=0, cost_usd=None, latency_ms=5.0)
    return [*(asked, looked_up) * 4, Frame("model", "chat", output, tokens=1024, cost_usd=None, latency_ms=900.0)]


def measure() -> list[Row]:
    """The slowest shape by its median."""
    given = outputs()
    samples: dict[str, list[float]] = {name: [] for name in given}
    for _ in range(REPEATS):
        for name, output in given.items():
            samples[name].append(milliseconds(output))
    medians = {name: statistics.median(values) for name, values in samples.items()}
    slowest = max(medians, key=lambda name: medians[name])
    note = f"of {len(medians)} shapes of output the slowest: {slowest}"
    return [Row(f"summary of {MEGABYTES} MB of output", medians[slowest], "ms", BAR_MS, note)]
