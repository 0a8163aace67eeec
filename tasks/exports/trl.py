"""What rows do TRL's trainers take? Conversational prompt, preference, unpaired preference and prompt-completion data.

The columns are those of TRL's page on dataset formats; any further one is ignored by its trainers, or handed to the reward
functions of GRPO.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfgrpo.tasks.exports.choosing import Chosen, ExportOptions, Left
from tfgrpo.tasks.exports.rows import (
    completion_messages,
    provenance,
    recorded,
    reference_answer,
    reward_of,
    tools_column,
)

_SAME = 1e-12


def grpo_rows(chosen: Chosen, options: ExportOptions, left: Left) -> Iterator[dict[str, Any]]:
    """``prompt`` and columns for reward functions: the reference answer, and what the recorded attempts were worth."""
    yield {
        "prompt": list(chosen.prompt),
        "answer": reference_answer(chosen),
        **recorded(chosen, left),
        "provenance": provenance(chosen, options),
    }


def dpo_rows(chosen: Chosen, options: ExportOptions, left: Left) -> Iterator[dict[str, Any]]:
    """``prompt``, ``chosen``, ``rejected``: the best against the worst, then the next best against the next worst."""
    ranked = chosen.ranked
    taken: set[str] = set()
    for place in range(min(options.pairs, len(ranked) // 2)):
        best, worst = ranked[place], ranked[-1 - place]
        gap = reward_of(best) - reward_of(worst)
        if gap <= 0.0 or gap < options.min_gap or best.completion == worst.completion:
            break
        taken |= {best.id, worst.id}
        yield {
            "prompt": list(chosen.prompt),
            "chosen": completion_messages(best),
            "rejected": completion_messages(worst),
            "chosen_reward": reward_of(best),
            "rejected_reward": reward_of(worst),
            **tools_column(chosen),
            "provenance": provenance(chosen, options),
        }
    if not taken:
        left.groups["no two different answers whose rewards are far enough apart"] += 1
    else:
        left.rollouts["in no pair"] += len(ranked) - len(taken)


def kto_rows(chosen: Chosen, options: ExportOptions, left: Left) -> Iterator[dict[str, Any]]:
    """``prompt``, ``completion``, ``label``: desirable is what beats its group's mean, or reaches ``min_reward``."""
    rollouts = chosen.group.rollouts
    mean = sum(reward_of(rollout) for rollout in rollouts) / len(rollouts)
    for rollout in rollouts:
        difference = reward_of(rollout) - (mean if options.min_reward is None else options.min_reward)
        if options.min_reward is None and abs(difference) <= _SAME:
            left.rollouts["as good as its group's mean: neither desirable nor undesirable"] += 1
            continue
        yield {
            "prompt": list(chosen.prompt),
            "completion": completion_messages(rollout),
            "label": difference >= 0.0,
            "reward": reward_of(rollout),
            **tools_column(chosen),
            "provenance": provenance(chosen, options),
        }


def sft_rows(chosen: Chosen, options: ExportOptions, left: Left) -> Iterator[dict[str, Any]]:
    """``prompt`` and ``completion``: the best attempt of each group, if it reaches ``min_reward``."""
    best = chosen.ranked[0]
    if options.min_reward is not None and reward_of(best) < options.min_reward:
        left.groups["no answer reaches the least reward"] += 1
        return
    left.rollouts["not the best of its group"] += len(chosen.group.rollouts) - 1
    yield {
        "prompt": list(chosen.prompt),
        "completion": completion_messages(best),
        "reward": reward_of(best),
        **tools_column(chosen),
        "provenance": provenance(chosen, options),
    }
