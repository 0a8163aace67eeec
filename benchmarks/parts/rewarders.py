"""Seconds of built-in rewarders and graders for 500 rollouts: ``python -m benchmarks.parts.rewarders``."""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.table import Row, table
from tfgrpo.rewarders.base import Attempt, RewardContext
from tfgrpo.rewarders.gt import GroundTruthRewarder
from tfgrpo.rewarders.registry import build_rewarder
from tfgrpo.rewarders.relative import RelativeRewarder
from tfgrpo.rewarders.scoring import WeightedRewarder, score_group
from tfgrpo.rewarders.threads import RewarderThreads

FIVE = ("math_exact", "number_match", "json_schema", "latex_only", "reasoning_format")
ITEMS, GROUP_SIZE, REPEATS, LIMIT_S = 100, 5, 7, 2.0
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


async def score_all(groups: list[RewardContext], rewarders: list[WeightedRewarder]) -> float:
    """Seconds for all groups, concurrently, as a run does it."""
    with RewarderThreads() as threads:
        start = time.perf_counter()
        results = await asyncio.gather(*(score_group(rewarders, group, threads) for group in groups))
        seconds = time.perf_counter() - start
    if sum(len(result.totals) for result in results) != ITEMS * GROUP_SIZE:
        raise SystemExit("not every rollout got a total")
    return seconds


def measure() -> list[Row]:
    """One row for each set of rewarders and length of output."""
    plain = [WeightedRewarder(GroundTruthRewarder("numeric")), WeightedRewarder(RelativeRewarder(), 0.0)]
    graders = [WeightedRewarder(build_rewarder(name)) for name in FIVE]
    rows = []
    for rewarders, note, lengths in (
        (plain, "gt and relative", (100, 2_000, 100_000)),
        (graders, "five graders", (100, 2_000, 20_000)),
    ):
        for chars in lengths:
            groups = contexts(chars)
            median = statistics.median(asyncio.run(score_all(groups, rewarders)) for _ in range(REPEATS))
            name = f"rewarders: {ITEMS * GROUP_SIZE} rollouts of {chars:,} characters"
            rows.append(Row(name, median, "s", LIMIT_S, note))
    return rows


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
