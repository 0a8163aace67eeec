"""Deploying asks the server that is named as Prefect does, and shows no login."""

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.runs.running import ROOT
from tfgrpo.flows.commands.deploy import rule_of, set_up
from tfgrpo.stores.errors import PrefectUnavailable, SettingsError


class _Closed(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def closed():
    """Host and port of a server that lets nobody in."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def refusal_of(url: str, refusal: type[Exception], patience_s: float = 20.0) -> str:
    """All that deploying to this address shows, its refusal included."""
    shown: list[str] = []
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(refusal) as refused:
        shown.extend(text for _, text in set_up({"TFGRPO_HOME": str(ROOT)}, patience_s))
    return "\n".join([*shown, str(refused.value)])


def test_a_login_in_the_address_of_the_server_is_not_shown(closed):
    said = refusal_of(f"http://me:p@ss@{closed}/api", PrefectUnavailable)
    assert f"'401 Unauthorized' for url 'http://{closed}/api/work_pools/tfgrpo'" in said
    assert "ss@" not in said


def test_a_server_that_prefect_reaches_through_a_proxy_is_reached(closed, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://{closed}")
    assert "401" in refusal_of("http://prefect.invalid/api", PrefectUnavailable)


def test_an_address_that_is_none_is_refused_at_once_with_the_reason():
    assert "unsupported protocol 'localhost://'" in refusal_of("localhost:4200/api", SettingsError, 3600.0)


def test_a_folder_without_deployments_is_refused_by_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"the current directory, as TFGRPO_HOME is not set: got .*a checkout"):
        next(set_up({}, 1.0))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("epochs: 1", "my.yaml: tfgrpo.epochs: got 1; accepted"),
        ("no_such: 1", "my.yaml: tfgrpo.no_such: got an unknown key"),
        (None, "got 'my.yaml', where no file is"),
    ],
)
def test_a_pipeline_with_which_no_night_could_begin_is_refused_before_anything_is_made(tmp_path, written, said):
    text = (ROOT / "prefect.yaml").read_text().replace("pipeline: tfgrpo-learning", "pipeline: my.yaml")
    (tmp_path / "prefect.yaml").write_text(text)
    if written is not None:
        (tmp_path / "my.yaml").write_text(f"task_id: mine\ntfgrpo:\n  {written}\n")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}), pytest.raises(SettingsError) as refused:
        next(set_up({"TFGRPO_HOME": str(tmp_path)}, 1.0))
    assert "prefect.yaml, deployment nightly: " in str(refused.value)
    assert said in str(refused.value)


def test_what_the_deployments_would_run_is_said_first(tmp_path):
    text = (ROOT / "prefect.yaml").read_text().replace("pipeline: tfgrpo-learning", "pipeline: my.yaml", 1)
    (tmp_path / "prefect.yaml").write_text(text)
    (tmp_path / "my.yaml").write_text("task_id: mine\nmodel: {name: m, base_url: http://127.0.0.1:9/v1}\n")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        findings = set_up({"TFGRPO_HOME": str(tmp_path)}, 1.0)
        _, *runs = [next(findings)[1] for _ in range(3)]
    assert runs == [
        "nightly: task mine, m; it learns NOTHING, as tfgrpo.enabled is off",
        "tfgrpo-learning: task tfgrpo-learning, the SIMULATED model",
    ]


def test_a_schedule_is_shown_as_when_it_fires():
    assert rule_of(CronSchedule(cron="30 1 * * *", timezone="Europe/Berlin")) == "30 1 * * * Europe/Berlin"
    assert rule_of(CronSchedule(cron="30 1 * * *")) == "30 1 * * * UTC"
    assert rule_of(IntervalSchedule(interval=timedelta(minutes=90))) == "every 1:30:00"
    weekly = RRuleSchedule(rrule="DTSTART:20261101T013000\nRRULE:FREQ=WEEKLY;BYDAY=MO,TH", timezone="Europe/Berlin")
    assert rule_of(weekly) == "DTSTART:20261101T013000 RRULE:FREQ=WEEKLY;BYDAY=MO,TH Europe/Berlin"
