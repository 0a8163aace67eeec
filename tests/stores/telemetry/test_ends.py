"""Telemetry ends in time and says what was lost, and a process with it."""

import logging
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.records.telemetry_records import OPTIONS, one_rollout, record_everything
from tfgrpo.stores.telemetry.export import Pipe
from tfgrpo.stores.telemetry.setup import Telemetry, configure

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("mode", ["503", "hang"])
def test_shutdown_keeps_its_deadline_and_reports_losses_once(otlp_receiver, mode, caplog):
    otlp_receiver.mode = mode  # type: ignore[assignment]
    telemetry = configure(OPTIONS, {**otlp_receiver.environment(), "OTEL_EXPORTER_OTLP_TIMEOUT": "30"})
    one_rollout(telemetry)
    record_everything(telemetry)
    with caplog.at_level(logging.WARNING):
        before = time.monotonic()
        line = telemetry.shutdown(0.3)
        took = time.monotonic() - before
    assert took < 3.0
    assert line is not None
    assert line.startswith("telemetry: 6 of 6 spans and the last metrics")
    why = " (HTTP 503)" if mode == "503" else ""
    assert line.removesuffix(why).endswith(f" were not delivered to {otlp_receiver.url.removeprefix('http://')}")
    assert line not in [record.message for record in caplog.records], "who called shows it"
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]


def test_the_first_failed_delivery_is_reported_once_while_running(otlp_receiver, caplog):
    otlp_receiver.mode = "503"
    telemetry = configure(OPTIONS, {**otlp_receiver.environment(), "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"})
    with caplog.at_level(logging.WARNING, "tfgrpo.telemetry"):
        for _ in range(2):
            record_everything(telemetry)
            telemetry.collect(wait_s=10.0)
        line = telemetry.shutdown()
    address = otlp_receiver.environment()["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://")
    # Another test's provider may still be failing against a receiver of its own.
    assert caplog.text.count(f"delivered to {address} (HTTP 503); the run goes on without it") == 1
    assert line is not None
    assert "the last metrics were not delivered" in line


def test_a_provider_that_fails_at_shutdown_does_not_fail_the_process():
    def broken() -> None:
        raise RuntimeError("no")

    assert Telemetry(OPTIONS, pipes=[Pipe("traces", "nowhere", broken, broken)]).shutdown() is None


SCRIPT = """
    import logging, os, sys, time
    sys.path.insert(0, {root!r})
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure
    telemetry = configure(TelemetryOptions(run_id="r"), os.environ)
    for index in range(3000):
        with telemetry.span("work", index=index):
            telemetry.record("guardrail", rule="r")
    work_ended = time.time()
    {ending}
    print(work_ended, flush=True)
"""


@pytest.mark.parametrize(("fault", "ending"), [("dead", "sys.stderr.write(str(telemetry.shutdown()))"), ("hang", "pass")])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.untraced
def test_a_process_ends_within_four_seconds_of_its_work(otlp_receiver, fault, ending, protocol):
    if protocol == "grpc":
        pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra grpc is not installed")
    otlp_receiver.mode = "hang"
    endpoint = otlp_receiver.url if fault == "hang" else "http://127.0.0.1:9"
    script = textwrap.dedent(SCRIPT).format(root=str(ROOT), ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert ended - float(done.stdout) <= 4.0
    assert done.stderr.count("were not delivered") == 1
    assert len(done.stderr.splitlines()) <= 2, done.stderr


def test_spans_of_a_spawned_process_join_the_trace_through_the_carrier(otlp_receiver):
    telemetry = configure(OPTIONS, otlp_receiver.environment())
    with telemetry.span("flow"):
        carrier = telemetry.carrier()
    script = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure
        telemetry = configure(TelemetryOptions(), os.environ)
        with telemetry.attached({carrier!r}), telemetry.span("worker"):
            pass
        assert telemetry.shutdown() is None
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PATH": "/usr/bin:/bin", **otlp_receiver.environment()},
        timeout=60,
        check=True,
    )
    telemetry.shutdown()
    flow, worker = otlp_receiver.span("flow"), otlp_receiver.span("worker")
    assert (worker.trace_id, worker.parent_id) == (flow.trace_id, flow.span_id)
