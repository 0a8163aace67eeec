"""Which environment sends telemetry where, and what becomes of values that this program does not speak."""

import io
import logging
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.records.telemetry_records import OPTIONS, one_rollout, record_everything
from tfgrpo.stores.errors import ConfigError
from tfgrpo.stores.telemetry.export import Target, find_target
from tfgrpo.stores.telemetry.setup import configure

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("signal", "endpoint", "more"),
    [
        ("", "collector:4318", {}),
        ("TRACES_", "ftp://x", {}),
        ("", "http://collector:99999", {}),
        ("METRICS_", "http://[::1", {}),
        ("", "collector:port", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
    ],
)
def test_an_invalid_endpoint_is_refused_by_name(signal, endpoint, more):
    named = f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT"
    with pytest.raises(ConfigError) as caught:
        configure(OPTIONS, {**ENDPOINT, named: endpoint, **more})
    (problem,) = caught.value.problems
    assert (problem.source, "http://" in problem.accepted) == (named, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_METRIC_EXPORT_INTERVAL", "-5"), ("OTEL_ATTRIBUTE_COUNT_LIMIT", "x")],
)
def test_what_the_sdk_refuses_of_the_environment_is_a_settings_error(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"OTEL_\*: got .*; accepted: values that the OpenTelemetry SDK takes"):
        configure(OPTIONS, ENDPOINT | {name: value})


OTLP = Target("otlp", "http://127.0.0.1:4318/v1/traces")


@pytest.mark.parametrize(
    ("extra", "target", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "otlp,console"}, OTLP, "traces go by otlp alone"),
        ({"OTEL_TRACES_EXPORTER": " Console , zipkin"}, Target("console"), "traces go by console alone"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, None, "no traces are sent"),
        ({"OTEL_TRACES_EXPORTER": "otlp,none"}, None, ""),
        ({"OTEL_TRACES_EXPORTER": "OTLP"}, OTLP, ""),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "HTTP/protobuf"}, OTLP, ""),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, OTLP, "http/protobuf is used"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "10000"}, replace(OTLP, timeout_s=10.0), ""),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "600000"}, replace(OTLP, timeout_s=60.0), ""),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "7.5"}, replace(OTLP, timeout_s=7.5), ""),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "0"}, OTLP, "not a time above 0, so 2.5 s is used"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "nan"}, OTLP, "not a time above 0, so 2.5 s is used"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, OTLP, "not a time above 0, so 2.5 s is used"),
    ],
)
def test_unsupported_values_are_warnings(extra, target, said):
    warnings: list[str] = []
    assert find_target(ENDPOINT | extra, "traces", warnings.append) == target
    assert len(warnings) == bool(said)
    (variable,) = extra
    assert all(variable in warning and said in warning for warning in warnings)


@pytest.mark.parametrize("signal", ["TRACES", "METRICS"])
def test_grpc_without_its_extra_is_one_clear_error(signal, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    env = {f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT": "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ConfigError, match=r"pip install 'tfgrpo\[grpc\]'"):
        configure(OPTIONS, env)


def test_grpc_is_used_with_its_extra(monkeypatch):
    made: list[dict[str, object]] = []

    def spans(**options: object) -> InMemorySpanExporter:
        made.append(options)
        return InMemorySpanExporter()

    def metrics(**options: object) -> ConsoleMetricExporter:
        made.append(options)
        return ConsoleMetricExporter(out=io.StringIO())

    package = "opentelemetry.exporter.otlp.proto.grpc"
    for name, kind, fake in (("", "", None), (".trace_exporter", "Span", spans), (".metric_exporter", "Metric", metrics)):
        module = ModuleType(f"{package}{name}")
        vars(module)[f"OTLP{kind}Exporter"] = fake
        monkeypatch.setitem(sys.modules, module.__name__, module)
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
    }
    telemetry = configure(OPTIONS, env)
    one_rollout(telemetry)
    record_everything(telemetry)
    telemetry.collect(wait_s=10.0)
    assert telemetry.shutdown() is None
    assert made == [{"endpoint": "collector:4317", "timeout": 2.5, "headers": (("x-tenant", "blue"),)}] * 2


def test_otlp_without_an_endpoint_is_off_with_a_warning_for_the_caller_alone(caplog):
    with caplog.at_level(logging.WARNING, "tfgrpo.telemetry"):
        telemetry = configure(OPTIONS, {"OTEL_TRACES_EXPORTER": "otlp"})
    assert not telemetry.active
    (warning,) = telemetry.warnings
    assert "no OTEL_EXPORTER_OTLP_ENDPOINT is set" in warning
    assert not caplog.records


def test_destinations_are_named_without_credentials():
    secret, bare = Target("otlp", "https://user:pw@collector.example/v1/traces"), Target("otlp", "collector:4317", "grpc")
    assert [each.where for each in (Target("console"), secret, bare)] == ["the console", "collector.example", "collector:4317"]
