"""What does telemetry cost? Medians of the CPU time of what one rollout records: 9 spans and 18 metric records.

Prints one line per case. The receiver runs in a process of its own, so that only the sender's CPU is counted: of the
thread that records, and of all threads including the exporter's. Bar: 1 ms per rollout.

    python benchmarks/bench_telemetry.py [rollouts] [repeats]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from stores.telemetry import Telemetry, TelemetryOptions, configure

RECEIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.otlp_receiver import OtlpReceiver
with OtlpReceiver() as receiver:
    print(receiver.url, flush=True)
    sys.stdin.read()
"""


def rollout(telemetry: Telemetry, index: int) -> None:
    """Four model calls, three tool calls, one scoring step, inside one rollout span."""
    place = {"epoch": 1, "phase": "train"}
    with telemetry.rollout_span(
        **place, group_id="g", rollout_id=f"g/{index}", index=index % 2, agent="tools", group_size=2
    ) as span:
        for _ in range(4):
            with telemetry.chat_span(model="m", role="rollout", temperature=0.7, max_tokens=512, seed=index) as chat:
                chat.reply(model="m", finish_reason="stop", input_tokens=900, output_tokens=60, cost_usd=0.0002)
            telemetry.record_llm_call(**place, role="rollout", model="m", duration_s=0.2, cost_usd=0.0002)
        for tool in ("lookup", "add", "rate"):
            with telemetry.tool_span(tool=tool, call_id="c"):
                pass
            telemetry.record_tool_call(**place, tool=tool, duration_s=0.01)
        with telemetry.span("tfgrpo.score"):
            telemetry.record_reward(**place, rewarder="gt", score=1.0)
            telemetry.record_reward(**place, rewarder="relative", score=0.5)
        span.rollout_result(outcome="scored", reward=1.0, latency_ms=830.0)
    telemetry.record_rollout(**place, outcome="scored", duration_s=0.83, agent="tools", group_size=2)


def measure(env: dict[str, str], rollouts: int) -> tuple[float, float]:
    """CPU microseconds per rollout: recording thread, whole process."""
    telemetry = configure(TelemetryOptions(genai_metrics="off"), env)
    for index in range(50):
        rollout(telemetry, index)
    thread, process = time.thread_time(), time.process_time()
    for index in range(rollouts):
        rollout(telemetry, index)
    recording = time.thread_time() - thread
    lost = telemetry.shutdown(10.0)
    if lost:
        print(lost, file=sys.stderr)
    return 1e6 * recording / rollouts, 1e6 * (time.process_time() - process) / rollouts


def main() -> None:
    """Alternate the cases, so that a busy machine disturbs all of them alike."""
    rollouts, repeats = (int(given) for given in [*sys.argv[1:], *("1000", "7")[len(sys.argv) - 1 :]])
    root = str(Path(__file__).resolve().parent.parent)
    with subprocess.Popen(
        [sys.executable, "-c", RECEIVER, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as receiver:
        assert receiver.stdout is not None  # noqa: S101 - it was asked for
        url = receiver.stdout.readline().strip()
        cases = {
            "off": {},
            "metrics only": {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/v1/metrics"},
            "spans only": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces"},
            "spans and metrics": {"OTEL_EXPORTER_OTLP_ENDPOINT": url},
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(repeats):
            for name, env in cases.items():
                samples[name].append(measure(env, rollouts))
        receiver.communicate("")
    for name, pairs in samples.items():
        recording, total = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<18} {recording:8.1f} us recording thread {total:8.1f} us whole process, per rollout")


if __name__ == "__main__":
    main()
