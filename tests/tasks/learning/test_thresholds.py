from __future__ import annotations

import pytest

from tests.support.agents.curating import lesson
from tests.support.agents.steps import proposal
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.experiences.record import Reward
from tfgrpo.tasks.learning.operations import optimize_experience

POLICY = LearningSettings(min_reward=0.0, min_rank=0.5)


@pytest.mark.parametrize(
    ("reward", "rank", "polarity", "accepted"),
    [
        (1.0, 1.0, "do", True),
        (0.0, 1.0, "do", False),
        (0.0, 1.0, "avoid", True),
        (1.0, 0.4, "do", False),
        (1.0, 0.4, "avoid", False),
        (1.0, 0.5, "do", True),
    ],
)
def test_rank_and_reward_both_decide(reward, rank, polarity, accepted):
    weak = optimize_experience(proposal("x", best_reward=reward, best_rank=rank, polarity=polarity), POLICY)
    assert (weak is None) is accepted
    assert weak is None or (weak.text, weak.polarity, bool(weak.reason)) == ("x", polarity, True)


def test_the_settings_set_the_thresholds():
    policy = LearningSettings(min_reward=0.9, min_rank=0.8)
    assert "reward 0.9 does not exceed 0.9" in optimize_experience(proposal("x", best_reward=0.9), policy).reason
    assert "ranks 0.7, below 0.8" in optimize_experience(proposal("x", best_reward=1.0, best_rank=0.7), policy).reason
    assert optimize_experience(proposal("x", best_reward=1.0, best_rank=0.8), policy) is None


def experience(text="Check the sum.", **more):
    return lesson("e1", text, reward=Reward(gt_score=0.0, relative_rank=1.0), **more)


def test_records_are_checked_against_the_same_thresholds():
    assert "reward" in optimize_experience(experience(), POLICY).reason
    assert optimize_experience(experience(polarity="avoid"), POLICY) is None


def test_a_deletion_needs_no_reward():
    gone = experience("", operation="delete", supersedes=("e0",))
    assert optimize_experience(gone, POLICY) is None
