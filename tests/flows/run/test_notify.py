"""Somebody is notified of the end of a run: by the webhook of the settings, and by the metrics that leave at the end."""

import json
import time
from unittest.mock import Mock

import pytest

from tests.support.runs.running import LEARNING, RUN, SMALL, TASK, At, interrupt, manifest, paths, run
from tests.support.runs.webhook import Webhook
from tfgrpo.flows import cli
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.flows.run import close as notifying
from tfgrpo.flows.run.close import events_of
from tfgrpo.stores.errors import RunAborted, StoreError
from tfgrpo.stores.runs import ManifestFile

URL = "env:NIGHT_HOOK"


@pytest.fixture
def hook(monkeypatch):
    with Webhook() as hook:
        monkeypatch.setenv("NIGHT_HOOK", hook.url)
        yield hook


def ends(error: BaseException) -> At:
    """What ends a run in its first epoch."""

    def end(*_: object) -> None:
        raise error

    return At("epoch_started", end)


class Cancelled(BaseException):
    """As Prefect cancels a run."""


ENDS = {
    "finished": (None, LEARNING),
    "capped": (None, {**SMALL, "max_calls": 10}),
    "failed": (RunAborted("broken"), SMALL),
    "interrupted": (KeyboardInterrupt(), SMALL),
    "cancelled": (Cancelled(), SMALL),
}
STATUS = {"finished": "finished", "failed": "failed"}
STOPPED = {"notify__url": URL, "notify__on": '["stopped"]'}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_leaves_once_in_the_metrics_and_is_posted_once(tmp_path, monkeypatch, otlp_receiver, hook, end):
    for name, value in otlp_receiver.environment().items():
        monkeypatch.setenv(name, value)
    error, asked = ENDS[end]
    every = '["finished", "stopped", "failed"]'
    options = {"max_calls": 1000, **asked, "notify__url": URL, "notify__on": every}
    summary = run(tmp_path, run_id=RUN, observer=error and ends(error), **options)
    status = STATUS.get(end, "stopped")
    (point,) = otlp_receiver.points("tfgrpo.run.ended")
    assert (summary.status, point.value) == (status, 1)
    decision = {"tfgrpo.run.decision": "in force"} if end == "finished" else {}
    task = {"tfgrpo.simulated": True}
    assert point.attributes == {**task, "tfgrpo.run.status": status, **decision}
    (used,) = otlp_receiver.points("tfgrpo.budget.used")
    assert used.attributes == {**task, "tfgrpo.budget.cap": "max_calls"}
    assert used.value == pytest.approx(summary.details["ledger"]["calls"] / options["max_calls"])
    (body,) = hook.bodies
    assert (body["status"], body["run_id"], body["task_id"]) == (status, RUN, TASK)
    assert body["lines"] == summary.details["morning"]["lines"]
    assert body["exit_code"] == summary.exit_code
    assert [line.partition(":")[0] for line in body["text"].splitlines()] == [line["label"] for line in body["lines"]]
    runs = [point.metric for point in otlp_receiver.points() if "tfgrpo.run.id" in point.attributes]
    assert runs == ["tfgrpo.run.info"]
    (cost,) = otlp_receiver.points("tfgrpo.run.cost")
    assert cost.value == pytest.approx(summary.details["ledger"]["nano_usd"] / 1e9)
    if end == "finished":
        check_the_gain_is_that_of_the_decision(otlp_receiver, summary.details["decision"])


def check_the_gain_is_that_of_the_decision(receiver, decision):
    sent = {name: receiver.points(f"tfgrpo.gain{name}")[0].value for name in ("", ".low", ".high")}
    assert sent == {"": decision["total"]["mean"], **{f".{name}": decision["total"][name] for name in ("low", "high")}}
    rewards = {
        point.attributes["tfgrpo.arm"]: point.value / point.count
        for point in receiver.points("tfgrpo.reward")
        if (point.attributes["tfgrpo.phase"], point.attributes["tfgrpo.rewarder"]) == ("eval", "gt")
    }
    assert rewards == pytest.approx({arm: decision["rewards"][arm]["mean"] for arm in ("none", "library")})


@pytest.mark.parametrize("entry", ["decision", "stages"])
def test_an_end_that_the_disk_refuses_is_told_all_the_same(tmp_path, monkeypatch, otlp_receiver, hook, entry):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.url)
    update = ManifestFile.update

    def until_full(manifest, **fields):
        if entry in fields:
            raise StoreError("no space left on device")
        return update(manifest, **fields)

    monkeypatch.setattr(ManifestFile, "update", until_full)
    summary = run(tmp_path, run_id=RUN, notify__url=URL, notify__on='["finished", "failed"]', **SMALL)
    assert summary.exit_code == 1
    assert summary.message == "the run could not be closed: StoreError: no space left on device"
    assert [point.attributes["tfgrpo.run.status"] for point in otlp_receiver.points("tfgrpo.run.ended")] == ["failed"]
    (body,) = hook.bodies
    assert [line["text"] for line in body["lines"]] == [f"failed (task {TASK})", summary.message]
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).status == "finished"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Cancelled()], ids=["interrupted", "cancelled"])
@pytest.mark.parametrize(("where", "status", "told"), [("write_report", "stopped", ["stopped"]), ("_post", "finished", [])])
def test_what_comes_while_the_books_close_leaves_one_end_that_the_manifest_has_too(
    tmp_path, monkeypatch, hook, capsys, where, status, told, error
):
    asked = {"notify__url": URL, "notify__on": '["finished", "stopped"]', **SMALL}
    with monkeypatch.context() as patched:
        patched.setattr(notifying, where, Mock(side_effect=error))
        summary = run(tmp_path, run_id=RUN, **asked)
    assert (summary.status, summary.error) == (status, type(error).__name__)
    assert summary.signal is (error if isinstance(error, Cancelled) else None)
    assert ([body["status"] for body in hook.bodies], manifest(tmp_path, RUN)["status"]) == (told, status)
    assert manifest(tmp_path, RUN)["files"].keys() >= {"rollouts.jsonl", "journal.jsonl"}
    assert run(tmp_path, resume=RUN).status == "finished"
    assert [body["status"] for body in hook.bodies] == ([*told, "finished"] if told else [])


def test_a_run_that_is_killed_while_its_books_close_is_told_of_by_the_next_night(tmp_path, hook, capsys):
    asked = {"notify__url": URL, "notify__on": '["finished"]', **SMALL}
    run(tmp_path, run_id=RUN, **SMALL)
    path = paths(tmp_path, RUN).manifest
    path.write_text(json.dumps({**json.loads(path.read_text()), "files": {}, "task_files": {}}))
    place = ("--task-id", TASK, "--out", str(tmp_path))
    assert cli.main(["runs", "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["state"] == "unfinished"
    run(tmp_path, run_id="next", flow_run_id="next", **asked)
    assert [body["run_id"] for body in hook.bodies] == [RUN, "next"]
    assert manifest(tmp_path, RUN)["files"].keys() >= {"rollouts.jsonl"}


def test_a_run_that_had_finished_is_reported_again_neither_when_it_is_resumed_nor_replayed(
    tmp_path, monkeypatch, otlp_receiver, hook
):
    asked = {"notify__url": URL, "notify__on": '["finished"]'}
    run(tmp_path, run_id=RUN, **SMALL, **asked)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.url)
    for again in ({"resume": RUN}, {"replay": RUN, **asked}):
        assert run(tmp_path, **again).status == "finished"
        assert (len(hook.bodies), otlp_receiver.points("tfgrpo.run.ended")) == (1, [])


@pytest.mark.parametrize(
    ("details", "status", "events"),
    [
        ({"decision": {"decision": "in force"}, "morning": {"added": ["a"]}}, "finished", {"finished", "in force"}),
        ({"decision": {"decision": "in force"}, "morning": {"removed": ["a"]}}, "finished", {"finished", "in force"}),
        ({"decision": {"decision": "in force"}, "morning": {"added": []}}, "finished", {"finished"}),
        ({"decision": {"decision": "taken back"}}, "finished", {"finished", "taken back"}),
        ({"decision": {"decision": "not yet"}, "saturated": {"nights": 3}}, "finished", {"finished", "saturated"}),
        ({}, "stopped", {"stopped"}),
        ({}, "failed", {"failed"}),
        ({}, "refused", {"failed"}),
    ],
)
def test_what_happened_is_said_in_the_words_of_the_setting(details, status, events):
    assert events_of(RunSummary(status, RUN, "", details)) == events


def test_a_text_that_slack_would_read_as_an_order_is_escaped(hook, tmp_path):
    run(tmp_path, run_id=RUN, observer=ends(RunAborted("<!channel> & more")), notify__url=URL, **SMALL)
    (body,) = hook.bodies
    assert "&lt;!channel&gt; &amp; more" in body["text"]
    assert "<!channel> & more" in body["message"]


@pytest.mark.parametrize(
    ("codes", "posts", "why"),
    [
        ([500, 429], 3, None),
        ([503, 503, 503], 3, "HTTP 503"),
        ([404], 1, "HTTP 404"),
        ([301], 1, "HTTP 301"),
        ([None, None, None], 3, "ReadTimeout"),
    ],
)
def test_a_webhook_that_fails_is_asked_again_and_is_a_warning(tmp_path, monkeypatch, hook, codes, posts, why):
    monkeypatch.setattr(notifying, "_PAUSES_S", (0.0, 0.01, 0.01))
    monkeypatch.setattr(notifying, "_ATTEMPT_S", 0.3)
    hook.codes = codes
    stopping, env = At("epoch_started", interrupt), {"NIGHT_HOOK": hook.url}
    summary = run(tmp_path, run_id=RUN, observer=stopping, env=env, **STOPPED, **SMALL)
    assert (summary.status, summary.exit_code, len(hook.bodies)) == ("stopped", 3, posts)
    warned = [text for text in manifest(tmp_path)["warnings"] if "notify.url" in text]
    assert warned == ([] if why is None else [f"{notifying_of('NIGHT_HOOK')}: {why}"])
    assert [text for text in summary.details["warnings"] if "notify.url" in text] == warned
    shown = json.dumps(summary.as_json()) + json.dumps(manifest(tmp_path))
    assert "xyzzy" not in shown
    assert not warned or warned[0] in [*summary.details["morning"]["look"]]


def notifying_of(variable: str) -> str:
    return f"the end of the run was not reported to the webhook of notify.url ({variable})"


@pytest.mark.parametrize(
    ("value", "why"),
    [("", "is not set"), ("http://127.0.0.1:9/x", "ConnectError"), ("no address", "UnsupportedProtocol"),
     ("http://[::1", "InvalidURL")],
)  # fmt: skip
def test_a_webhook_that_is_none_changes_no_end_of_a_run(tmp_path, monkeypatch, value, why):
    monkeypatch.setenv("NIGHT_HOOK", value)
    monkeypatch.setattr(notifying, "_PAUSES_S", (0.0, 0.01, 0.01))
    summary = run(tmp_path, run_id=RUN, observer=At("epoch_started", interrupt), **STOPPED, **SMALL)
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    warned = next(text for text in manifest(tmp_path)["warnings"] if text.startswith("the end of the run"))
    assert warned.startswith(notifying_of("NIGHT_HOOK"))
    assert why in warned


def test_a_webhook_that_answers_for_ever_is_left_after_the_limit(tmp_path, monkeypatch, hook):
    monkeypatch.setattr(notifying, "_LIMIT_S", 0.3)
    hook.codes = [None]
    began = time.monotonic()
    summary = run(tmp_path, run_id=RUN, observer=ends(RunAborted("x")), notify__url=URL, **SMALL)
    assert time.monotonic() - began < 30.0, "it answers for ever"
    assert f"{notifying_of('NIGHT_HOOK')}: no answer within 0.3 s" in summary.details["warnings"]


def test_a_run_that_never_began_is_counted_and_posted(tmp_path, monkeypatch, hook, otlp_receiver, capsys):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.url)
    summary = run(tmp_path, run_id=RUN, notify__url=URL, **SMALL | {"dataset": str(tmp_path / "gone.jsonl")})
    assert (summary.status, len(hook.bodies)) == ("refused", 1)
    assert cli.main(["run", "--out", str(tmp_path), "--dataset", "gone.jsonl", "--set", f"notify.url={URL}"]) == 2
    for body, task in zip(hook.bodies, (TASK, "gone"), strict=True):  # the second has the task of its data
        assert (body["status"], body["events"], body["exit_code"]) == ("refused", ["failed"], 2)
        assert f"refused before it began (task {task})" in body["text"]
        assert "gone.jsonl" in body["text"]
    (point,) = otlp_receiver.points("tfgrpo.run.ended")
    assert point.attributes["tfgrpo.run.status"] == "refused"


@pytest.mark.parametrize(
    "url", ["https://hooks.slack.com/services/T0/B0/xyzzy", "${NIGHT_HOOK}", "$NIGHT_HOOK", "env:", "env:a b", "xyzzy"]
)
def test_an_address_in_the_settings_is_refused_beside_all_other_problems_and_not_shown(tmp_path, url):
    summary = run(tmp_path, notify__url=url, notify__on='["promoted"]', group_size=0)
    assert summary.status == "refused"
    sources = {problem["source"] for problem in summary.details["problems"]}
    assert sources == {"--set notify.url", "--set notify.on.0", "--group-size"}
    assert "env:NAME" in summary.message
    assert "xyzzy" not in summary.message
    assert "finished, stopped, failed, in force, taken back or saturated" in summary.message
