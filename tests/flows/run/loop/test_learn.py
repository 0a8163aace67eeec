"""The order of things: batches, sides, rows and seeds, whatever order groups come back in."""

import itertools
import json
from collections import Counter, defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support.agents.steps import group, record, spec
from tests.support.records.tasks import Task
from tests.support.runs.running import (
    LEARNING,
    RUN,
    SMALL,
    TASK,
    At,
    Server,
    decided,
    in_process,
    interrupt,
    lines,
    manifest,
    on_server,
    paths,
    request,
    run,
    store,
)
from tfgrpo.flows.console.observer import EpochStart, EpochSums
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.loop import batches as running_batches
from tfgrpo.flows.run.loop.learn import RETIRED
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.experiences.credit import CreditFile
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.outcomes import Failed, Scored, Ungraded


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A night of three batches an epoch, in groups of five whose attempts often fail."""
    out = tmp_path_factory.mktemp("night")
    asked = {"actor__kind": "tests.support.agents.agents:asks_and_often_fails", "group_size": 5}
    assert run(out, run_id=RUN, sample_size=24, batch_size=8, **asked).exit_code == 0
    return out


def sides(out):
    """Prompts, rewards and losses of each group or swept item, by arm: sets of lessons, sorted lists and numbers."""
    carried = {row["digest"]: frozenset(row["experience_ids"]) for row in lines(paths(out).prompts)}
    found = defaultdict(dict)
    for row in lines(paths(out).rollouts):
        one = found[row["item_id"] if row["phase"] == "eval" else row["group_id"]]
        lessons, rewards, lost = one.setdefault(row["arm"], (carried[row["prompt_digest"]], [], []))
        assert lessons == carried[row["prompt_digest"]], "one prompt a side"
        scored = row["outcome"]["name"] == "scored"
        (rewards if scored else lost).append(row["outcome"]["reward"] if scored else row["index"])
    return found


def test_each_batch_divides_the_lessons_on_trial_in_at_most_three_ways_and_tosses_which_half_is_first(night):
    found, batches = sides(night), defaultdict(list)
    for row in lines(paths(night).groups):
        if row["phase"] == "train":
            batches[row["epoch"], row["batch"]].append(found[row["group_id"]])
    first, *others = batches.values()
    assert [(list(group), group["group"][0]) for group in first] == [(["group"], frozenset())] * 8
    turned = 0
    for groups in others:
        halves = [(group["one"][0], group["other"][0]) for group in groups]
        assert len({one | other for one, other in halves}) == 1, "together the lessons on trial"
        assert not any(one & other for one, other in halves), "each of them once"
        assert 1 < len({frozenset(pair) for pair in halves}) <= 3
        turned += any(pair[::-1] in halves for pair in halves)
    assert turned > 1
    arms = defaultdict(list)
    for row in lines(paths(night).rollouts):
        if row["arm"] in {"one", "other"}:
            arms[row["group_id"]].append(row["arm"])
    assert {*map(tuple, arms.values())} == {("one",) * 2 + ("other",) * 3, ("one",) * 3 + ("other",) * 2}, "the odd attempt"


def test_rows_say_what_the_prompts_carried_and_how_each_attempt_ended(night):
    found, rows = sides(night), [row for row in lines(TaskPaths.of(night, TASK).credit) if row["kind"] == "row"]
    names = [row["item_id"] if row["source"] == "sweep" else row["line_id"].partition("/")[2] for row in rows]
    assert sorted(names) == sorted(found), "one row a learning group, and one a swept item"
    assert [row["source"] for row in rows] == ["learning"] * 48 + ["sweep"] * 24
    assert sum(row["lost_one"] + row["lost_other"] for row in rows) > 9
    nothing = (frozenset(), [], [])
    for name, row in zip(names, rows, strict=True):
        arms = ("library", "none") if row["source"] == "sweep" else ("one", "other")
        one, other = (found[name].get(arm, nothing) for arm in arms)
        one = found[name].get("group", one)
        assert (frozenset(row["one"]), sorted(row["rewards_one"]), row["lost_one"]) == (one[0], sorted(one[1]), len(one[2]))
        assert (frozenset(row["other"]), sorted(row["rewards_other"])) == (other[0], sorted(other[1]))
        assert row["lost_other"] == len(other[2])


def test_both_sides_of_the_sweep_run_the_same_items_with_the_same_seeds_and_come_first_by_turns(night):
    arms = {"library": {}, "none": {}}
    for row in lines(paths(night).rollouts):
        if row["phase"] == "eval":
            arms[row["arm"]][row["item_id"], row["index"]] = row["seed"]
    assert arms["library"] == arms["none"] != {}
    learned = {row["item_id"] for row in lines(paths(night).rollouts) if row["phase"] == "train"}
    assert learned.isdisjoint(item for item, _ in arms["none"])
    order = [row["arm"] for row in lines(paths(night).groups) if row["phase"] == "eval"]
    assert order == ["none", "library", "library", "none"] * 12


def test_a_night_with_nothing_to_follow_sweeps_nothing_and_says_so(tmp_path):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, tfgrpo__min_spread=2.0))
    assert summary.exit_code == 0
    assert {row["phase"] for row in lines(paths(tmp_path).rollouts)} == {"train"}
    assert summary.message == "Not yet: no lesson is likely to help so far"
    decision, written = summary.details["decision"], manifest(tmp_path)
    assert (decision["decision"], decision["experience_ids"], decision["swept"]) == ("not yet", [], 0)
    assert decision["rewards"] == {"library": None, "none": None}
    assert written["forecast"]["calls"]["low"] <= len(server.bodies) == written["ledger"]["calls"]
    assert [epoch["phase"] for epoch in written["tfgrpo"]["epochs"]] == ["train"]
    assert all(check["ok"] for stage in written["stages"] for check in stage.get("checks", ()))
    assert summary.message in paths(tmp_path).report.read_text()


def test_the_temperature_of_each_phase_is_the_one_asked_for(tmp_path):
    with Server() as server:
        run(tmp_path, run_id=RUN, **on_server(server, train_temp=0.9, eval_temp=0.1))
    calls = [json.loads(body) for body in server.bodies]
    attempts = Counter(call["temperature"] for call in calls if "response_format" not in call)
    assert set(attempts) == {0.9, 0.1}
    evaluated = [row for row in lines(paths(tmp_path).rollouts) if row["phase"] == "eval"]
    assert attempts[0.1] == len(evaluated)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run without any trouble."""
    out = tmp_path_factory.mktemp("whole")
    assert run(out, run_id=RUN, **LEARNING).exit_code == 0
    return out


def test_what_is_written_depends_neither_on_who_comes_back_first_nor_on_how_many_run_at_once(tmp_path, monkeypatch, whole):
    def backwards(session, specs, real=running_batches.run_groups):
        yield from reversed(list(real(session, specs)))

    monkeypatch.setattr(running_batches, "run_groups", backwards)
    run(tmp_path, run_id=RUN, tfgrpo__concurrency=4, **LEARNING)
    assert manifest(whole)["settings"]["tfgrpo"]["concurrency"] > 4
    assert (store(tmp_path), decided(tmp_path)) == (store(whole), decided(whole))
    order = [[row["rollout_id"] for row in lines(paths(out).rollouts)] for out in (tmp_path, whole)]
    assert order[0] == order[1]


@pytest.mark.parametrize(("at", "written"), [(4, False), pytest.param(9, True, marks=pytest.mark.slow)])
def test_a_run_that_breaks_between_its_lines_of_credit_has_each_once_when_it_is_resumed(
    tmp_path, monkeypatch, whole, at, written
):
    count, append = itertools.count(1), CreditFile.append

    def breaks(self, new):
        number = next(count)
        done = append(self, new) if number != at or written else 0
        if number == at:
            raise StoreError("no space left")
        return done

    monkeypatch.setattr(CreditFile, "append", breaks)
    assert run(tmp_path, run_id=RUN, **LEARNING).status == "failed"
    assert not TaskPaths.of(tmp_path, TASK).promotions.exists()
    monkeypatch.undo()
    for _ in range(2):
        assert run(tmp_path, resume=RUN).exit_code == 0
        assert decided(tmp_path) == decided(whole)


def test_a_lesson_that_is_retired_while_a_run_is_under_way_is_not_put_into_force_by_it(tmp_path, capsys, whole):
    task, (would, *_) = Task(tmp_path, TASK, capsys), manifest(whole)["decision"]["experience_ids"]

    def retire(end):
        if end.epoch == 1:
            task.tell("experiences", "retire", would, "--why", "no use")

    def last():
        (*_, last) = read_decisions(TaskPaths.of(tmp_path, TASK).promotions)
        return last

    assert run(tmp_path, run_id=RUN, observer=At("epoch_ended", retire), **LEARNING).exit_code == 0
    decision = last()
    assert (decision.decision, decision.notes) == ("in force", (RETIRED,))
    assert would not in decision.experience_ids == decision.considered
    for again in ({"replay": RUN}, {"resume": RUN}):
        ended = run(tmp_path, **again)
        assert ended.exit_code == 0, ended.message
        assert last() == decision


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

    monkeypatch.setattr(running_batches, "run_groups", run_groups)
    monkeypatch.setattr(running_batches, "record_batch", record_batch)
    sums = EpochSums(EpochStart(3, 3, "eval", 6, 0.3))
    monkeypatch.setattr(running_batches, "open_epoch", lambda *_: nullcontext(sums))
    limits = SimpleNamespace(tfgrpo=SimpleNamespace(max_lost_share=0.0))
    session = SimpleNamespace(settings=limits)
    coming = running_batches.run_epoch(session, 3, "eval", batches)
    assert [result.group_id for result in next(coming)] == ["g0", "g1"]
    assert asked == [6]
    assert [result.group_id for result in next(coming)] == ["g10", "g11"]
    coming.close()
    assert closed == [True]
    assert recorded == [["g0", "g1"], ["g10", "g11"]]


def test_epoch_sums_average_scored_rollouts_only_and_name_the_most_frequent_reason_of_losses_among_few():
    tally, late, down = EpochSums(EpochStart(1, 3, "train", 1, 0.7)), Failed("ModelTimeout", "late"), "remote:\nit is down"
    assert tally.end(()).lost_mostly == ""
    tally.add([
        group((record(0, outcome=Scored(1.0, ())), record(1, outcome=late))),
        group((record(0, outcome=Ungraded("rewarder", down)), record(1, outcome=Scored(0.5, ()))), signal="flat"),
        group((record(0, outcome=Ungraded("rewarder", down)),), signal="flat"),
    ])  # fmt: skip
    end = tally.end(())
    assert (end.mean_reward, end.scored, end.lost, end.informative) == (0.75, 2, 3, 1)
    assert (tally.solve_rate, end.lost_mostly) == (0.5, "2 × ungraded: remote: it is down")
    tally.add([group(tuple(record(n, outcome=Failed("ModelTimeout", f"late {n}")) for n in range(500)))])
    assert (tally.end(()).lost, len(tally.rollouts.reasons)) == (503, 100)


@pytest.mark.parametrize(("max_calls", "groups"), [(5, 0), (16, SMALL["batch_size"])])
def test_a_batch_refused_by_the_budget_is_not_recorded(tmp_path, max_calls, groups):
    assert run(tmp_path, run_id=RUN, max_calls=max_calls, **SMALL).exit_code == 3
    rows = lines(paths(tmp_path).rollouts)
    assert len({row["group_id"] for row in rows}) == groups
    assert {row["outcome"]["name"] for row in rows} <= {"scored"}
    assert groups or store(tmp_path) == []


def test_groups_are_abandoned_when_the_run_ends_between_them(tmp_path):
    closed = []

    @contextmanager
    def watched(plan):
        def run_groups(context, specs):
            try:
                yield from fan_out(context, specs)
            finally:
                closed.append(len(specs))

        with in_process(plan) as fan_out:
            yield run_groups

    summary = execute(request(tmp_path, run_id=RUN, **SMALL), {}, At("group_done", interrupt), watched, clock=utc_now)
    assert summary.exit_code == 3
    assert closed == [SMALL["batch_size"]]
