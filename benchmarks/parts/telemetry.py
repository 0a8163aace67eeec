"""CPU time of what one attempt records: 9 spans and 18 metric records.

The receiver is a process of its own, so that only the sender's CPU is counted: that of the thread that records, and
that of all threads, the exporter's included. The cases alternate, so that a busy machine disturbs all of them alike.

``python -m benchmarks telemetry``
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Literal, TypedDict

from benchmarks.processes import otlp_receiver
from benchmarks.table import Row
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions, configure

ROLLOUTS, REPEATS, BAR_MS = 1000, 7, 1.5


class _Place(TypedDict):
    epoch: int
    phase: Literal["train", "eval"]


def rollout(telemetry: Telemetry, index: int) -> None:
    """Four model calls, three tool calls, one scoring step, inside one rollout span."""
    place = _Place(epoch=1, phase="train")
    with telemetry.rollout_span(
        **place, group_id="g", rollout_id=f"g/{index}", index=index % 2, agent="tools", group_size=2
    ) as span:
        for _ in range(4):
            with telemetry.chat_span(model="m", role="rollout", temperature=0.7, max_tokens=512, request_seed=index) as chat:
                chat.set(response_model="m", finish_reasons=("stop",), input_tokens=900, output_tokens=60, llm_cost_usd=0.0002)
            telemetry.record("llm_call", **place, role="rollout", model="m", duration_s=0.2, llm_cost_usd=0.0002)
        for tool in ("lookup", "add", "rate"):
            with telemetry.tool_span(tool=tool, tool_call_id="c"):
                pass
            telemetry.record("tool_call", **place, tool=tool, duration_s=0.01, outcome="ok")
        with telemetry.span("tfgrpo.score"):
            telemetry.record("reward", **place, rewarder="gt", score=1.0)
            telemetry.record("reward", **place, rewarder="relative", score=0.5)
        span.set(outcome="scored", reward=1.0, literal_latency_ms=830.0)
    telemetry.record("rollout", **place, outcome="scored", duration_s=0.83, agent="tools", group_size=2)


def milliseconds(env: dict[str, str], rollouts: int) -> tuple[float, float]:
    """CPU per attempt: of the recording thread, of the whole process."""
    telemetry = configure(TelemetryOptions(), env)
    for index in range(50):
        rollout(telemetry, index)
    thread, process = time.thread_time(), time.process_time()
    for index in range(rollouts):
        rollout(telemetry, index)
    recording = time.thread_time() - thread
    lost = telemetry.shutdown(10.0)
    if lost:
        print(lost, file=sys.stderr)
    return 1e3 * recording / rollouts, 1e3 * (time.process_time() - process) / rollouts


def measure(rollouts: int = ROLLOUTS, repeats: int = REPEATS) -> list[Row]:
    """One row for each part of the telemetry; the bar is that of all of it."""
    with otlp_receiver() as url:
        cases = {
            "off": {},
            "metrics only": {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/v1/metrics"},
            "spans only": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces"},
            "9 spans and 18 records": {"OTEL_EXPORTER_OTLP_ENDPOINT": url},
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, env in cases.items():
                samples[name].append(milliseconds(env, rollouts))
    rows = []
    for name, pairs in samples.items():
        recording, total = (statistics.median(column) for column in zip(*pairs, strict=True))
        bar = BAR_MS if name.startswith("9") else None
        note = f"CPU of all threads; {recording:.2f} ms of it where it is recorded"
        rows.append(Row(f"telemetry: {name}", total, "ms", bar, note))
    return rows
