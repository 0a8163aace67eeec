"""Rows of each trainer's format: TRL's dataset types, and the prompt sets of verl and OpenRLHF.

The columns are those of each trainer's documentation. Recorded attempts are in further columns, which a trainer ignores
or hands to the user's reward functions; verl and OpenRLHF draw their own rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from tfgrpo.stores.batch.shapes import LogProbs, Rollout
from tfgrpo.stores.frozen_json import to_builtins
from tfgrpo.tasks.exports.choosing import Chosen, ExportOptions, Omitted, phase_of

Row: TypeAlias = dict[str, Any]
_UNTEMPERED: Final = 1.0
_SAME: Final = 1e-12
_GENERAL: Final = "general"


def grpo_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted) -> Iterator[Row]:
    """Yield ``prompt`` and columns for reward functions: the reference answer, and the recorded attempts with rewards."""
    yield {
        "prompt": list(chosen.prompt),
        "answer": _answer(chosen),
        **_recorded(chosen, omitted),
        "provenance": _provenance(chosen, options),
    }


def dpo_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted) -> Iterator[Row]:
    """Yield ``prompt``, ``chosen``, ``rejected``: the best against the worst, then the next best against the next worst."""
    ranked = chosen.ranked
    taken: set[str] = set()
    for index in range(min(options.pairs, len(ranked) // 2)):
        best, worst = ranked[index], ranked[-1 - index]
        gap = _reward(best) - _reward(worst)
        if gap <= 0.0 or gap < options.min_gap or best.completion == worst.completion:
            break
        taken |= {best.id, worst.id}
        yield {
            "prompt": list(chosen.prompt),
            "chosen": _messages(best),
            "rejected": _messages(worst),
            "chosen_reward": _reward(best),
            "rejected_reward": _reward(worst),
            **_tools_column(chosen),
            "provenance": _provenance(chosen, options),
        }
    if not taken:
        omitted.groups["no two different answers whose rewards are far enough apart"] += 1
    else:
        omitted.rollouts["in no pair"] += len(ranked) - len(taken)


def kto_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted) -> Iterator[Row]:
    """Yield ``prompt``, ``completion``, ``label``: desirable is what beats its group's mean, or reaches ``min_reward``."""
    rollouts = chosen.group.rollouts
    mean = sum(_reward(rollout) for rollout in rollouts) / len(rollouts)
    for rollout in rollouts:
        difference = _reward(rollout) - (mean if options.min_reward is None else options.min_reward)
        if options.min_reward is None and abs(difference) <= _SAME:
            omitted.rollouts["as good as its group's mean: neither desirable nor undesirable"] += 1
            continue
        yield {
            "prompt": list(chosen.prompt),
            "completion": _messages(rollout),
            "label": difference >= 0.0,
            "reward": _reward(rollout),
            **_tools_column(chosen),
            "provenance": _provenance(chosen, options),
        }


def sft_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted) -> Iterator[Row]:
    """Yield ``prompt`` and ``completion``: the best attempt of each group, if it reaches ``min_reward``."""
    best = chosen.ranked[0]
    if options.min_reward is not None and _reward(best) < options.min_reward:
        omitted.groups["no answer reaches the least reward"] += 1
        return
    omitted.rollouts["not the best of its group"] += len(chosen.group.rollouts) - 1
    yield {
        "prompt": list(chosen.prompt),
        "completion": _messages(best),
        "reward": _reward(best),
        **_tools_column(chosen),
        "provenance": _provenance(chosen, options),
    }


def verl_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted, index: int) -> Iterator[Row]:
    """Yield ``data_source``, ``prompt``, ``ability``, ``reward_model``, ``extra_info``. ``index``: number of the row.

    A group of one attempt is omitted: verl would use its reward as its advantage.
    """
    if len(chosen.group.rollouts) < 2:
        omitted.groups["a single attempt, whose reward verl would take for its advantage"] += 1
        return
    answer = _answer(chosen)
    source = _provenance(chosen, options)
    yield {
        "data_source": _source(chosen),
        "prompt": list(chosen.prompt),
        "ability": str(chosen.group.metadata.get("domain") or _GENERAL),
        "reward_model": {"style": "rule" if answer else "model", "ground_truth": answer},
        "extra_info": {
            "index": index,
            "split": "train" if source["phase"] == "train" else "test",
            **source,
            **_recorded(chosen, omitted),
        },
    }


def openrlhf_rows(chosen: Chosen, options: ExportOptions, omitted: Omitted) -> Iterator[Row]:
    """Yield ``input``, ``label``, ``datasource``. Only whole groups: OpenRLHF reshapes rewards to one row per prompt."""
    if len(chosen.group.rollouts) != chosen.group.target_size:
        omitted.groups["ragged: not every attempt has a reward and its whole answer"] += 1
        return
    yield {
        "input": list(chosen.prompt),
        "label": _answer(chosen),
        "datasource": _source(chosen),
        **_recorded(chosen, omitted),
        "provenance": _provenance(chosen, options),
    }


def _source(chosen: Chosen) -> str:
    known = chosen.group.metadata
    return str(known.get("task_id") or known.get("domain") or _GENERAL)


def _messages(rollout: Rollout) -> list[dict[str, Any]]:
    """Return the answer as chat messages, with tool arguments as the objects that chat templates expect."""
    messages = [to_builtins(turn) for turn in rollout.messages or ()]
    for message in messages:
        if message.get("tool_calls"):
            message["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return messages


def _recorded(chosen: Chosen, omitted: Omitted) -> dict[str, Any]:
    """Return the attempts of a group as columns: answers, rewards, and log-probabilities that may be used.

    Missing log-probabilities and token ids are an empty list: readers of JSON lines expect one type.
    """
    rollouts = chosen.group.rollouts
    return {
        "recorded_completions": [_messages(rollout) for rollout in rollouts],
        "recorded_rewards": [_reward(rollout) for rollout in rollouts],
        "recorded_logprobs": _logprobs(rollouts, omitted),
        "recorded_token_ids": _token_ids(rollouts),
    }


def _provenance(chosen: Chosen, options: ExportOptions) -> dict[str, Any]:
    """Return the origin of a row, which identifies off-policy and simulated data."""
    group = chosen.group
    known = group.metadata
    return {
        "run_id": known.get("run_id"),
        "group_id": group.id,
        "item_id": known.get("item_id"),
        "epoch": known.get("epoch"),
        "phase": phase_of(group),
        "policy_version": group.policy_version,
        "experience_version": group.experience_version,
        "library_id": known.get("library_id"),
        "pack_stamp": known.get("pack_stamp"),
        "prompt": options.prompt,
        "degenerate": chosen.degenerate or "",
        "simulated": bool(known.get("simulated", False)),
    }


def _tools_column(chosen: Chosen) -> dict[str, str]:
    """Return the tool schemas as JSON text, one type for all rows; no column without tools."""
    tools = chosen.group.metadata.get("tools")
    return {"tools": json.dumps(to_builtins(tools), ensure_ascii=False)} if tools else {}


def _answer(chosen: Chosen) -> str:
    """Return the reference answer of the item; empty when it has none."""
    answer = chosen.group.metadata.get("answer")
    return answer if isinstance(answer, str) else ""


def _reward(rollout: Rollout) -> float:
    """Return the reward of a chosen attempt. Raise ``ValueError`` when it has none."""
    if rollout.reward is None:
        raise ValueError(f"rollout {rollout.id} has no reward")
    return float(rollout.reward)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments parsed; arguments that are no JSON object stay the text of the model."""
    function = dict(call["function"])
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, TypeError, KeyError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        function["arguments"] = arguments
    return {**call, "function": function}


def _logprobs(rollouts: Iterable[Rollout], omitted: Omitted) -> list[list[float]]:
    """Return those of every token of every answer, or none: a ratio needs the distribution that was sampled from."""
    values: list[list[float]] = []
    reasons: set[str] = set()
    for rollout in rollouts:
        logprob = rollout.logprob
        if logprob is None:
            return []
        reason = _unusable_logprob(logprob, rollout)
        if reason:
            reasons.add(reason)
        else:
            values.append(list(logprob.tokens or ()))
    for reason in reasons:
        omitted.logprobs[reason] += 1
    return [] if reasons else values


def _unusable_logprob(logprob: LogProbs, rollout: Rollout) -> str | None:
    if not logprob.complete or logprob.tokens is None:
        return "not one for every token"
    sampling = rollout.sampling
    untouched = sampling.temperature == _UNTEMPERED and sampling.top_p in (None, _UNTEMPERED)
    if logprob.kind != "processed" and not untouched:
        return f"{logprob.kind}: perhaps not of the distribution that was sampled from, at a temperature that is not 1"
    return None


def _token_ids(rollouts: Iterable[Rollout]) -> list[list[int]]:
    known = [rollout.logprob.token_ids if rollout.logprob else None for rollout in rollouts]
    return [] if None in known else [list(ids) for ids in known if ids is not None]
