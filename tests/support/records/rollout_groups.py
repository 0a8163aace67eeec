"""Build rollouts, groups and batches of experience."""

from collections.abc import Callable
from typing import Any

import pytest

from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.errors import ShapeError


def rollout(group: str = "q1", index: int = 0, reward: float | None = 1.0, **more: Any) -> Rollout:
    values: dict[str, Any] = {
        "id": f"{group}/{index}",
        "group_id": group,
        "index": index,
        "completion": f"answer {index}",
        "reward": reward,
    }
    return Rollout(**{**values, **more})


def group(name: str = "q1", rewards: tuple[float | None, ...] = (1.0, 0.0), **more: Any) -> RolloutGroup:
    rollouts = tuple(rollout(name, index, reward) for index, reward in enumerate(rewards))
    values: dict[str, Any] = {"id": name, "state": f"prompt of {name}", "rollouts": rollouts}
    return RolloutGroup(**{**values, **more})


def full_group(name: str = "q1") -> RolloutGroup:
    """Return a group in which every field is set."""
    messages = [{"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}, {"role": "assistant", "content": "4"}]
    return RolloutGroup(
        id=name,
        state=[{"role": "system", "content": "Be careful.\r\n"}, {"role": "user", "content": "2 + 2 – wie viel? 🙂"}],
        rollouts=(
            rollout(
                name,
                completion=messages,
                reward_parts={"gt": 1.0, "style": None},
                logprob=LogProbs((-0.5, -0.25), (17, 4), -0.75, 2, "processed", complete=True, mask=(1, 1)),
                sampling=Sampling("m", 1.0, 1.0, 7, 64, "stop"),
                usage=RolloutUsage(10, 2, 0, 0.001),
                latency_s=0.5,
                metadata={"tags": ["a", {"b": 1}]},
            ),
            rollout(name, 3, None, completion=None, status="timeout", error="no answer within 5 s"),
        ),
        target_size=4,
        bare_state="2 + 2?",
        policy_version="m@1",
        experience_version="pack:abc",
        prompt_token_ids=(1, 2, 3),
        metadata={"answer": "4", "item_id": "i"},
    )


def batch(*groups: RolloutGroup) -> ExperienceBatch:
    return ExperienceBatch(groups)


def refused(make: Callable[[], object]) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        make()
    return caught.value
