from __future__ import annotations

import pytest

from tests.support.agents.curating import curate, groups, lesson, reasons, unasked
from tests.support.agents.steps import ScriptedModel
from tfgrpo.stores.experiences.store import Reward
from tfgrpo.tasks.learning.curate import ExperiencePolicy, optimize_experience


def experience(reward, rank):
    return lesson("e1", "Check the sum.", reward=Reward(gt_score=reward, relative_rank=rank))


@pytest.mark.parametrize(
    ("reward", "rank", "accepted"), [(1.0, 1.0, True), (0.5, 1.0, True), (0.4, 1.0, False), (1.0, 0.8, True), (1.0, 0.7, False)]
)
def test_rank_and_reward_both_decide(reward, rank, accepted):
    record = experience(reward, rank)
    policy = ExperiencePolicy(min_reward=0.5, min_rank=0.8)
    assert optimize_experience(record, policy) is (record if accepted else None)


def test_by_itself_any_reward_will_do_and_the_better_half_of_the_group():
    assert optimize_experience(experience(-3.0, 0.5)) is not None
    assert optimize_experience(experience(1.0, 0.49)) is None


async def test_a_lesson_on_the_worse_half_of_a_group_is_not_written(tmp_path):
    model = ScriptedModel(lambda *_: {"answers": [{"class": "new", "proposals": ["P1"], "text": "Check the sum."}]})
    result = await curate(model, tmp_path, groups("Check the sum.", best_rank=0.4))
    assert (result.records, result.words) == ((), ())
    assert reasons(result)["Check the sum."] == "its best attempt is in the worse half of its group"
    assert (await curate(unasked, tmp_path / "none", ())).records == ()
