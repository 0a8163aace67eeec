"""Every end of a run is a summary with an exit code, whatever breaks on the way."""

import json
import math
import socket
import threading
import time
from contextlib import contextmanager, nullcontext

import pytest
from filelock import FileLock

from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.prefect_proxy import PrefectProxy
from tests.support.runs.running import RUN, SMALL, TASK, Server, lines, manifest, on_server, paths, request, run
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


def broken(*_args, **_kwargs):
    raise StoreError("experiences.jsonl: no space left on device")


def test_a_run_that_cannot_be_opened_fails_in_one_sentence_and_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(execution.ManifestFile, "update", broken)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert summary.message == ("the run could not be opened: StoreError: experiences.jsonl: no space left on device")
    monkeypatch.undo()
    assert run(tmp_path, run_id=RUN, **SMALL).exit_code == 0


def test_a_task_runner_that_cannot_be_had_refuses_the_run(tmp_path):
    @contextmanager
    def without(plan):
        raise SettingsError.one("--task-runner", "ray", "threads")
        yield

    summary = execution.execute(request(tmp_path, run_id=RUN), {}, Observers(), without, clock=utc_now)
    assert (summary.status, summary.exit_code, summary.run_id) == ("refused", 2, RUN)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_in_mid_run_fails_the_run_and_it_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(ExperienceStore, "record_batch", broken)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert "no space left" in summary.message
    assert manifest(tmp_path)["status"] == "failed"
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0


def no_lock(*_args, **_kwargs):
    raise OSError(37, "No locks available")


def test_a_disk_that_refuses_while_the_books_are_closed_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "close_books", no_lock)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert summary.message == "the run could not be closed: OSError: [Errno 37] No locks available"
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0, "the run is not locked"


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
    class Stopping:
        def __getattr__(self, moment):
            def told(*_):
                if moment == "epoch_ended":
                    raise KeyboardInterrupt

            return told

    rewarders = json.dumps([{"name": f"{EXAMPLES}:out_of_range"}])
    summary = run(tmp_path, run_id=RUN, rewarders=rewarders, observer=Stopping(), **SMALL)
    assert summary.status == "stopped"
    assert [text for text in summary.details["warnings"] if "outside 0 to 1, their declared range" in text]


def test_an_interrupt_while_the_books_are_closed_stops_the_run_and_it_can_be_resumed(tmp_path, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(closing, "check_spec", interrupted)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    assert summary.details == {"run": str(paths(tmp_path).root), "resume with": f"--resume {RUN}"}
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0, "the run is not locked"
    assert paths(tmp_path).report.exists()


@pytest.mark.parametrize("moment", ["run_started", "group_done", "epoch_ended"])
def test_an_interrupt_at_any_moment_stops_the_run_without_loss(tmp_path, moment):
    class Interrupting:
        def __getattr__(self, name):
            def told(*_args):
                if name == moment:
                    raise KeyboardInterrupt

            return told

    if moment == "run_started":  # nothing was spent yet: whoever called is told
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, run_id=RUN, observer=Interrupting(), **SMALL)
    else:
        summary = run(tmp_path, run_id=RUN, observer=Interrupting(), **SMALL)
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
    monkeypatch.setattr("tfgrpo.flows.run.prepare._DEPLOYED_WAIT_S", 3.0)
    asked = {**SMALL, "model": "simulated", "base_url": "http://nowhere.invalid/v1", "world": "arithmetic"}
    named = {"flow_run_id": "5e6f"} if deployed else {"model__wait_s": 1.0}
    began = time.monotonic()
    summary = run(tmp_path, run_id=RUN, **asked, **named)
    limit = 3.0 if deployed else 1.0
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


def test_an_endpoint_that_is_away_in_mid_run_loses_no_attempt(tmp_path):
    with Server() as server:
        until = []

        def away(number):
            if number == 12:
                until.append(time.monotonic() + 3.0)
            return 503 if until and time.monotonic() < until[0] else None

        server.before_answer = away
        summary = run(tmp_path, run_id=RUN, **on_server(server, model__max_retries=0))
    assert (summary.status, summary.details["lost"]["rollouts"]) == ("finished", 0), summary.message
    assert server.answered[503] > 0


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
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running", "message": None}))


def night(out, name, **asked):
    """A night of a deployment, with its warnings about others."""
    summary = run(out, flow_run_id=name, run_id=name, max_calls=100_000, **SMALL, **asked)
    return summary, [text for text in manifest(out, name)["warnings"] if "was killed" in text]


def test_a_night_of_a_deployment_resumes_one_that_was_killed_and_then_begins(tmp_path):
    killed(tmp_path, "dead")
    answered = paths(tmp_path, "dead").journal.read_bytes()
    summary, said = night(tmp_path, "next")
    assert (summary.status, summary.run_id) == ("finished", "next"), summary.message
    states = {entry.run_id: (entry.state, entry.night) for entry in runs_of(TaskPaths.of(tmp_path, TASK))}
    assert states == {"dead": ("finished", 1), "next": ("finished", 2)}
    assert said == [f"run dead was killed before its end, and was resumed first: {manifest(tmp_path, 'dead')['message']}"]
    assert paths(tmp_path, "dead").journal.read_bytes().startswith(answered)
    assert manifest(tmp_path, "dead")["ended_at"] < manifest(tmp_path, "next")["started_at"]
    decided = [row["run_id"] for row in lines(TaskPaths.of(tmp_path, TASK).promotions)]
    assert decided == ["dead", "next"]


def test_a_night_stays_in_its_place_when_the_one_that_was_killed_changes_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    actor = "tests.support.agents.rogues:moves_away"
    killed(tmp_path / "out", "dead", max_calls=8, actor=actor)  # before the last attempts
    monkeypatch.chdir(tmp_path)
    summary = run("out", flow_run_id="next", run_id="next", actor=actor, max_calls=100_000, **SMALL)
    assert (summary.status, summary.run_id) == ("finished", "next"), summary.message
    nights = {entry.run_id: entry.night for entry in runs_of(TaskPaths.of(tmp_path / "out", TASK))}
    assert nights == {"dead": 1, "next": 2}


def test_a_killed_night_that_cannot_be_resumed_is_told_once_and_never_tried_again(tmp_path):
    killed(tmp_path, "dead")
    paths(tmp_path, "dead").journal.unlink()
    summary, said = night(tmp_path, "next")
    assert summary.status == "finished"
    assert said[0].startswith("run dead was killed before its end, and was not resumed: --resume: got dead, whose journal")
    assert manifest(tmp_path, "dead")["status"] == "failed"
    assert night(tmp_path, "after")[1] == []


def test_what_kills_each_night_that_resumes_a_run_is_met_once(tmp_path):
    class Killed(Observer):
        def run_started(self, plan, run_id, warnings):
            raise KeyboardInterrupt

    killed(tmp_path, "dead")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, flow_run_id="next", run_id="next", observer=Killed(), **SMALL)
    (entry,) = (entry for entry in runs_of(TaskPaths.of(tmp_path, TASK)) if entry.run_id == "next")
    assert (entry.state, entry.message) == ("failed", "ended while run dead was resumed, before it began")
    summary, said = night(tmp_path, "after")
    assert summary.status == "finished"
    assert said[0].startswith("run dead was killed before its end: `tfgrpo run --resume dead` goes on with it")


def test_a_night_that_is_cancelled_while_it_resumes_a_killed_one_is_reported_once(tmp_path, monkeypatch):
    class Cancels(Observer):
        def epoch_ended(self, *_):
            raise KeyboardInterrupt

    killed(tmp_path, "dead")
    with Webhook() as webhook:
        monkeypatch.setenv("NIGHT_HOOK", webhook.url)
        asked = {"notify__url": "env:NIGHT_HOOK", "max_calls": 100_000, **SMALL}
        ended = run(tmp_path, flow_run_id="next", run_id="next", observer=Cancels(), **asked)
    assert (ended.run_id, ended.status) == ("dead", "stopped")
    (told,) = webhook.bodies
    assert (told["run_id"], told["status"], told["events"]) == ("next", "failed", ["failed"])
    assert "ended while run dead was resumed" in told["message"]


@pytest.mark.parametrize("other", [{"pipeline": "general"}, {"open": True}, {"terminal": True}])
def test_a_run_of_another_pipeline_and_one_that_is_open_are_left_alone(tmp_path, other):
    killed(tmp_path, "dead")
    path = paths(tmp_path, "dead").manifest
    if "pipeline" in other:
        path.write_text(json.dumps({**json.loads(path.read_text()), **other}))
    with FileLock(path.parent / ".lock") if "open" in other else nullcontext():
        named = {} if "terminal" in other else {"flow_run_id": "next"}
        assert run(tmp_path, run_id="next", **named, **SMALL).exit_code == 0
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
