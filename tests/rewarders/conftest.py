"""Shared pieces of the rewarder tests: contexts made from a few outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tfgrpo.rewarders.base import Attempt, RewardContext

MakeContext = Callable[..., RewardContext]


@pytest.fixture
def make_context() -> MakeContext:
    def make(outputs: Sequence[str], answer: str = "42", prior: Mapping[str, float] | None = None) -> RewardContext:
        attempts = tuple(Attempt(f"r{index}", index, output, tokens=1) for index, output in enumerate(outputs))
        return RewardContext("items.jsonl#q1", "q1", "prompt", answer, attempts, prior_scores=prior or {})

    return make
