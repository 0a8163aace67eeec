"""The dashboard, the alerts and the queries of docs/observability.md ask for metrics and labels that a run exports.

A real VictoriaMetrics and a real Prometheus answer them where there are such: ``make test-metrics`` fetches both.
"""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.support.records.otlp_receiver import OtlpReceiver
from tests.support.runs.machine import free_port, until
from tests.support.runs.pages import ROOT, blocks
from tests.support.runs.running import LEARNING, TASK, run

pytestmark = pytest.mark.xdist_group("observability")
DASHBOARD: Final = json.loads((ROOT / "ops/dashboard.json").read_text(encoding="utf-8"))
RULES: Final = [rule for group in yaml.safe_load((ROOT / "ops/alerts.yaml").read_text())["groups"] for rule in group["rules"]]
PANELS: Final = {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
}
(_BLOCK,) = blocks("docs/observability.md", "promql")
QUERIES: Final = dict(re.findall(r"^# \d+\. (.+)\n(.+)$", _BLOCK.text, re.MULTILINE))
EVERYTHING: Final = PANELS | QUERIES | {rule["alert"]: rule["expr"] for rule in RULES}
ASKED: Final = {**LEARNING, "max_calls": 1000, "max_usd": 1.0}
_UNITS: Final = {"s": "_seconds", "USD": "_USD"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Names of time series, and of labels, as Prometheus and VictoriaMetrics make them of what a run sends."""
    with pytest.MonkeyPatch.context() as patch, OtlpReceiver() as receiver:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        assert run(tmp_path_factory.mktemp("out"), **ASKED).exit_code == 0
        points, resource = receiver.points(), receiver.series_resource()
    series = set()
    for point in points:
        name = point.metric.replace(".", "_") + _UNITS.get(point.unit, "")
        gauge = name + "_ratio" * (point.unit == "1")
        series |= {"histogram": {f"{name}_bucket", f"{name}_sum", f"{name}_count"}, "sum": {f"{name}_total"}, "gauge": {gauge}}[
            point.kind
        ]
    keys = {key for point in points for key in point.attributes} | {*resource, "le"}
    return series, {key.replace(".", "_") for key in keys}


@pytest.mark.parametrize("title", EVERYTHING)
def test_a_query_asks_for_what_a_run_exports(exported, title):
    series, labels = exported
    groups = re.findall(r"\{([^}]*)\}|by \(([^)]*)\)", EVERYTHING[title])
    used = {word for group in groups for word in re.findall(r"(\w+)\s*(?:=|!=|,|$)", re.sub(r'"[^"]*"', "", "".join(group)))}
    asked = set(re.findall(r"\b(?:tfgrpo|gen_ai)_\w+", re.sub(r"\{[^}]*\}|by \([^)]*\)", "", EVERYTHING[title])))
    assert asked
    assert asked <= series
    assert used <= labels


def test_what_the_dashboard_lets_one_choose_is_exported(exported):
    series, labels = exported
    asked = [re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]) for each in DASHBOARD["templating"]["list"][1:]]
    assert {(match[1] in series, match[2] in labels) for match in asked if match} == {(True, True)}
    assert None not in asked


def test_panels_have_their_own_places_and_numbers():
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_page_has_ten_queries_and_every_alert_says_what_to_do():
    assert len(QUERIES) == 10
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "summary" in rule["annotations"]


def program(name: str) -> str:
    """Return the path of a program of a database, or skip the test."""
    path = ROOT / ".venv/metrics/usr/bin" / name
    if not path.is_file():
        pytest.skip(f"no {name} here: `make test-metrics` fetches it")
    return str(path)


class Database:
    """A database of metrics: where it takes them, and where it is asked."""

    def __init__(self, sent_to: str, asked_at: str) -> None:
        self._sent_to, self._asked_at = sent_to, asked_at
        self.health = (f"{sent_to}/health", f"{asked_at}/-/healthy")

    def send(self, patch: pytest.MonkeyPatch, out: Path, **asked: Any) -> str:
        """Do a run that sends its metrics there, and return its status."""
        patch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{self._sent_to}/opentelemetry/v1/metrics")
        summary = run(out, **{**ASKED, **asked})
        assert not [text for text in summary.details.get("warnings", ()) if "telemetry" in text]
        return summary.status

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return what a query finds in a minute: subqueries look at whole minutes."""
        asked = {"query": query, "nocache": "1", "time": f"{time.time() + 60:.0f}"}
        answer = httpx.get(f"{self._asked_at}/api/v1/query", params=asked).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


def _victoria_metrics(home: Path) -> tuple[Database, list[list[str]]]:
    at = f"127.0.0.1:{free_port()}"
    command = [
        program("victoria-metrics"), f"-storageDataPath={home / 'data'}", f"-httpListenAddr={at}",
        "-opentelemetry.usePrometheusNaming", "-search.latencyOffset=0s", "-retentionPeriod=100d",
    ]  # fmt: skip
    return Database(f"http://{at}", f"http://{at}"), [command]


def _prometheus(home: Path) -> tuple[Database, list[list[str]]]:
    """Return Prometheus behind an agent that takes OTLP, for which Debian builds Prometheus without the receiver."""
    at, agent = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (home / "prometheus.yml").write_text("")
    return Database(f"http://{agent}", f"http://{at}"), [
        [
            program("prometheus"), f"--config.file={home / 'prometheus.yml'}", f"--web.listen-address={at}",
            f"--storage.tsdb.path={home / 'data'}", "--web.enable-remote-write-receiver",
        ],
        [
            program("vmagent"), f"-remoteWrite.url=http://{at}/api/v1/write", f"-httpListenAddr={agent}",
            f"-remoteWrite.tmpDataPath={home / 'agent'}", "-opentelemetry.usePrometheusNaming",
        ],
    ]  # fmt: skip


@pytest.fixture(scope="module", params=[_victoria_metrics, _prometheus])
def database(request, tmp_path_factory):
    """After two nights, and one that was refused."""
    home = tmp_path_factory.mktemp("database")
    database, commands = request.param(home)
    started = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for each in commands]
    try:
        until(lambda: all(map(_answers, database.health)), "the database to answer")
        with pytest.MonkeyPatch.context() as patch:
            for night in range(2):
                assert database.send(patch, home / "out", run_id=f"night-{night}") == "finished"
            assert database.send(patch, home / "out", dataset=str(home / "gone.jsonl")) == "refused"
        ended = f'count_over_time(tfgrpo_run_ended_total{{tfgrpo_task_id="{TASK}"}}[1h])'
        until(lambda: len(database.ask(ended)) >= 2, "the metrics to be searchable")
        yield database
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(20)
        shutil.rmtree(home, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("title", [*PANELS, *QUERIES])
def test_a_real_database_answers_each_query(database, title):
    query = EVERYTHING[title].replace("$task", ".*").replace("$simulated", ".*").replace('"false"', '"true"')
    quiet = "Which tasks have had no night"
    assert bool(database.ask(query)) != title.startswith(quiet)


def test_a_sample_is_an_end_and_no_run_is_a_label_of_it(database):
    found = database.ask("sum by (tfgrpo_run_status) (count_over_time(tfgrpo_run_ended_total[1h]))")
    assert {row["metric"]["tfgrpo_run_status"]: row["value"][1] for row in found} == {"finished": "2", "refused": "1"}
    named = database.ask('count by (__name__) ({tfgrpo_run_id!=""})')
    assert [row["metric"]["__name__"] for row in named] == ["tfgrpo_run_info_ratio"]


ENDED: Final = '{__name__="tfgrpo_run_ended_total", tfgrpo_task_id="t", tfgrpo_run_status="%s"}'
NIGHTS: Final = [  # time series by the minute, and the rules that find something at an hour
    ({"finished": "1 _x1499"}, 25, []),
    ({"finished": "1 _x1999"}, 27, ["TfgrpoNoNight"]),
    ({"finished": "1 _x1439 1 _x1440"}, 30, []),
    ({"failed": "1 _x1439"}, 0.5, ["TfgrpoNightFailed"]),
    ({"refused": "1 _x1439"}, 0.5, ["TfgrpoNightFailed"]),
    ({"failed": "1 _x1439"}, 2, []),
]


@pytest.mark.parametrize(
    ("tester", "arguments", "language"),
    [("vmalert-tool", ["unittest", "--files"], "metricsql"), ("promtool", ["test", "rules"], "promql")],
)
@pytest.mark.parametrize(("series", "hour", "alerts"), NIGHTS)
def test_the_rules_fire_for_nights_that_failed_or_are_missing(tmp_path, series, hour, alerts, tester, arguments, language):
    asked = [
        {
            "expr": f"count({EVERYTHING[rule]})",
            "eval_time": f"{hour * 60:g}m",
            "exp_samples": [{"value": 1}] if rule in alerts else [],
        }
        for rule in ("TfgrpoNoNight", "TfgrpoNightFailed")
    ]
    sent = [{"series": ENDED % status, "values": values} for status, values in series.items()]
    # The expressions are asked at one moment: evaluating the rules minute by minute until then takes half a minute.
    rarely = {"groups": [{"name": "tfgrpo", "interval": "30d", "rules": RULES}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rarely))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "10m",
        "tests": [{"interval": "1m", "input_series": sent, f"{language}_expr_test": asked}],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    command = [program(tester), *arguments, str(tmp_path / "tests.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("check", [["vmalert", "-dryRun", "-rule"], ["promtool", "check", "rules"]])
def test_alerting_accepts_the_rules(check):
    command = [program(check[0]), *check[1:], str(ROOT / "ops/alerts.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
