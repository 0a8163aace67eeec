"""Scoring a group: isolation of faults, time limits, totals, and the order of ranking rewarders."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tfgrpo.rewarders.base import Abstained
from tfgrpo.rewarders.callable import adapt
from tfgrpo.rewarders.gt import GroundTruthRewarder
from tfgrpo.rewarders.relative import RelativeRewarder
from tfgrpo.rewarders.scoring import WeightedRewarder, check_rewarders, score_group
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError, RewardError, RewarderTimeout
from tfgrpo.stores.outcomes import RewardScore


@dataclass
class Scripted:
    """A rewarder that does what the test says."""

    rewarder_id: str
    act: Callable[[Any], Any]
    seen: list[Any] = field(default_factory=list)

    def score(self, context):
        self.seen.append((context, threading.current_thread()))
        return self.act(context)


def fixed(name: str, *scores: float) -> Scripted:
    return Scripted(name, lambda context: [RewardScore(name, score, "as told") for score in scores])


def raising(name: str, error: BaseException) -> Scripted:
    def act(context):
        raise error

    return Scripted(name, act)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def threads() -> Iterator[RewarderThreads]:
    with RewarderThreads() as pool:
        yield pool


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Set at the end of the test, so that no thread is left hanging."""
    event = threading.Event()
    yield event
    event.set()


async def test_totals_are_the_weighted_mean_of_the_scores(make_context, threads):
    rewarders = [
        WeightedRewarder(fixed("a", 1.0, 0.0), 3.0),
        WeightedRewarder(fixed("b", 0.0, 1.0), 1.0),
        WeightedRewarder(fixed("c", 9.0, 9.0), 0.0),
    ]
    result = await score_group(rewarders, make_context(["x", "y"]), threads)
    assert result.totals == {"r0": 0.75, "r1": 0.25}
    assert [verdict.rewarder_id for verdict in result.verdicts[0]] == ["a", "b", "c"]
    assert (dict(result.faults), result.timed_out) == ({}, None)


async def test_totals_that_are_equal_on_paper_tie(make_context, threads):
    rewarders = [WeightedRewarder(fixed("a", 0.2, 0.6), 0.5), WeightedRewarder(fixed("b", 0.4, 0.0), 0.5)]
    totals = (await score_group(rewarders, make_context(["x", "y"]), threads)).totals
    assert totals["r0"] == totals["r1"]


async def test_huge_weights_and_scores_do_not_overflow(make_context, threads):
    rewarders = [WeightedRewarder(fixed("a", 9e99), 1e308), WeightedRewarder(fixed("b", 9e99), 1e308)]
    result = await score_group(rewarders, make_context(["x"]), threads)
    assert result.totals["r0"] == pytest.approx(9e99)


async def test_without_a_weight_there_is_no_total(make_context, threads):
    result = await score_group([WeightedRewarder(fixed("a", 1.0), 0.0)], make_context(["x"]), threads)
    assert (dict(result.totals), result.verdicts[0][0].score) == ({}, 1.0)


async def test_ranking_rewarders_run_last_and_see_the_totals(make_context, threads):
    rewarders = [
        WeightedRewarder(RelativeRewarder(), 0.0),
        WeightedRewarder(GroundTruthRewarder("numeric")),
    ]
    result = await score_group(rewarders, make_context(["Answer: 41", "Answer: 42"]), threads)
    assert [[verdict.score for verdict in row] for row in result.verdicts] == [[0.0, 0.0], [1.0, 1.0]]
    assert result.totals == {"r0": 0.0, "r1": 1.0}


async def test_a_counting_rank_takes_its_share_in_the_total(make_context, threads):
    rewarders = [WeightedRewarder(fixed("a", 0.2, 0.4)), WeightedRewarder(RelativeRewarder())]
    result = await score_group(rewarders, make_context(["x", "y"]), threads)
    assert result.totals == {"r0": 0.1, "r1": 0.7}


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (raising("bad", ValueError("no\nway")), "ValueError: no way"),
        (raising("bad", RewardError("bad: known trouble")), "bad: known trouble"),
        (raising("bad", SystemExit(3)), "SystemExit: 3"),
        (raising("bad", asyncio.CancelledError()), "CancelledError"),
        (raising("bad", Mute()), "Mute"),
        (fixed("bad", math.nan, math.inf), "no finite number"),
        (fixed("bad", 1.0), "1 verdict for 2 attempts"),
        (Scripted("bad", lambda context: [0.5, 0.5]), "float is no verdict"),
        (Scripted("bad", lambda context: None), "score() returned NoneType, expected one verdict for each attempt"),
        (fixed("bad", 1e308, -1e308), "no finite number of at most 1e+100"),
        (Scripted("bad", lambda context: [RewardScore("other", 1.0, "")] * 2), "in the name of 'other'"),
    ],
)
async def test_a_broken_rewarder_loses_its_own_verdicts_and_no_others(make_context, threads, broken, reason):
    rewarders = [WeightedRewarder(broken, 0.0), WeightedRewarder(fixed("good", 1.0, 0.0))]
    result = await score_group(rewarders, make_context(["x", "y"]), threads)
    assert reason in result.faults["bad"]
    assert isinstance(result.verdicts[0][0], Abstained)
    assert result.totals == {"r0": 1.0, "r1": 0.0}
    assert result.timed_out is None


@pytest.mark.parametrize(
    "bad",
    [
        RewardScore("mine", math.nan, ""),
        RewardScore("mine", math.inf, ""),
        RewardScore("mine", "1.0", ""),
        RewardScore("other", 1.0, ""),
        RewardScore("mine", 1.0, "", {"seen": {1, 2}}),
        0.5,
        None,
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_no_verdict_costs_its_own_attempt_and_no_other(make_context, threads, bad):
    rewarder = Scripted("mine", lambda context: [bad, RewardScore("mine", 1.0, "")])
    result = await score_group([WeightedRewarder(rewarder)], make_context(["x", "y"]), threads)
    assert result.totals == {"r1": 1.0}
    assert result.faults == {}
    (lost,) = result.verdicts[0]
    assert isinstance(lost, Abstained)
    assert lost.broke


@pytest.mark.parametrize(
    "bad",
    [math.nan, math.inf, "good", 10**400, ValueError("no"), SystemExit(3), object()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_function_that_fails_on_one_attempt_costs_no_other(make_context, threads, bad, asynchronous):
    def grade(output, answer):
        if output == "x" and isinstance(bad, BaseException):
            raise bad
        return bad if output == "x" else 1.0

    async def later(output, answer):
        return grade(output, answer)

    def together(context):
        return [
            math.nan if isinstance(bad, BaseException) and each.output == "x" else grade(each.output, "")
            for each in context.outputs
        ]

    for function in (later if asynchronous else grade, together):
        result = await score_group([WeightedRewarder(adapt("mine", function))], make_context(["x", "y"]), threads)
        assert result.totals == {"r1": 1.0}


async def test_a_broken_rewarder_that_counts_leaves_no_total(make_context, threads):
    rewarders = [WeightedRewarder(raising("bad", ValueError())), WeightedRewarder(fixed("good", 1.0, 0.0))]
    result = await score_group(rewarders, make_context(["x", "y"]), threads)
    assert result.totals == {}
    assert result.verdicts[1][1] == RewardScore("good", 0.0, "as told")


async def test_an_abstention_costs_only_its_own_attempt_the_total(make_context, threads):
    def act(context):
        return [Abstained("a", "cannot tell"), RewardScore("a", 1.0, ""), RewardScore("a", 0.0, "")]

    rewarders = [WeightedRewarder(Scripted("a", act)), WeightedRewarder(RelativeRewarder(), 0.0)]
    result = await score_group(rewarders, make_context(["x", "y", "z"]), threads)
    assert result.totals == {"r1": 1.0, "r2": 0.0}
    assert isinstance(result.verdicts[0][1], Abstained)
    assert result.verdicts[1][1].score == 1.0


async def test_a_single_attempt_is_not_ranked_and_that_is_no_fault(make_context, threads):
    rewarders = [WeightedRewarder(GroundTruthRewarder()), WeightedRewarder(RelativeRewarder(), 0.0)]
    result = await score_group(rewarders, make_context(["42"]), threads)
    assert result.totals == {"r0": 1.0}
    assert isinstance(result.verdicts[0][1], Abstained)
    assert dict(result.faults) == {}


async def test_a_hanging_rewarder_is_recorded_and_holds_up_nobody(make_context, threads, release):
    hanging = Scripted("slow", lambda context: release.wait(60) and [])
    rewarders = [WeightedRewarder(hanging, 0.0, timeout_s=0.05), WeightedRewarder(fixed("good", 1.0))]
    result = await score_group(rewarders, make_context(["x"]), threads)
    assert result.timed_out == result.faults["slow"] == "slow: no verdict within 0.05 s"
    assert result.totals == {"r0": 1.0}


async def test_hanging_rewarders_do_not_use_up_the_threads(make_context, release):
    with RewarderThreads(limit=1) as pool:
        hanging = WeightedRewarder(Scripted("slow", lambda context: release.wait(60) and []), 0.0, timeout_s=0.05)
        context = make_context(["x"])
        results = await asyncio.gather(
            *(score_group([hanging, WeightedRewarder(fixed("good", 1.0))], context, pool) for _ in range(4))
        )
    assert all(result.timed_out and result.totals == {"r0": 1.0} for result in results)


async def test_waiting_for_a_thread_does_not_count_towards_the_limit(make_context):
    slow = WeightedRewarder(
        Scripted("slow", lambda context: threading.Event().wait(0.08) or [RewardScore("slow", 1.0, "")]), timeout_s=0.5
    )
    with RewarderThreads(limit=1) as pool:
        results = await asyncio.gather(*(score_group([slow], make_context(["x"]), pool) for _ in range(10)))
    assert [result.timed_out for result in results] == [None] * 10


async def test_a_rewarder_that_reports_its_own_timeout_counts_as_timed_out(make_context, threads):
    remote = WeightedRewarder(raising("remote", RewarderTimeout("remote: no reply")))
    result = await score_group([remote], make_context(["x"]), threads)
    assert result.timed_out == "remote: no reply"


async def test_quick_rewarders_stay_on_the_loop_and_others_leave_it(make_context, threads):
    own, quick = fixed("own", 1.0), fixed("quick", 1.0)
    quick.quick = True
    rewarders = [WeightedRewarder(own), WeightedRewarder(quick)]
    await score_group(rewarders, make_context(["x"]), threads)
    assert own.seen[0][1] is not threading.current_thread()
    assert quick.seen[0][1] is threading.current_thread()
    await score_group(rewarders, make_context(["x" * 300_000]), threads)
    assert quick.seen[1][1] is not threading.current_thread()


async def test_no_attempts_ask_nobody(make_context, threads):
    rewarder = fixed("a")
    result = await score_group([WeightedRewarder(rewarder)], make_context([]), threads)
    assert (result.verdicts, dict(result.totals), rewarder.seen) == ((), {}, [])


async def test_cancelling_a_group_gives_its_threads_back(make_context, release):
    with RewarderThreads(limit=1) as pool:
        started, loop = asyncio.Event(), asyncio.get_running_loop()

        def hang(context):
            loop.call_soon_threadsafe(started.set)
            return release.wait(60) and []

        hanging = WeightedRewarder(Scripted("slow", hang), timeout_s=60)
        task = asyncio.create_task(score_group([hanging], make_context(["x"]), pool))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await score_group([WeightedRewarder(fixed("good", 1.0))], make_context(["x"]), pool)
    assert result.totals == {"r0": 1.0}


def test_a_hanging_rewarder_does_not_keep_the_process_alive():
    program = """
import asyncio, threading
from tfgrpo.rewarders.base import Attempt, RewardContext
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.rewarders.scoring import WeightedRewarder, score_group
class Slow:
    rewarder_id = "slow"
    def score(self, context):
        threading.Event().wait()
context = RewardContext("f#q", "q", "p", "a", (Attempt("r0", 0, "x", 1),))
result = asyncio.run(score_group([WeightedRewarder(Slow(), 1.0, 0.05)], context, RewarderThreads()))
assert result.timed_out
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_refuse_calls_after_shutdown_and_drop_those_that_wait(release):
    pool = RewarderThreads(limit=1)
    running = pool.submit(release.wait, 60)
    waiting = pool.submit(int, "7")
    pool.shutdown()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int, "7")
    release.set()
    assert running.result(10) is True


def test_an_abandoned_call_that_still_waits_is_never_run(release):
    with RewarderThreads(limit=1) as pool:
        running = pool.submit(release.wait, 60)
        ran = []
        waiting = pool.submit(ran.append, 1)
        pool.abandon(waiting)
        release.set()
        running.result(10)
        assert pool.submit(int, "7").result(10) == 7
    assert ran == []


def test_a_call_that_raises_hands_its_error_to_the_caller():
    with RewarderThreads() as pool, pytest.raises(ValueError, match="invalid literal"):
        pool.submit(int, "x").result(10)
    with pytest.raises(ValueError, match="limit"):
        RewarderThreads(limit=0)


@pytest.mark.parametrize(("weight", "timeout_s"), [(-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, 0.0)])
def test_unusable_weights_and_limits_are_refused(weight, timeout_s):
    with pytest.raises(ValueError, match="accepted"):
        WeightedRewarder(fixed("a"), weight, timeout_s)


def test_a_set_of_rewarders_that_can_give_no_total_is_refused():
    gt, relative = GroundTruthRewarder(), RelativeRewarder()
    check_rewarders([WeightedRewarder(gt), WeightedRewarder(relative, 0.0)])
    with pytest.raises(PipelineError) as caught:
        check_rewarders([WeightedRewarder(gt, 0.0), WeightedRewarder(gt, 0.0), WeightedRewarder(relative)])
    assert len(caught.value.problems) == 2


def test_a_rank_that_counts_needs_groups_of_two():
    counting = [WeightedRewarder(GroundTruthRewarder()), WeightedRewarder(RelativeRewarder())]
    check_rewarders(counting, group_size=2)
    with pytest.raises(PipelineError, match="relative counting in groups of 1"):
        check_rewarders(counting, group_size=1)
    check_rewarders([counting[0], WeightedRewarder(RelativeRewarder(), 0.0)], group_size=1)


@pytest.mark.parametrize("weight", [0.0, 1.0])
async def test_only_a_rewarder_that_counts_breaks_a_rollout(make_context, threads, weight):
    broken = WeightedRewarder(raising("broken", RuntimeError("down")), weight)
    said = await score_group([broken], make_context(["7", "8"]), threads)
    assert [verdict.broke for each in said.verdicts for verdict in each] == [weight > 0] * 2
