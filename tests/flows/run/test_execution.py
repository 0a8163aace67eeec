"""Every end of a run is a summary with an exit code, whatever breaks on the way."""

import json
import math
import re
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from filelock import FileLock

from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.prefect_proxy import PrefectProxy
from tests.support.runs.running import RUN, SMALL, TASK, At, Server, interrupt, lines, manifest, on_server, paths, request, run
from tests.support.runs.webhook import Webhook
from tfgrpo.flows.console.observer import Observer, Observers
from tfgrpo.flows.run import close as closing
from tfgrpo.flows.run import execution
from tfgrpo.flows.run.index import runs_of
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.runtime.host import close_runtime
from tfgrpo.tasks.shapes import Frame, Trajectory

FULL = "StoreError: experiences.jsonl: no space left on device"
LOCKS = "OSError: [Errno 37] No locks available"
UNCLOSED = "interrupted before its books were closed"


def broken(*_args, **_kwargs):
    raise StoreError(FULL.removeprefix("StoreError: "))


def no_lock(*_args, **_kwargs):
    raise OSError(37, "No locks available")


ENDS = {
    "opening": (execution.ManifestFile, "update", broken, ("failed", 1, f"the run could not be opened: {FULL}"), None),
    "learning": (ExperienceStore, "record_batch", broken, ("failed", 1, FULL), f"--resume {RUN}"),
    "closing": (execution, "close_books", no_lock, ("failed", 1, f"the run could not be closed: {LOCKS}"), f"--resume {RUN}"),
    "interrupt": (closing, "check_spec", interrupt, ("stopped", 3, UNCLOSED), f"--resume {RUN}"),
}


@pytest.mark.parametrize(("place", "name", "breaks", "ended", "goes_on"), ENDS.values(), ids=ENDS)
def test_what_breaks_ends_a_run_in_one_sentence_and_it_goes_on(tmp_path, monkeypatch, place, name, breaks, ended, goes_on):
    monkeypatch.setattr(place, name, breaks)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code, summary.message) == ended
    assert summary.details.get("resume with") == goes_on
    monkeypatch.undo()
    again = run(tmp_path, **({"run_id": RUN, **SMALL} if goes_on is None else {"resume": RUN}))
    assert again.exit_code == 0, "the run is not locked"
    assert paths(tmp_path).report.exists()


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (SettingsError.one("--task-runner", "ray", "threads"), ("refused", 2, [])),
        (OSError("no port"), ("failed", 1, [("failed", "the run could not be opened: OSError: no port")])),
    ],
)
def test_a_task_runner_that_cannot_be_had_ends_the_run_before_it_began(tmp_path, error, ended):
    @contextmanager
    def without(plan):
        raise error
        yield

    summary = execution.execute(request(tmp_path, run_id=RUN), {}, Observers(), without, clock=utc_now)
    listed = [(entry.state, entry.message) for entry in runs_of(TaskPaths.of(tmp_path, TASK))]
    assert (summary.status, summary.exit_code, listed) == ended
    assert summary.run_id == RUN


class _Unclosable(Observers):
    def closed(self):
        raise RuntimeError("the pipe is gone")


def test_a_resource_that_cannot_be_closed_is_a_warning_and_the_status_stays(tmp_path, monkeypatch):
    def unclosed(context):
        close_runtime(context)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(execution, "close_runtime", unclosed)
    summary = run(tmp_path, run_id=RUN, observer=_Unclosable(), **SMALL)
    assert (summary.status, summary.exit_code) == ("finished", 0)
    warnings = manifest(tmp_path)["warnings"]
    assert "an observer could not be closed: RuntimeError: the pipe is gone" in warnings
    assert "the runtime could not be closed: OSError: [Errno 28] No space left on device" in warnings
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0, "the run is not locked"


def half_a_character(prompt):
    """An agent whose error holds half of a surrogate pair, as a broken decoder leaves it."""
    raise ValueError(f"cannot read {prompt[:3]} \ud83d")


def no_number(prompt):
    """An agent that does not know what it cost."""
    return Trajectory(prompt, (Frame("model", "m", "x", 1, math.nan, 1.0),))


@pytest.mark.parametrize("agent", ["half_a_character", "no_number"])
def test_what_no_file_can_hold_costs_its_attempt_and_not_the_run(tmp_path, agent):
    more = {"tfgrpo__max_lost_share": 1.0, "allow_zero": True, "actor__kind": f"tests.flows.run.test_execution:{agent}"}
    summary = run(tmp_path, run_id=RUN, **SMALL, **more)
    assert summary.message.startswith("RunAborted: not one of 16 rollouts of epoch 1 brought a reward")
    assert summary.details["lost"] == {"rollouts": 16, "of": 16}
    assert run(tmp_path, resume=RUN).message == summary.message


def test_a_grading_service_that_is_down_stops_the_run_after_one_batch(tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        options = {"url": f"http://127.0.0.1:{nobody.getsockname()[1]}/grade", "retries": 0}
        summary = run(tmp_path, rewarders=json.dumps([{"name": "remote", "options": options}]), **SMALL)
    assert (summary.status, summary.details["ledger"]["calls"]) == ("failed", 8)
    assert "rewarder_broke: remote: " in summary.message


def test_rewards_outside_the_score_range_are_a_warning_in_the_first_batch(tmp_path):
    rewarders = json.dumps([{"name": f"{EXAMPLES}:out_of_range"}])
    summary = run(tmp_path, run_id=RUN, rewarders=rewarders, observer=At("epoch_ended", interrupt), **SMALL)
    assert summary.status == "stopped"
    assert [text for text in summary.details["warnings"] if "outside 0 to 1, their declared range" in text]


def test_an_interrupt_at_any_moment_stops_the_run_without_loss(tmp_path):
    for moment in ("run_started", "group_done", "epoch_ended"):
        asked = {"resume": RUN} if paths(tmp_path).root.exists() else {"run_id": RUN, **SMALL}
        summary = run(tmp_path, observer=At(moment, interrupt), **asked)
        assert (summary.status, summary.exit_code) == ("stopped", 3)
        assert summary.details["resume with"] == f"--resume {RUN}"
        assert paths(tmp_path).report.exists()
    assert run(tmp_path, resume=RUN).exit_code == 0


def test_an_unexpected_error_fails_the_run_with_its_books_closed_and_shows_no_key(tmp_path, monkeypatch):
    secret = "sk-very-secret-indeed-0123"

    def broken(*_args, **_kwargs):
        raise LookupError(f"no {secret}")

    monkeypatch.setenv("OPENAI_API_KEY", secret)
    monkeypatch.setattr(execution, "learn", broken)
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server))
    assert (summary.status, summary.message) == ("failed", "LookupError: no ***")
    assert summary.details["resume with"] == f"--resume {RUN}"
    assert manifest(tmp_path)["status"] == "failed"
    assert manifest(tmp_path)["traceback"].endswith("LookupError: no ***\n")
    assert secret not in paths(tmp_path).manifest.read_text() + summary.message + paths(tmp_path).report.read_text()


class Waits(Observer):
    """What a run waits for."""

    def __init__(self, then):
        self.said, self.then = [], [then]

    def waiting(self, what):
        self.said.append(what)
        while self.then:
            threading.Thread(target=self.then.pop(), daemon=True).start()


@contextmanager
def closed(server):
    """The address of a server that refuses every connection, and what opens it."""
    proxy, listener = PrefectProxy(server.url), socket.socket()
    proxy._listener.close()
    listener.bind(("127.0.0.1", 0))
    proxy._listener = listener
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", lambda: (listener.listen(), proxy._accept())
    proxy.become("gone")


@pytest.mark.parametrize("role", ["", "reflection."])
def test_a_run_waits_for_an_endpoint_that_refuses_connections_at_its_start(tmp_path, role):
    with Server() as server, closed(server) as (address, opened):
        waits = Waits(opened)
        asked = on_server(server, **{f"model__{role}base_url".replace(".", "__"): address})
        if not role:
            del asked["base_url"]
        summary = run(tmp_path, run_id=RUN, observer=waits, **asked)
    assert (summary.status, summary.exit_code) == ("finished", 0), summary.message
    assert waits.said[0].startswith(f"waiting for endpoint {address}, at most 20 s: no connection: ")
    assert waits.said[-1] == "the endpoint answers"


@pytest.mark.parametrize("deployed", [False, True])
def test_a_run_whose_endpoint_stays_away_fails_with_the_reason_and_can_be_resumed(tmp_path, monkeypatch, deployed):
    limit = 1.0  # far below that of any setting
    monkeypatch.setattr("tfgrpo.flows.run.prepare._DEPLOYED_WAIT_S", limit)
    asked = {**SMALL, "model": "simulated", "base_url": "http://nowhere.invalid/v1", "world": "arithmetic"}
    named = {"flow_run_id": "5e6f"} if deployed else {"model__wait_s": limit}
    began = time.monotonic()
    summary = run(tmp_path, run_id=RUN, **asked, **named)
    assert limit <= time.monotonic() - began < limit + 30.0
    assert (summary.status, summary.exit_code) == ("failed", 1)
    reason = f"ModelUnreachable: endpoint http://nowhere.invalid/v1 was unavailable for {limit:g} s: no connection"
    assert summary.message.startswith(reason)
    (entry,) = runs_of(TaskPaths.of(tmp_path, TASK))
    assert (entry.run_id, entry.state, entry.message, entry.night) == (RUN, "failed", summary.message, 1)
    with Server() as server:
        assert run(tmp_path, resume=RUN, base_url=server.url).exit_code == 0


def test_a_wrong_key_is_refused_at_once_beside_another_endpoint_that_is_away(tmp_path):
    def refusing(listener):
        client, _ = listener.accept()
        with client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refusing, args=(listener,), daemon=True).start()
        other = {"model__reflection__base_url": f"http://127.0.0.1:{listener.getsockname()[1]}/v1"}
        asked = {**SMALL, "model": "m", "base_url": "http://nowhere.invalid/v1", "world": "arithmetic"}
        summary = run(tmp_path, run_id=RUN, **asked, **other)
    assert (summary.status, summary.exit_code) == ("refused", 2)
    assert "401 from GET /models" in summary.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reported_after_s", [0.3, 60.0])
def test_an_endpoint_that_is_away_in_mid_run_loses_no_attempt_and_is_reported_when_it_takes_long(
    tmp_path, monkeypatch, reported_after_s
):
    monkeypatch.setattr("tfgrpo.tasks.models.retry.OUTAGE_S", reported_after_s)
    reported = reported_after_s < 1.0
    with Server() as server:
        until, waits = [], Waits(lambda: None)

        def away(number):
            if number == 12:
                until.append(time.monotonic() + 1.0)
            return 503 if until and (time.monotonic() < until[0] or (reported and not waits.said)) else None

        server.before_answer = away
        summary = run(tmp_path, run_id=RUN, observer=waits, **on_server(server, model__max_retries=0))
    assert (summary.status, summary.details["lost"]["rollouts"]) == ("finished", 0), summary.message
    assert server.answered[503] > 0
    if not reported:
        assert waits.said == []
        return
    silent, answers = waits.said
    assert re.fullmatch(
        rf"warning: endpoint {server.url} has not answered since \d\d:\d\d UTC; calls are asked again for up to 20 s", silent
    )
    assert re.fullmatch(r"the endpoint answers again, after \d+ s", answers)


def test_a_night_of_a_deployment_that_is_refused_is_listed_with_the_reason(tmp_path):
    asked = {"flow_run_id": "5e6f", "run_id": "5e6f", "task_id": "mine", **SMALL}
    summary = run(tmp_path, **asked, tfgrpo__group_size="many")
    assert (summary.status, summary.exit_code) == ("refused", 2)
    (entry,) = runs_of(TaskPaths.of(tmp_path, "mine"))
    assert (entry.run_id, entry.state, entry.night) == ("5e6f", "refused", None)
    assert entry.message == summary.message.replace("\n", "; ")
    again = run(tmp_path, **asked)
    assert again.exit_code == 0, again.message
    (entry,) = runs_of(TaskPaths.of(tmp_path, "mine"))
    assert (entry.state, entry.night, entry.message) == ("finished", 1, again.message)


def test_a_night_asked_for_with_no_name_of_a_task_is_refused(tmp_path):
    summary = run(tmp_path, flow_run_id="5e6f", run_id="5e6f", task_id="other task", **SMALL)
    assert summary.message.startswith("--task-id: got 'other task'; accepted: 1 to 100 of A-Z")
    assert (summary.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_a_night_does_not_wait_for_ever_for_another_one_that_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "_BEGINS_S", 0.2)
    task = TaskPaths.of(tmp_path, TASK)
    task.root.mkdir()
    with FileLock(task.root / ".lock"):
        summary = run(tmp_path, run_id="waits", **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert summary.message.endswith(f"Timeout: The file lock '{task.root / '.lock'}' could not be acquired.")
    assert [(entry.run_id, entry.state) for entry in runs_of(task)] == [("waits", "failed")]
    assert run(tmp_path, run_id="waits", **SMALL).exit_code == 0


def killed(out, run_id, max_calls=20, **asked):
    """A run that was killed after a few calls."""
    assert run(out, run_id=run_id, max_calls=max_calls, allow_zero=True, **SMALL, **asked).status == "stopped"
    path = paths(out, run_id).manifest
    content = json.loads(path.read_text())
    content["settings"]["budget"]["max_calls"] = 100_000
    path.write_text(json.dumps({**content, "status": "running", "message": None}))


def night(out, name, **asked):
    """A night of a deployment, with its warnings about others."""
    summary = run(out, flow_run_id=name, run_id=name, max_calls=100_000, **SMALL, **asked)
    return summary, [text for text in manifest(out, name)["warnings"] if "was killed" in text]


def test_a_night_of_a_deployment_resumes_one_that_was_killed_wherever_that_leaves_the_process_and_then_begins(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out, actor = tmp_path / "out", "tests.support.agents.rogues:moves_away"
    killed(out, "dead", max_calls=8, actor=actor)  # before the last attempts
    answered = paths(out, "dead").journal.read_bytes()
    monkeypatch.chdir(tmp_path)
    summary = run("out", flow_run_id="next", run_id="next", actor=actor, max_calls=100_000, **SMALL)
    assert (summary.status, summary.run_id) == ("finished", "next"), summary.message
    states = {entry.run_id: (entry.state, entry.night) for entry in runs_of(TaskPaths.of(out, TASK))}
    assert states == {"dead": ("finished", 1), "next": ("finished", 2)}
    first = f"run dead was killed before its end, and was resumed first: {manifest(out, 'dead')['message']}"
    assert [text for text in manifest(out, "next")["warnings"] if "was killed" in text] == [first]
    assert paths(out, "dead").journal.read_bytes().startswith(answered)
    assert manifest(out, "dead")["ended_at"] < manifest(out, "next")["started_at"]
    assert [row["run_id"] for row in lines(TaskPaths.of(out, TASK).promotions)] == ["dead", "next"]


def test_what_is_asked_for_of_another_night_changes_nothing_about_one_that_was_killed(tmp_path):
    killed(tmp_path, "dead")
    asked = {**SMALL, "epochs": 3, "seed": 7, "max_calls": 8, "allow_zero": True, "env": {"TFGRPO_GROUP_SIZE": "3"}}
    assert run(tmp_path, flow_run_id="adhoc", run_id="adhoc", **asked).status == "stopped"
    kept = manifest(tmp_path, "dead")
    assert kept["status"] == "finished"
    assert (kept["settings"]["tfgrpo"]["epochs"], kept["settings"]["budget"]["max_calls"]) == (2, 100_000)
    assert [text for text in manifest(tmp_path, "adhoc")["warnings"] if "resumed first" in text]


def lose_journal(place):
    place.journal.unlink()


def of_another_version(place):
    content = json.loads(place.manifest.read_text())
    content["settings"]["tfgrpo"]["gone"] = 1
    place.manifest.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "why"),
    [(lose_journal, "got dead, whose journal"), (of_another_version, "got 'dead'; accepted: a run whose settings")],
)
def test_a_killed_night_that_cannot_be_resumed_is_told_once_and_never_tried_again(tmp_path, monkeypatch, damage, why):
    killed(tmp_path, "dead")
    damage(paths(tmp_path, "dead"))
    with Webhook() as webhook:
        monkeypatch.setenv("NIGHT_HOOK", webhook.url)
        summary, said = night(tmp_path, "next", notify__url="env:NIGHT_HOOK")
    assert [(told["run_id"], told["events"]) for told in webhook.bodies] == [("dead", ["failed"])]
    assert summary.status == "finished"
    assert said[0].startswith(f"run dead was killed before its end, and was not resumed: --resume: {why}")
    assert manifest(tmp_path, "dead")["status"] == "failed"
    assert night(tmp_path, "after")[1] == []


def test_what_kills_each_night_that_resumes_a_run_is_met_once(tmp_path):
    killed(tmp_path, "dead")
    run(tmp_path, flow_run_id="next", run_id="next", observer=At("run_started", interrupt), **SMALL)
    path = paths(tmp_path, "dead").manifest
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))  # killed in place of the interrupt
    (entry,) = (entry for entry in runs_of(TaskPaths.of(tmp_path, TASK)) if entry.run_id == "next")
    assert (entry.state, entry.message) == ("failed", "ended while run dead was resumed, before it began")
    summary, said = night(tmp_path, "after")
    assert summary.status == "finished"
    assert said[0].startswith("run dead was killed before its end: `tfgrpo run --resume dead` goes on with it")


def test_a_night_that_is_cancelled_while_it_resumes_a_killed_one_is_reported_once(tmp_path, monkeypatch):
    killed(tmp_path, "dead")
    with Webhook() as webhook:
        monkeypatch.setenv("NIGHT_HOOK", webhook.url)
        asked = {"notify__url": "env:NIGHT_HOOK", "max_calls": 100_000, **SMALL}
        ended = run(tmp_path, flow_run_id="next", run_id="next", observer=At("epoch_ended", interrupt), **asked)
    assert (ended.run_id, ended.status) == ("dead", "stopped")
    (told,) = webhook.bodies
    assert (told["run_id"], told["status"], told["events"]) == ("next", "failed", ["failed"])
    assert "ended while run dead was resumed" in told["message"]


def test_no_terminal_resumes_a_killed_run_and_no_night_one_that_is_open_or_of_another_pipeline(tmp_path):
    killed(tmp_path, "dead")
    path, few = paths(tmp_path, "dead").manifest, {**SMALL, "max_calls": 8, "allow_zero": True}
    assert run(tmp_path, run_id="typed", **few).exit_code == 3
    with FileLock(path.parent / ".lock"):
        assert run(tmp_path, run_id="one", flow_run_id="one", **few).exit_code == 3
    path.write_text(json.dumps({**json.loads(path.read_text()), "pipeline": "general"}))
    assert run(tmp_path, run_id="two", flow_run_id="two", **few).exit_code == 3
    assert manifest(tmp_path, "dead")["status"] == "running"


def test_a_changed_dataset_is_a_warning_of_the_night(tmp_path):
    items = [{"id": f"i{n}", "prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]
    file = tmp_path / "items.jsonl"

    def learn(name, some):
        file.write_text("".join(json.dumps(each) + "\n" for each in some))
        assert run(tmp_path, run_id=name, dry_run=True, max_calls=4, **SMALL | {"dataset": str(file)}).exit_code == 3
        return [text for text in manifest(tmp_path, name)["warnings"] if "dataset" in text]

    assert learn("one", items[:40]) == []
    assert learn("two", list(reversed(items[:40]))) == []
    said = learn("three", items[20:])
    assert said == ["the dataset is not that of two, the night before: 20 items new, 20 gone"]
    assert [entry.items_changed for entry in runs_of(TaskPaths.of(tmp_path, TASK))] == ["20 items new, 20 gone", None, None]
