"""One runner: totals and ranks of a group, limits of calls that cannot be ended, and its own end."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.rewards.rewarder_examples import freeze
from tests.support.rewards.scoring import built, group, numbers, totalled, verdicts
from tests.support.waiting import eventually
from tfgrpo.rewarders import workers
from tfgrpo.rewarders.composite import check_scorers
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Scorer, Weighted
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError, RewarderTimeout


@dataclass
class Scripted:
    """Does what the test says, and keeps what it saw."""

    act: Callable[[Any], Any]
    seen: list[Any] = field(default_factory=list)

    def __call__(self, asked):
        self.seen.append((asked, threading.current_thread()))
        return self.act(asked)


def fixed(name: str, *scores: float | None) -> Scorer:
    """Return a scorer of groups that gives these scores."""
    return Scorer(name, lambda _: list(scores), scope="group", place="thread")


def failing(name: str, error: BaseException, **traits: Any) -> Scorer:
    def act(_):
        raise error

    return Scorer(name, act, **{"scope": "group", "place": "thread", **traits})


@pytest.fixture
def release():
    """Set at the end of the test, so that no thread is left hanging."""
    event = threading.Event()
    yield event
    event.set()


async def test_totals_are_the_weighted_mean_of_the_scores_those_equal_on_paper_tie_and_huge_ones_do_not_overflow():
    parts = [Weighted(fixed("a", 1.0, 0.0), 3.0), Weighted(fixed("b", 0.0, 1.0)), Weighted(fixed("c", 9.0, 9.0), 0.0)]
    found = await totalled(group("x", "y"), *parts)
    assert (found.totals, dict(found.faults)) == ({"r0": 0.75, "r1": 0.25}, {})
    assert [verdict.rewarder_id for verdict in found.verdicts[0]] == ["a", "b", "c"]
    parts = [Weighted(fixed("a", 0.2, 0.6), 0.5), Weighted(fixed("b", 0.4, 0.0), 0.5)]
    totals = (await totalled(group("x", "y"), *parts)).totals
    assert totals["r0"] == totals["r1"]
    huge = [Weighted(fixed("a", 9e99), 1e308), Weighted(fixed("b", 9e99), 1e308)]
    assert (await totalled(group("x"), *huge)).totals["r0"] == pytest.approx(9e99)


async def test_without_a_weight_there_is_no_total_and_a_failure_is_still_reported_and_a_timeout_of_its_own_is_late():
    late = failing("late", RewarderTimeout("no reply"))
    found = await totalled(group("x"), *(Weighted(each, 0.0) for each in (fixed("a", 1.0), failing("b", OSError()), late)))
    assert (dict(found.totals), numbers(found.verdicts[0])) == ({}, [1.0, None, None])
    assert found.faults == {"b": "b: OSError", "late": "late: no reply"}
    assert found.verdicts[0][2] == Abstained("late", "no reply", late=True)


async def test_the_least_of_all_limits_holds(release):
    for own, of_use, of_runner, least in ((5.0, 0.1, None, 0.1), (0.1, 5.0, 9.0, 0.1), (None, None, 0.1, 0.1)):
        scorer = Scorer("slow", lambda _: release.wait(60), place="thread", limit_s=own)
        found = await totalled(group("x"), Weighted(scorer, timeout_s=of_use), timeout_s=of_runner)
        assert found.faults == {"slow": f"slow: no score within {least:g} s"}


async def test_an_abandoned_call_does_not_go_on_with_the_remaining_attempts(release):
    seen = []

    def act(item):
        seen.append(item.completion)
        return release.wait(60) if item.completion == "hang" and len(seen) == 1 else 1.0

    (first, *others) = (
        await totalled(group("hang", "a", "b"), Weighted(Scorer("own", act, place="thread"), 1.0, 0.2))
    ).verdicts
    release.set()
    await asyncio.sleep(0.1)
    assert (first[0].late, [numbers(row) for row in others]) == (True, [[1.0], [1.0]])
    assert seen == ["hang", "a", "b"]


async def test_calls_that_hang_in_threads_are_bounded(release, monkeypatch):
    monkeypatch.setattr(workers, "MOST_HANGING", 3)
    own = Scripted(lambda _: release.wait(60))
    scorer = Scorer("own", own, place="thread")
    with ScoreRunner(timeout_s=0.1) as runner:
        found = [(await runner.score(scorer, [group(*"ab")]))[0] for _ in range(3)]
        assert [verdict.late for pair in found for verdict in pair] == [True] * 3 + [False] * 3
        assert found[2][0] == Abstained("own", "3 calls of it hang; it is not called until one of them ends", broke=True)
        assert len(own.seen) == 3
        release.set()
        await eventually(lambda: "rewarder" not in {each.name for each in threading.enumerate()})
        assert numbers((await runner.score(scorer, [group("a")]))[0]) == [1.0]


@pytest.mark.parametrize("scope", ["item", "batch", "group"])
@pytest.mark.parametrize("later", [False, True])
async def test_a_score_that_comes_after_its_limit_never_counts_though_the_waiting_loop_was_frozen(scope, later):
    def act(asked):
        freeze(0.4)
        return 1.0 if scope == "item" else [1.0]

    async def act_later(asked):
        return act(asked)

    for place in ("thread", "inline") if not later else ("thread",):
        scorer = Scorer("wild", act_later if later else act, scope=scope, place=place)
        found = await totalled(group("x"), Weighted(scorer, timeout_s=0.15))
        assert (found.faults, found.totals) == ({"wild": "wild: no score within 0.15 s"}, {})


@pytest.mark.parametrize(("scope", "lost"), [("item", 1), ("batch", 3)])
async def test_a_coroutine_that_never_ends_is_cancelled_and_leaves_no_thread(scope, lost):
    ended = threading.Event()

    async def act(asked):
        try:
            if scope == "batch" or asked.completion == "never":
                await asyncio.sleep(60)
            return 1.0
        finally:
            if scope == "batch" or asked.completion == "never":
                ended.set()

    found = await totalled(group("a", "never", "b"), Weighted(Scorer("own", act, scope=scope, place="thread"), 1.0, 0.2))
    assert sum(row[0].late for row in found.verdicts if isinstance(row[0], Abstained)) == lost
    assert await asyncio.to_thread(ended.wait, 30)
    await eventually(lambda: "rewarder" not in {each.name for each in threading.enumerate()})


async def test_a_coroutine_on_the_event_loop_that_hangs_or_ignores_its_end_is_left_behind():
    done, cancelled = asyncio.Event(), []

    async def ignores(_):
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                cancelled.append(1)
        return [1.0]

    scorer = Scorer("own", ignores, scope="group", place="loop")
    found = await totalled(group("x"), Weighted(scorer, timeout_s=0.05), Weighted(fixed("good", 1.0), 0.0))
    assert found.faults == {"own": "own: no score within 0.05 s"}
    assert numbers(found.verdicts[0]) == [None, 1.0]
    done.set()
    await eventually(lambda: cancelled)
    assert cancelled == [1]


@pytest.mark.parametrize("place", ["loop", "thread"])
async def test_a_caller_that_leaves_cancels_what_it_waits_for_and_gives_its_thread_back(place, monkeypatch):
    monkeypatch.setattr(workers, "CALLS", 1)
    begun, ended = threading.Event(), threading.Event()

    async def act(context):
        if context.outputs[0].output != "hang":
            return [1.0]
        begun.set()
        try:
            await asyncio.sleep(1.0 if place == "thread" else 60)
        finally:
            ended.set()

    scorer = Scorer("own", act, scope="group", place=place)
    with ScoreRunner() as runner:
        calls = [asyncio.create_task(runner.score(scorer, [group("hang")])) for _ in range(2)]
        await asyncio.to_thread(begun.wait, 30)
        for call in calls:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert numbers((await runner.score(scorer, [group("a")]))[0]) == [1.0]
        assert await asyncio.to_thread(ended.wait, 30)


async def test_what_is_written_into_a_record_no_other_call_sees():
    def spoils(item):
        item.record["metadata"]["deep"].append(2)
        return float(item.record["metadata"] == {"deep": [1, 2]})

    context = group("a", "b", metadata={"deep": [1]})
    found = await totalled(context, Weighted(Scorer("own", spoils, place="thread")))
    assert (found.totals, context.metadata) == ({"r0": 1.0, "r1": 1.0}, {"deep": [1]})


def test_without_a_reference_what_compares_abstains_and_asks_no_one():
    for name in ("gt", "math_exact", "label_match"):
        assert verdicts(name, "42", "41", answer=" ") == (Abstained(name, "the item has no reference answer"),) * 2
    assert numbers(verdicts("number_only", "42", answer="")) == [1.0]


async def test_a_second_scorer_is_asked_about_what_the_first_leaves_undecided():
    second = Scripted(lambda item: 0.5)
    first = Scorer(
        "own",
        lambda item: 1.0 if item.completion == "a" else Abstained("own", "who knows", undecided=item.completion == "b"),
        second=Scorer("own", second, place="thread"),
    )
    found = await totalled(group("a", "b", "c"), Weighted(first))
    assert found.totals == {"r0": 1.0, "r1": 0.5}
    assert [item.completion for item, _ in second.seen] == ["b"]


async def test_a_closed_runner_takes_no_calls_and_ends_those_that_wait(release, monkeypatch):
    monkeypatch.setattr(workers, "CALLS", 1)
    begun = threading.Event()
    scorer = Scorer("own", lambda _: begun.set() or release.wait(60), place="thread")
    runner = ScoreRunner(timeout_s=1.0)
    calls = [asyncio.create_task(runner.score(scorer, [group("a")])) for _ in range(2)]
    await asyncio.to_thread(begun.wait, 30)
    runner.close()
    found = [verdict for call in calls for (pair,) in [await call] for verdict in pair]
    assert sorted(each.reason for each in found) == ["no score within 1 s", "scoring has ended"]
    with pytest.raises(RuntimeError, match="this runner is closed"):
        await runner.score(scorer, [group("a")])


def test_a_hanging_scorer_does_not_keep_the_process_alive():
    program = """
import asyncio, threading
from tests.support.rewards.scoring import group
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Scorer
scorer = Scorer("slow", lambda _: threading.Event().wait(), place="thread")
((verdict,),) = asyncio.run(ScoreRunner(timeout_s=0.05).score(scorer, [group("x")]))
assert verdict.late
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_threads_refuse_calls_after_shutdown_and_drop_those_that_wait(release):
    pool = RewarderThreads(limit=1)
    running, ran = pool.submit(release.wait, 60), []
    dropped, abandoned = pool.submit(ran.append, 1), pool.submit(ran.append, 2)
    pool.abandon(abandoned)
    pool.shutdown()
    assert dropped.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int, "7")
    release.set()
    assert running.result(10) is True
    gc.collect()
    assert ran == []


def test_scorers_that_can_give_no_total_are_refused():
    gt, relative = built("gt"), built("relative")
    check_scorers([Weighted(gt), Weighted(relative)], group_size=2)
    check_scorers([Weighted(gt), Weighted(relative, 0.0)], group_size=1)
    with pytest.raises(PipelineError, match="relative counting in groups of 1"):
        check_scorers([Weighted(gt), Weighted(relative)], group_size=1)
    with pytest.raises(PipelineError) as caught:
        check_scorers([Weighted(gt, 0.0), Weighted(gt, 0.0), Weighted(relative)])
    assert len(caught.value.problems) == 2
