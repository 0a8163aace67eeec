"""What do the rows of all targets have in common? Messages as chat templates take them, and where a row comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tfgrpo.stores.batch.shapes import LogProbs, Rollout
from tfgrpo.stores.frozen_json import to_builtins
from tfgrpo.tasks.exports.choosing import Chosen, ExportOptions, Left, phase_of

_UNTEMPERED: Final = 1.0


def completion_messages(rollout: Rollout) -> list[dict[str, Any]]:
    """The answer as chat messages, with tool arguments as the objects that chat templates expect."""
    return [_for_templates(to_builtins(turn)) for turn in rollout.messages or ()]


def recorded(chosen: Chosen, left: Left) -> dict[str, Any]:
    """The attempts of a group as columns: what was answered, what it was worth, and log-probabilities where they may be used.

    An empty list stands for log-probabilities or token ids that are not there: readers of JSON lines want one type.
    """
    rollouts = chosen.group.rollouts
    return {
        "recorded_completions": [completion_messages(rollout) for rollout in rollouts],
        "recorded_rewards": [reward_of(rollout) for rollout in rollouts],
        "recorded_logprobs": _logprobs(rollouts, left),
        "recorded_token_ids": _token_ids(rollouts),
    }


def provenance(chosen: Chosen, options: ExportOptions) -> dict[str, Any]:
    """Where a row comes from, so that off-policy and simulated data can be told."""
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


def tools_column(chosen: Chosen) -> dict[str, str]:
    """The tools that the model was told of, as JSON text, which every row can hold; nothing where there were none."""
    tools = chosen.group.metadata.get("tools")
    return {"tools": json.dumps(to_builtins(tools), ensure_ascii=False)} if tools else {}


def reference_answer(chosen: Chosen) -> str:
    """The reference answer of the item; empty when it has none."""
    answer = chosen.group.metadata.get("answer")
    return answer if isinstance(answer, str) else ""


def reward_of(rollout: Rollout) -> float:
    """The reward of an attempt that was chosen. Raises ``ValueError`` for one that has none."""
    if rollout.reward is None:
        raise ValueError(f"rollout {rollout.id} has no reward")
    return float(rollout.reward)


def _for_templates(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_called(call) for call in calls]}


def _called(call: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that are no JSON object stay the text that the model wrote."""
    function = dict(call["function"])
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, TypeError, KeyError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        function["arguments"] = arguments
    return {**call, "function": function}


def _logprobs(rollouts: Iterable[Rollout], left: Left) -> list[list[float]]:
    """Of every token of every answer, or of none: a ratio needs the distribution that was sampled from."""
    values: list[list[float]] = []
    reasons: set[str] = set()
    for rollout in rollouts:
        logprob = rollout.logprob
        if logprob is None:
            return []
        reason = _unfit(logprob, rollout)
        if reason:
            reasons.add(reason)
        else:
            values.append(list(logprob.tokens or ()))
    for reason in reasons:
        left.logprobs[reason] += 1
    return [] if reasons else values


def _unfit(logprob: LogProbs, rollout: Rollout) -> str | None:
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
