"""Seconds of built-in scorers for 500 rollouts, and what isolation costs: ``python -m benchmarks rewarders``."""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.machine import Machine
from benchmarks.table import Row
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Attempt, RewardContext, Weighted

FIVE = ("math_exact", "number_match", "json_schema", "latex_only", "reasoning_format")
ITEMS, GROUP_SIZE, REPEATS, LIMIT_S = 100, 5, 7, 2.0
ISOLATED = ((1, 500, 2.0), (64, 100, 0.3))
"""Attempts in a call, calls, and the bar in milliseconds an attempt."""
STEP = "First 12 boxes of 1,080 apples each are counted, then 3/4 of them are set aside for later. "


def contexts(output_chars: int) -> list[RewardContext]:
    """Groups whose outputs have about ``output_chars`` characters and end in an answer line."""
    filler = STEP * max(1, output_chars // len(STEP))
    return [
        RewardContext(
            f"bench.jsonl#{item}",
            f"q{item}",
            "How many?",
            str(item),
            tuple(
                Attempt(f"{item}-{index}", index, f"{filler}\nAnswer: {item + index % 2}", tokens=100)
                for index in range(GROUP_SIZE)
            ),
        )
        for item in range(ITEMS)
    ]


async def score_all(groups: list[RewardContext], scorers: list[Weighted]) -> float:
    """Seconds for all groups, concurrently, as a run does it."""
    with ScoreRunner() as runner:
        start = time.perf_counter()
        results = await asyncio.gather(*(runner.score_group(scorers, group) for group in groups))
        seconds = time.perf_counter() - start
    if sum(len(result.totals) for result in results) != ITEMS * GROUP_SIZE:
        raise SystemExit("not every rollout got a total")
    return seconds


async def isolated_ms(count: int, calls: int) -> float:
    """Median milliseconds an attempt of a function in a worker process, which does nothing, in calls of ``count``."""
    scorer = build_scorer("operator:eq")
    attempts = tuple(Attempt(str(index), index, f"{STEP * 10}{index}", tokens=100) for index in range(count))
    context = RewardContext("bench.jsonl#q", "q", "How many?", "42", attempts)
    took = []
    with ScoreRunner() as runner:
        await runner.score(scorer, [context])  # starts the process
        for _ in range(calls):
            start = time.perf_counter()
            await runner.score(scorer, [context])
            took.append(time.perf_counter() - start)
    return 1e3 * statistics.median(took) / count


def measure() -> list[Row]:
    """One row for each set of scorers and length of output, and for each size of a call in a process."""
    plain = [Weighted(build_scorer("gt", {"match": "numeric"})), Weighted(build_scorer("relative"), 0.0)]
    graders = [Weighted(build_scorer(name)) for name in FIVE]
    rows = []
    for scorers, note, lengths in (
        (plain, "gt and relative", (100, 2_000, 100_000)),
        (graders, "five graders", (100, 2_000, 20_000)),
    ):
        for chars in lengths:
            groups = contexts(chars)
            median = statistics.median(asyncio.run(score_all(groups, scorers)) for _ in range(REPEATS))
            name = f"rewarders: {ITEMS * GROUP_SIZE} rollouts of {chars:,} characters"
            rows.append(Row(name, median, "s", LIMIT_S, note))
    machine = Machine()
    for count, calls, bar in ISOLATED:
        machine.look()
        note = f"an attempt, in calls of {count}; median of {calls} calls"
        rows.append(Row(f"rewarders: isolation, calls of {count}", asyncio.run(isolated_ms(count, calls)), "ms", bar, note))
    return [*rows, *machine.rows("rewarders")]
