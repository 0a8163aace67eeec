"""Only one kind of outcome carries a reward."""

from __future__ import annotations

import pytest

from tfgrpo.stores.outcomes import Failed, Refused, RewardScore, Scored, Ungraded, scored_rewards

_NO_REWARD = [
    Ungraded("RewardError", "no answer"),
    Failed("ModelTimeout", "60 s", "1/train/0/q/0/0/rollout/0#ab"),
    Refused("max_calls"),
]


def test_a_failure_never_becomes_a_number():
    mixed = [Scored(1.0, (RewardScore("gt", 1.0, "4 = 4"),)), *_NO_REWARD, Scored(0.0, ())]
    assert scored_rewards(mixed) == (1.0, 0.0)
    assert scored_rewards(_NO_REWARD) == ()


@pytest.mark.parametrize("outcome", _NO_REWARD)
def test_outcomes_without_evidence_have_no_reward_to_read(outcome):
    assert not hasattr(outcome, "reward")
