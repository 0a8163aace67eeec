"""A group on a mix is graded by its dataset's graders, as the data server would, and a broken grader is no number."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines.mixes import document, write_mix
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.mix.items import LearningMix
from tfgrpo.pipelines.plan.plan import close_scorers
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS
from tfgrpo.rewarders.registry import as_scorer
from tfgrpo.rewarders.runner import GroupScores, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Weighted

GRADERS = '''
import time

class ByExtra:
    """Looks at a key of the record that only this file knows."""
    async def grade_batch(self, inputs):
        return [float(item.record["extra"]) for item in inputs]

def broken(item):
    if "bad" in item.completion:
        raise ValueError("no idea")
    return 0.5

def slow(item):
    if "slow" in item.completion:
        time.sleep(1)
    return 0.5
'''


def graded(path: Path, item_id: str, *outputs: str, timeout_s: float = 20.0) -> GroupScores:
    attempts = tuple(Attempt(f"r{at}", at, output, tokens=5) for at, output in enumerate(outputs))
    rewarder = LearningMix(load_mix_config(path)).graders()

    async def main() -> GroupScores:
        with ScoreRunner() as runner:
            context = RewardContext("fixture", item_id, "prompt", "another answer", attempts)
            scores = await runner.score_group([Weighted(rewarder, 1.0, timeout_s)], context)
            await close_scorers([rewarder])
            return scores

    return asyncio.run(main())


def mix_graded_by(folder: Path, attr: str) -> Path:
    (folder / "graders.py").write_text(GRADERS, encoding="utf-8")
    changed = document(python_graders={"mine": {"path": f"graders.py:{attr}"}})
    changed["datasets"]["a"] |= {"graders": ["mine"], "grader_weights": [1]}
    return write_mix(folder, changed)


def test_rewards_combine_the_graders_of_the_dataset_with_the_format(tmp_path: Path) -> None:
    scores = graded(write_mix(tmp_path), "a:7", "<think>r</think>\n7", "7", "<think>r</think>\n8")
    assert dict(scores.totals) == pytest.approx({"r0": 1.0, "r1": 0.0, "r2": 0.25})
    assert [verdict[0].evidence for verdict in scores.verdicts] == [  # type: ignore[union-attr]
        "math_exact 1, reasoning_format 1",
        "math_exact 0, reasoning_format 0",
        "math_exact 0, reasoning_format 1",
    ]
    gated = graded(write_mix(tmp_path), "b:2", "<think>r</think>\n{}", "{}")
    assert dict(gated.totals) == pytest.approx({"r0": 0.0, "r1": 0.0})
    assert graded(mix_graded_by(tmp_path, "ByExtra"), "a:11", "text").totals["r0"] == pytest.approx(5.5)


@pytest.mark.parametrize(("attr", "word", "reason"), [("broken", "bad", "ValueError: no idea"), ("slow", "slow", "0.4")])
def test_what_a_grader_cannot_grade_costs_that_attempt_alone(tmp_path: Path, attr: str, word: str, reason: str) -> None:
    scores = graded(mix_graded_by(tmp_path, attr), "a:1", "good", word, "good", timeout_s=0.4)
    assert dict(scores.faults) == {}
    assert scores.totals["r0"] == 0.25
    assert "r1" not in scores.totals
    verdict = scores.verdicts[1][0]
    assert isinstance(verdict, Abstained)
    assert verdict.rewarder_id == DATASET_GRADERS
    assert reason in verdict.reason


@pytest.mark.parametrize("item_id", ["a:99", "c:1", "q"])
def test_an_item_of_no_dataset_is_a_fault_and_no_reward(tmp_path: Path, item_id: str) -> None:
    scores = graded(write_mix(tmp_path), item_id, "x")
    assert dict(scores.totals) == {}
    assert scores.faults["dataset_graders"].startswith("dataset_graders: sample_id: got")


def test_every_scorer_is_closed_whatever_comes_of_it() -> None:
    closed = []

    class Odd:
        rewarder_id = "odd"

        def score(self, context: RewardContext) -> list[Any]:
            return []

        def close(self) -> None:
            closed.append(self)
            raise RuntimeError

    asyncio.run(close_scorers([as_scorer("odd", Odd(), {}, "rewarders")] * 2))
    assert len(closed) == 2
