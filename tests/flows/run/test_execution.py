"""Every end of a run is a summary with an exit code, whatever breaks on the way."""

from __future__ import annotations

import json
import math
import re
import socket
from contextlib import contextmanager

import pytest

from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.running import RUN, SMALL, Server, manifest, on_server, paths, request, run
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.run import close as closing
from tfgrpo.flows.run import execution
from tfgrpo.flows.run import open as opening
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.tasks.runtime.host import close_runtime
from tfgrpo.tasks.shapes import Frame, Trajectory


def broken(*_args, **_kwargs):
    raise StoreError("experiences.jsonl: no space left on device")


def test_a_run_that_cannot_be_opened_fails_in_one_sentence_and_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(opening.ManifestFile, "update", broken)
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


def test_books_that_cannot_be_closed_fail_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "close_books", broken)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.run_id, summary.exit_code) == ("failed", RUN, 1)
    assert summary.message.startswith("the run could not be closed: StoreError")
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0, "the run is not locked"


def no_lock(*_args, **_kwargs):
    raise OSError(37, "No locks available")


def test_a_disk_that_refuses_while_the_run_is_opened_fails_it_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "open_session", no_lock)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert summary.message == "the run could not be opened: OSError: [Errno 37] No locks available"


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


def test_an_end_that_cannot_even_be_warned_of_is_the_end_of_the_run_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(opening.ManifestFile, "warn", broken)
    assert run(tmp_path, run_id=RUN, observer=_Unclosable(), **SMALL).exit_code == 0


def half_a_character(prompt):
    """An agent whose error holds half of a surrogate pair, as a broken decoder leaves it."""
    raise ValueError(f"cannot read {prompt[:3]} \ud83d")


def no_number(prompt):
    """An agent that does not know what it cost."""
    return Trajectory(prompt, (Frame("model", "m", "x", 1, math.nan, 1.0),))


@pytest.mark.parametrize("agent", ["half_a_character", "no_number"])
def test_what_no_file_can_hold_costs_its_attempt_and_not_the_run(tmp_path, agent):
    more = {
        "tfgrpo__max_lost_share": 1.0,
        "allow_zero": True,
        "actor__kind": f"tests.flows.run.test_execution:{agent}",
    }
    summary = run(tmp_path, run_id=RUN, **SMALL, **more)
    assert summary.message.startswith("RunAborted: not one of 40 rollouts of epoch 1 brought a reward")
    assert summary.details["lost"] == {"rollouts": 40, "of": 40}
    assert run(tmp_path, resume=RUN).message == summary.message


def test_a_rewarder_that_always_breaks_stops_the_run_after_one_batch(tmp_path):
    rewarders = json.dumps([{"name": f"{EXAMPLES}:raises"}])
    summary = run(tmp_path, run_id=RUN, rewarders=rewarders, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert "20 of 20 rollouts of a batch failed" in summary.message
    assert summary.message.endswith(f"rewarder_broke: {EXAMPLES}:raises: KeyError: 'S'")
    assert summary.details["ledger"]["calls"] == 20


def test_a_grading_service_that_is_down_stops_the_run_after_one_batch(tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        options = {"url": f"http://127.0.0.1:{nobody.getsockname()[1]}/grade", "retries": 0}
        summary = run(tmp_path, rewarders=json.dumps([{"name": "remote", "options": options}]), **SMALL)
    assert (summary.status, summary.details["ledger"]["calls"]) == ("failed", 20)
    assert "rewarder_broke: remote: " in summary.message


def test_a_rewarder_that_can_never_tell_stops_the_run_after_one_epoch(tmp_path):
    rewarders = json.dumps([{"name": f"{EXAMPLES}:cannot_tell"}])
    summary = run(tmp_path, run_id=RUN, rewarders=rewarders, allow_zero=True, **SMALL)
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert "not one of 40 rollouts of epoch 1 brought a reward" in summary.message
    assert summary.message.endswith(f"most often 40 × ungraded: {EXAMPLES}:cannot_tell: returned None")
    assert manifest(tmp_path)["tfgrpo"]["epochs"][-1]["epoch"] == 1


@pytest.mark.parametrize("learning", ["on", "off"])
def test_a_run_in_which_every_reward_was_late_fails_and_names_the_rewarder(tmp_path, learning):
    rewarders = json.dumps([{"name": f"{EXAMPLES}:too_slow", "timeout_s": 0.02}])
    summary = run(tmp_path, run_id=RUN, rewarders=rewarders, **SMALL, env={"FEATURE_TFGRPO_GROUP": learning})
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert re.match(r"RunAborted: (\d+) of \1 rollouts of a batch failed", summary.message)
    assert f"{EXAMPLES}:too_slow: " in summary.message
    assert "no score within 0.02 s" in summary.message
    assert summary.details["decision"] is None
    assert summary.details["lost"]["rollouts"] == summary.details["lost"]["of"]
    assert run(tmp_path, resume=RUN).message == summary.message


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


def test_an_unexpected_error_fails_the_run_with_its_books_closed(tmp_path, monkeypatch):
    def broken(*_args, **_kwargs):
        raise LookupError("a fault of ours")

    monkeypatch.setattr(execution, "learn", broken)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.message) == ("failed", "LookupError: a fault of ours")
    assert summary.details["resume with"] == f"--resume {RUN}"
    assert manifest(tmp_path)["status"] == "failed"
    assert manifest(tmp_path)["traceback"].endswith("LookupError: a fault of ours\n")


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


@pytest.mark.parametrize("moment", ["run_started", "epoch_started", "group_done", "lessons_stored", "epoch_ended"])
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


def test_an_unexpected_error_shows_no_key(tmp_path, monkeypatch):
    secret = "sk-very-secret-indeed-0123"

    def broken(*_args, **_kwargs):
        raise LookupError(f"no {secret}")

    monkeypatch.setenv("OPENAI_API_KEY", secret)
    monkeypatch.setattr(execution, "learn", broken)
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server))
    assert summary.status == "failed"
    assert "***" in manifest(tmp_path)["traceback"]
    assert secret not in paths(tmp_path).manifest.read_text() + summary.message + paths(tmp_path).report.read_text()
    assert "no ***" in summary.message
