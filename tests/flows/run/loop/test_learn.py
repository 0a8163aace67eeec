"""The order of things: batches, arms, seeds and draws, whatever order groups come back in."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support.agents.steps import group, record, spec
from tests.support.runs.running import (
    RUN,
    SMALL,
    Server,
    in_process,
    lines,
    manifest,
    on_server,
    paths,
    request,
    run,
    store,
)
from tfgrpo.flows.console.figures import EpochSums
from tfgrpo.flows.console.observer import EpochStart
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.loop import batches as running_batches
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.outcomes import Failed, Scored, Ungraded


def test_champion_and_candidate_run_the_same_items_with_the_same_seeds(tmp_path):
    assert run(tmp_path, run_id=RUN, **SMALL).exit_code == 0
    arms = {"champion": {}, "candidate": {}}
    for row in lines(paths(tmp_path).rollouts):
        if row["phase"] == "eval":
            arms[row["arm"]][row["item_id"], row["index"]] = row["seed"]
    assert arms["champion"] == arms["candidate"]
    assert arms["champion"]
    learned = {row["item_id"] for row in lines(paths(tmp_path).rollouts) if row["phase"] == "train"}
    assert learned.isdisjoint(item for item, _ in arms["champion"])


def _uncurated(session, groups, results, meanwhile):
    """A curation that changes nothing."""
    meanwhile()


def test_no_sweep_is_run_for_equal_libraries_and_the_message_explains_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tfgrpo.flows.run.loop.learn.curate", _uncurated)
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server))
    assert summary.exit_code == 0
    assert {row["phase"] for row in lines(paths(tmp_path).rollouts)} == {"train"}
    assert "same library: nothing to compare, and no sweep was run" in summary.message
    gate, written = summary.details["gate"], manifest(tmp_path)
    assert (gate["decision"], gate["pairs"], gate["lost_share"]) == ("undecided", 0, 0.0)
    assert written["forecast"]["calls"]["low"] <= len(server.bodies) == written["ledger"]["calls"]
    assert [epoch["phase"] for epoch in written["tfgrpo"]["epochs"]] == ["train", "train"]
    assert all(check["ok"] for stage in written["stages"] for check in stage.get("checks", ()))
    assert "no sweep was run" in paths(tmp_path).report.read_text()


def _as_an_older_version_wrote_it(out):
    """The manifest of a run before learning had a limit and rules of its own."""
    path = paths(out).manifest
    older = json.loads(path.read_text())
    del older["learning_rules"], older["settings"]["model"]["learner_max_tokens"]
    del older["sources"]["model.learner_max_tokens"]
    path.write_text(json.dumps(older))


@pytest.mark.parametrize("learning", [True, False])
def test_a_run_of_an_older_version_is_resumed_and_replayed_from_its_journal(tmp_path, monkeypatch, learning):
    monkeypatch.setattr("tfgrpo.flows.run.open.LEARNING_RULES", 1)
    if not learning:
        monkeypatch.setattr("tfgrpo.flows.run.loop.learn.curate", _uncurated)
    with Server() as server:
        asked = on_server(server, model__max_tokens=1024, model__learner_max_tokens=1024)
        assert run(tmp_path, run_id=RUN, **asked).exit_code == 0
        calls = len(server.bodies)
        _as_an_older_version_wrote_it(tmp_path)
        monkeypatch.setattr("tfgrpo.flows.run.open.LEARNING_RULES", 2)
        summary = run(tmp_path, resume=RUN)
        assert summary.exit_code == 0, summary.message
        assert len(server.bodies) == calls
        assert learning or {row["arm"] for row in lines(paths(tmp_path).rollouts)} == {"train", "champion"}
    again = run(tmp_path, replay=RUN)
    assert again.exit_code == 0, again.message
    assert manifest(tmp_path)["learning_rules"] == 1


def test_the_temperature_of_each_phase_is_the_one_asked_for(tmp_path):
    with Server() as server:
        run(tmp_path, run_id=RUN, **on_server(server, train_temp=0.9, eval_temp=0.1))
    calls = [json.loads(body) for body in server.bodies]
    attempts = Counter(call["temperature"] for call in calls if "response_format" not in call)
    assert set(attempts) == {0.9, 0.1}
    evaluated = [row for row in lines(paths(tmp_path).rollouts) if row["phase"] == "eval"]
    assert attempts[0.1] == len(evaluated)


def test_an_item_drawn_twice_is_two_groups_with_replies_of_their_own(tmp_path):
    with Server() as server:
        asked = on_server(server, sample_size=30, tfgrpo__with_replacement=True, batch_size=30, epochs=2)
        assert run(tmp_path, run_id=RUN, **asked).exit_code == 0
    rows = [row for row in lines(paths(tmp_path).rollouts) if row["epoch"] == 1]
    (item, count), *_ = Counter(row["item_id"] for row in rows).most_common(1)
    assert count > 4
    assert len({row["group_id"] for row in rows if row["item_id"] == item}) == count // 4
    assert len({row["seed"] for row in rows if row["item_id"] == item}) == count
    assert max(server.asked().values()) == 1


def test_what_is_written_does_not_depend_on_who_comes_back_first(tmp_path, monkeypatch):
    run(tmp_path / "a", run_id=RUN, **SMALL)

    def backwards(session, specs, real=running_batches.run_groups):
        yield from reversed(list(real(session, specs)))

    monkeypatch.setattr(running_batches, "run_groups", backwards)
    run(tmp_path / "b", run_id=RUN, **SMALL)
    assert store(tmp_path / "a") == store(tmp_path / "b")
    order = [[row["rollout_id"] for row in lines(paths(tmp_path / name).rollouts)] for name in "ab"]
    assert order[0] == order[1]


def test_batches_of_the_sweep_run_at_once_and_are_accepted_whole_and_in_their_order(monkeypatch):
    batches = [[spec(epoch=number * 10 + place) for place in range(2)] for number in range(3)]
    batches = [[replace(one, group_id=f"g{one.key.epoch}") for one in batch] for batch in batches]
    asked, recorded, closed = [], [], []

    def run_groups(_session, specs):
        asked.append(len(specs))
        try:
            for place in (2, 3, 0, 4, 1, 5):
                yield group((record(),), group_id=specs[place].group_id)
        finally:
            closed.append(True)

    def record_batch(_session, results):
        recorded.append([result.group_id for result in results])

    monkeypatch.setattr(running_batches, "_refuse_broken_batch", lambda _session, results: None)
    monkeypatch.setattr(running_batches, "run_groups", run_groups)
    monkeypatch.setattr(running_batches, "record_batch", record_batch)
    coming = running_batches.accept_batches(SimpleNamespace(), batches)
    assert [result.group_id for result in next(coming)] == ["g0", "g1"]
    assert asked == [6]
    assert [result.group_id for result in next(coming)] == ["g10", "g11"]
    coming.close()
    assert closed == [True]
    assert recorded == [["g0", "g1"], ["g10", "g11"]]


def test_epoch_sums_average_scored_rollouts_only():
    tally = EpochSums(EpochStart(1, 3, "train", 1, 0.7))
    tally.add([
        group((record(0, outcome=Scored(1.0, ())), record(1, outcome=Failed("ModelTimeout", "late")))),
        group((record(0, outcome=Ungraded("empty", "")), record(1, outcome=Scored(0.5, ()))), signal="flat"),
    ])  # fmt: skip
    end = tally.end(Library(()))
    assert (end.mean_reward, end.scored, end.lost, end.informative) == (0.75, 2, 2, 1)
    assert tally.solve_rate == 0.5


def test_a_learning_epoch_reports_the_library_that_learns_and_shows_the_champion_beside_it():
    sums = EpochSums(EpochStart(1, 3, "train", 2, 0.7))
    arms = ("champion", "champion", "candidate", "candidate")
    rewards = (0.0, 0.0, 0.5, 1.0)
    rollouts = (
        record(n, outcome=Scored(reward, ()), arm=arm)
        for n, (arm, reward) in enumerate(zip(arms, rewards, strict=True))
    )
    sums.add([group(tuple(rollouts)), group((record(0, outcome=Scored(0.0, ())),))])
    assert (sums.mean_reward, sums.solve_rate, sums.scored) == (0.5, pytest.approx(1 / 3), 5)
    assert sums.reward == "before 0.000, after 0.750"


def test_the_solve_rate_counts_the_upper_end_of_the_declared_range():
    sums = EpochSums(EpochStart(1, 3, "train", 1, 0.7), (0.0, 10.0))
    sums.add([group((record(0, outcome=Scored(10.0, ())), record(1, outcome=Scored(1.0, ()))))])
    assert sums.solve_rate == 0.5


def test_epoch_sums_name_the_most_frequent_reason_of_losses_and_store_few():
    tally = EpochSums(EpochStart(1, 3, "train", 1, 0.7))
    assert tally.end(Library(())).lost_mostly == ""
    tally.add([group(tuple(record(n, outcome=Failed("ModelTimeout", f"late {n}")) for n in range(500)))])
    down = group((record(0, outcome=Ungraded("rewarder", "remote:\nit is down")),) * 2)
    tally.add([down])
    assert tally.end(Library(())).lost == 502
    assert len(tally.rollouts.reasons) == 100
    tally = EpochSums(EpochStart(1, 3, "train", 1, 0.7))
    tally.add([down, group((record(0, outcome=Failed("ModelTimeout", "late")),))])
    assert tally.end(Library(())).lost_mostly == "2 × ungraded: remote: it is down"


def test_an_epoch_without_evidence_has_no_mean():
    tally = EpochSums(EpochStart(1, 3, "eval", 1, 0.7))
    assert tally.end(Library(())).mean_reward is None
    assert tally.solve_rate is None


def test_a_batch_refused_by_the_budget_is_not_recorded(tmp_path):
    summary = run(tmp_path, run_id=RUN, max_calls=26, **SMALL)
    assert summary.exit_code == 3
    rows = lines(paths(tmp_path).rollouts)
    per_batch = Counter(row["group_id"] for row in rows)
    assert len(per_batch) % SMALL["batch_size"] == 0
    assert {row["outcome"]["name"] for row in rows} <= {"scored"}
    assert manifest(tmp_path)["tfgrpo"]["epochs"] == [] or rows


def test_groups_are_abandoned_when_the_run_ends_between_them(tmp_path):
    closed = []

    class Runner:
        def __init__(self, name):
            self._inner = in_process(name)

        def __enter__(self):
            fan_out = self._inner.__enter__()

            def run_groups(context, specs):
                try:
                    yield from fan_out(context, specs)
                finally:
                    closed.append(len(specs))

            return run_groups

        def __exit__(self, *_):
            self._inner.__exit__(None, None, None)

    class Interrupting:
        def __getattr__(self, name):
            def told(*_args):
                if name == "group_done":
                    raise KeyboardInterrupt

            return told

    summary = execute(request(tmp_path, run_id=RUN, **SMALL), {}, Interrupting(), Runner, clock=utc_now)
    assert summary.exit_code == 3
    assert closed == [SMALL["batch_size"]]
