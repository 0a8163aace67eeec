"""Evidence of two arms for the gate, and its decision, from rewards by item; None is a lost rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tests.support.agents.steps import record
from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.stores.outcomes import Failed, Scored
from tfgrpo.tasks.evaluation import PairedEvidence, Tried, pair_arms
from tfgrpo.tasks.gate import GateDecision, decide_gate

Rewards: TypeAlias = Mapping[str, Sequence[float | None]]


def outcome(reward: float | None) -> Failed | Scored:
    """Return the outcome of a rollout with this reward."""
    return Failed("ModelTimeout", "late") if reward is None else Scored(reward, ())


def arm(rewards: Rewards) -> dict[str, Tried]:
    """Return the attempts of one arm by item."""
    return {
        name: Tried.of([record(index, outcome=outcome(reward)) for index, reward in enumerate(values)])
        for name, values in rewards.items()
    }


def evidence(champion: Rewards, candidate: Rewards, *, identical: bool = False) -> PairedEvidence:
    """Return the pairs of a sweep."""
    return pair_arms(arm(champion), arm(candidate), identical=identical)


def items(count: int, values: Sequence[float | None]) -> dict[str, Sequence[float | None]]:
    """Return the same rewards for every item."""
    return {f"q{number}": values for number in range(count)}


def decide(champion: Rewards, candidate: Rewards, **settings: Any) -> GateDecision:
    """Return the decision on a sweep alone."""
    return decide_gate(evidence(champion, candidate), GateSettings(**settings))
