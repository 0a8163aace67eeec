"""Choose the groups and attempts that can be trained on, and count the omitted ones by reason.

An attempt needs a reward and its whole answer; a group needs two such attempts with different rewards, or it is flagged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.advantages.group import best_first
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, is_messages, spread_of_rewards
from tfgrpo.stores.json_values import Json, to_builtins
from tfgrpo.stores.outcomes import Signal, classify

ExportTarget: TypeAlias = Literal["trl-grpo", "trl-dpo", "trl-kto", "trl-sft", "verl", "openrlhf", "jsonl"]
TARGETS: Final[tuple[ExportTarget, ...]] = get_args(ExportTarget)
PhaseChoice: TypeAlias = Literal["train", "eval", "all"]
LeftOut: TypeAlias = Literal["groups", "rollouts", "logprobs"]
Prompt: TypeAlias = tuple[Mapping[str, Any], ...]

_DEGENERATE: Final[Mapping[Signal, str]] = {
    "all_pass": "flat: every attempt has the full reward",
    "all_fail": "flat: no attempt has any reward",
    "flat": "flat: all attempts have the same reward",
    "lost": "fewer than two attempts with a reward and their whole answer",
}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export."""

    target: ExportTarget
    prompt: Literal["as-sent", "bare"] = "as-sent"
    """``bare``: the task alone, without the pack's text and the lessons, as for distilling them into weights."""
    degenerate: Literal["drop", "flag"] = "drop"
    # Training on the held-out groups of the sweep would spoil the evidence of the next night.
    phase: PhaseChoice = "train"
    min_gap: float = 0.0
    pairs: int = 1
    min_reward: float | None = None
    """Least reward of an answer worth imitating. None: the best of its group, or better than the group's mean."""
    min_spread: float = 1e-6
    """Rewards closer together than this (population standard deviation) are the same."""


@dataclass(slots=True)
class ExportReport:
    """Options and result of an export. ``as_json`` is the report file."""

    source: str
    options: ExportOptions
    file: str | None = None
    simulated: bool = False
    rows: int = 0
    groups: dict[str, int] = field(default_factory=lambda: {"read": 0, "written": 0, "flagged": 0})
    rollouts: dict[str, int] = field(default_factory=lambda: {"read": 0})
    left_out: Mapping[LeftOut, Counter[str]] = field(default_factory=lambda: {what: Counter() for what in get_args(LeftOut)})
    """Counts by reason of groups, of rollouts of exported groups, and of groups without their log-probabilities."""
    policy_versions: Counter[str] = field(default_factory=Counter)
    experience_versions: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with a schema version."""
        options = asdict(self.options)
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        left = {what: dict((+counts).most_common()) for what, counts in self.left_out.items()}
        return {**content, "schema_version": 1, "target": options.pop("target"), "options": options, "left_out": left}

    def add(self, chosen: ChosenGroup, rows: int) -> None:
        """Count a written group."""
        group = chosen.group
        self.rows += rows
        self.groups["written"] += 1
        self.groups["flagged"] += bool(chosen.degenerate)
        self.simulated = self.simulated or bool(group.metadata.get("simulated"))
        self.policy_versions[group.policy_version or "unknown"] += 1
        self.experience_versions[group.experience_version or "unknown"] += 1


@dataclass(frozen=True, slots=True)
class ChosenGroup:
    """A group as it is exported."""

    group: RolloutGroup
    """With only the attempts that can be trained on; in the canonical form with all."""
    prompt: Prompt
    """As chat messages; unused in the canonical form."""
    degenerate: str

    @property
    def ranked(self) -> list[Rollout]:
        """The attempts, best first; of equals the one with fewer tokens, then the earlier."""
        rollouts = self.group.rollouts
        rewards = [rollout.reward or 0.0 for rollout in rollouts]
        return [rollouts[at] for at in best_first(rewards, [rollout.completion_tokens for rollout in rollouts])]


def chosen_group(group: RolloutGroup, report: ExportReport) -> ChosenGroup | None:
    """Return the group as it is exported, or None when it is omitted, which is counted in the report."""
    options = report.options
    unusable = [unusable_reason(rollout) for rollout in group.rollouts]
    usable = tuple(rollout for rollout, why in zip(group.rollouts, unusable, strict=True) if why is None)
    rewards = [rollout.reward for rollout in usable if rollout.reward is not None]
    signal = classify(rewards, spread_of_rewards(rewards) or 0.0, options.min_spread)
    degenerate = "" if signal == "mixed" else signal
    state = group.state if options.prompt == "as-sent" else group.bare_state
    prompt: Prompt | None = None
    if isinstance(state, str):
        prompt = ({"role": "user", "content": state},)
    elif is_messages(state) and state[-1]["role"] in ("user", "tool"):
        prompt = tuple(to_builtins(state))
    whole = options.target == "jsonl"
    reason = _other_phase(options.phase, group.metadata.get("phase", "train"))
    reason = reason or _without_prompt(state, prompt, bare=options.prompt == "bare", whole=whole)
    if not reason and degenerate and (options.degenerate == "drop" or not (whole or usable)):
        reason = f"degenerate: {signal}" if whole else _DEGENERATE[signal]
    if reason:
        report.left_out["groups"][reason] += 1
        return None
    # Failed attempts have a status and no reward.
    if whole:
        metadata = {**group.metadata, "signal": signal, "prompt": options.prompt}
        return ChosenGroup(replace(group, state=state, metadata=metadata), (), degenerate)
    report.left_out["rollouts"].update(why for why in unusable if why is not None)
    return ChosenGroup(replace(group, rollouts=usable), prompt or (), degenerate)


def _other_phase(choice: PhaseChoice, phase: str) -> str:
    if choice in ("all", phase):
        return ""
    if phase == "measure":
        return "measured on demand, for no learning"
    return "of training, not held out" if choice == "eval" else "held out for the sweep"


def _without_prompt(state: Json, prompt: object, *, bare: bool, whole: bool) -> str:
    if state is None and (bare or not whole):
        return "its bare prompt is not known"
    if whole or prompt is not None:
        return ""
    return "its prompt is neither a text nor chat messages that end with the user or a tool"


def unusable_reason(rollout: Rollout) -> str | None:
    """Return why an attempt cannot be trained on, or None when it can."""
    if rollout.reward is None:
        return f"{rollout.metadata.get('outcome', rollout.status)}: no reward"
    if rollout.completion is None:
        return "its whole answer is not on record"
    turns = rollout.messages
    if turns is None or turns[0]["role"] != "assistant":
        return "its answer is neither a text nor messages that begin with the assistant"
    return None
