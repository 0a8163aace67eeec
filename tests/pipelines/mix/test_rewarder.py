"""A group on a mix is graded by its dataset's graders, as the data server would, and a broken grader is no number."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines.mixes import document, write_mix
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.mix.items import dataset_graders
from tfgrpo.pipelines.plan.rewarders import build_scorers, close_scorers, mix_of, scorers_of
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, Settings
from tfgrpo.rewarders.registry import as_scorer
from tfgrpo.rewarders.runner import GroupScores, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Weighted

GRADERS = '''
import time
from tests.support.rewards.rewarder_examples import freeze

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
    if "freeze" in item.completion:
        freeze(0.8)
    return 0.5
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = {thread.name for thread in threading.enumerate()}
    yield tmp_path
    left = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in left if name.startswith("grader")}


def context(item_id: str, *outputs: str) -> RewardContext:
    attempts = tuple(Attempt(f"r{at}", at, output, tokens=5) for at, output in enumerate(outputs))
    return RewardContext("fixture", item_id, "prompt", "another answer", attempts)


def graded(path: Path, given: RewardContext, timeout_s: float = 20.0) -> GroupScores:
    rewarder = dataset_graders(load_mix_config(path))

    async def main() -> GroupScores:
        with ScoreRunner() as runner:
            scores = await runner.score_group([Weighted(rewarder, 1.0, timeout_s)], given)
            await close_scorers([rewarder])
            return scores

    return asyncio.run(main())


def test_rewards_combine_the_graders_of_the_dataset_with_the_format(folder: Path) -> None:
    scores = graded(write_mix(folder), context("a:7", "<think>r</think>\n7", "7", "<think>r</think>\n8"))
    assert dict(scores.totals) == pytest.approx({"r0": 1.0, "r1": 0.0, "r2": 0.25})
    assert [verdict[0].evidence for verdict in scores.verdicts] == [  # type: ignore[union-attr]
        "math_exact 1, reasoning_format 1",
        "math_exact 0, reasoning_format 0",
        "math_exact 0, reasoning_format 1",
    ]
    gated = graded(write_mix(folder), context("b:2", "<think>r</think>\n{}", "{}"))
    assert dict(gated.totals) == pytest.approx({"r0": 0.0, "r1": 0.0})


def test_graders_get_the_whole_record(folder: Path) -> None:
    (folder / "graders.py").write_text(GRADERS, encoding="utf-8")
    changed = document(python_graders={"extra": {"path": "graders.py:ByExtra"}})
    changed["datasets"]["a"] |= {"graders": ["extra"], "grader_weights": [1]}
    scores = graded(write_mix(folder, changed), context("a:11", "text"))
    assert scores.totals["r0"] == pytest.approx(5.5)


def test_what_a_grader_cannot_grade_costs_that_attempt_alone(folder: Path) -> None:
    (folder / "graders.py").write_text(GRADERS, encoding="utf-8")
    changed = document(python_graders={"broken": {"path": "graders.py:broken"}})
    changed["datasets"]["a"] |= {"graders": ["broken"], "grader_weights": [1]}
    scores = graded(write_mix(folder, changed), context("a:1", "good", "bad", "good"))
    assert dict(scores.totals) == {"r0": 0.25, "r2": 0.25}
    assert scores.verdicts[1][0] == Abstained(DATASET_GRADERS, "broken: ValueError: no idea", broke=True)


@pytest.mark.parametrize("late", ["slow", "freeze"])
def test_a_grader_that_is_late_costs_the_attempt_that_it_is_late_for(folder: Path, late: str) -> None:
    (folder / "graders.py").write_text(GRADERS, encoding="utf-8")
    changed = document(
        python_graders={"slow": {"path": "graders.py:slow"}},
    )
    changed["datasets"]["a"] |= {"graders": ["slow"], "grader_weights": [1]}
    scores = graded(write_mix(folder, changed), context("a:1", "good", late, "good"), timeout_s=0.4)
    assert dict(scores.faults) == {}
    assert scores.totals["r0"] == 0.25
    assert "r1" not in scores.totals
    assert "0.4" in scores.verdicts[1][0].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("item_id", ["a:99", "c:1", "q"])
def test_an_item_of_no_dataset_is_a_fault_and_no_reward(folder: Path, item_id: str) -> None:
    scores = graded(write_mix(folder), context(item_id, "x"))
    assert dict(scores.totals) == {}
    assert scores.faults["dataset_graders"].startswith("dataset_graders: sample_id: got")


def test_processes_that_grade_build_the_same_rewarders(folder: Path) -> None:
    path = write_mix(folder)
    settings = resolve_settings(cli={"dataset.mix": str(path)}, env={}).settings
    planned, working = build_scorers(settings, mix_of(settings)), scorers_of(settings)
    assert [(each.scorer.rewarder_id, each.weight, each.timeout_s) for each in planned] == [
        (each.scorer.rewarder_id, each.weight, each.timeout_s) for each in working
    ]
    plain: Any = scorers_of(Settings())
    assert [each.scorer.rewarder_id for each in plain] == ["gt", "relative"]


def test_closing_takes_what_comes() -> None:
    class Odd:
        rewarder_id = "odd"

        def score(self, context: RewardContext) -> list[Any]:
            return []

        def close(self) -> None:
            raise RuntimeError

    asyncio.run(close_scorers([as_scorer("odd", Odd(), {}, "rewarders")]))
