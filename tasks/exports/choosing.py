"""Choose the groups and attempts that can be trained on, and count the omitted ones by reason.

An attempt needs a reward and its whole answer; a group needs two such attempts with different rewards, or it is flagged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, is_messages, spread_of_rewards
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.frozen_json import Json, to_builtins
from tfgrpo.stores.outcomes import Phase, Signal

Target: TypeAlias = Literal["trl-grpo", "trl-dpo", "trl-kto", "trl-sft", "verl", "openrlhf", "jsonl"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)
PromptChoice: TypeAlias = Literal["as-sent", "bare"]
DegenerateChoice: TypeAlias = Literal["drop", "flag"]
PhaseChoice: TypeAlias = Literal["train", "eval", "all"]

OTHER_PHASE: Final[Mapping[PhaseChoice, str]] = {
    "train": "held out for the gate",
    "eval": "of training, not held out",
}
"""Why a group is omitted, by the phase that is wanted."""
NO_BARE_PROMPT: Final = "its bare prompt is not known"
NO_CHAT_PROMPT: Final = "its prompt is neither a text nor chat messages that end with the user or a tool"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export. Raises ``SettingsError`` for values out of range."""

    target: Target
    prompt: PromptChoice = "as-sent"
    """``bare``: the task alone, without the pack's text and the lessons, as for distilling them into weights."""
    degenerate: DegenerateChoice = "drop"
    """Groups without two different rewards: dropped, or kept and flagged."""
    phase: PhaseChoice = "train"
    """Training on the held-out groups of the sweep would spoil the next gate's evidence."""
    min_gap: float = 0.0
    """Least difference of rewards between chosen and rejected; they always differ."""
    pairs: int = 1
    """Most pairs out of one group."""
    min_reward: float | None = None
    """Least reward of an answer worth imitating. None: the best of its group, or better than the group's mean."""
    min_spread: float = 1e-6
    """Rewards closer together than this (population standard deviation) are the same."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_gap < float("inf"):
            raise SettingsError.one("--min-gap", repr(self.min_gap), "a number from 0")
        if self.pairs < 1:
            raise SettingsError.one("--pairs", repr(self.pairs), "a whole number from 1")
        if self.min_reward is not None and not abs(self.min_reward) < float("inf"):
            raise SettingsError.one("--min-reward", repr(self.min_reward), "a number")


@dataclass(slots=True)
class Omitted:
    """Counts of what was not exported, by reason."""

    groups: Counter[str] = field(default_factory=Counter)
    rollouts: Counter[str] = field(default_factory=Counter)
    """Of exported groups."""
    logprobs: Counter[str] = field(default_factory=Counter)
    """Groups exported without their log-probabilities."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A group as it is exported."""

    group: RolloutGroup
    """With only the attempts that can be trained on."""
    prompt: tuple[Mapping[str, Any], ...]
    """As chat messages."""
    signal: Signal

    @property
    def degenerate(self) -> Signal | None:
        """Why a comparison of its attempts is useless; None when it is useful."""
        return None if self.signal == "mixed" else self.signal

    @property
    def ranked(self) -> list[Rollout]:
        """The attempts, best first; of equals the one with fewer tokens, then the earlier."""
        return sorted(self.group.rollouts, key=_order)


def choose(group: RolloutGroup, options: ExportOptions, omitted: Omitted) -> Chosen | None:
    """Return the group as it is exported, or None when it is omitted, which is counted."""
    reason, prompt = _prompt(group, options)
    usable = [rollout for rollout in group.rollouts if unusable(rollout) is None]
    signal = signal_of(usable, options.min_spread)
    if not reason and signal != "mixed" and options.degenerate == "drop":
        reason = _DEGENERATE[signal]
    if not reason and not usable:
        reason = _DEGENERATE["lost"]
    if reason:
        omitted.groups[reason] += 1
        return None
    for rollout in group.rollouts:
        if defect := unusable(rollout):
            omitted.rollouts[defect] += 1
    return Chosen(replace(group, rollouts=tuple(usable)), prompt, signal)


def of_phase(group: RolloutGroup, phase: PhaseChoice) -> bool:
    """Whether a group belongs to the phase that is wanted; one without a phase belongs to training."""
    return phase in ("all", group.metadata.get("phase", "train"))


def unusable(rollout: Rollout) -> str | None:
    """Return why an attempt cannot be trained on, or None when it can."""
    if rollout.reward is None:
        return f"{rollout.metadata.get('outcome', rollout.status)}: no reward"
    if rollout.completion is None:
        return "its whole answer is not on record"
    turns = rollout.messages
    if turns is None or turns[0]["role"] != "assistant":
        return "its answer is neither a text nor messages that begin with the assistant"
    return None


def signal_of(rollouts: list[Rollout], min_spread: float) -> Signal:
    """Classify the rewards of these attempts."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    from tfgrpo.tasks.group import classify  # noqa: PLC0415 - loads all that a rollout needs, for `export --help` too

    return classify(rewards, spread_of_rewards(rewards) or 0.0, min_spread)


def _chat_messages(state: Json) -> tuple[Mapping[str, Any], ...] | None:
    """Return a prompt as chat messages that a model can answer, or None when it is not one."""
    if isinstance(state, str):
        return ({"role": "user", "content": state},)
    if not is_messages(state) or state[-1]["role"] not in _ANSWERABLE:
        return None
    return tuple(to_builtins(state))


_ANSWERABLE: Final = ("user", "tool")
_DEGENERATE: Final[Mapping[Signal, str]] = {
    "all_pass": "flat: every attempt has the full reward",
    "all_fail": "flat: no attempt has any reward",
    "flat": "flat: all attempts have the same reward",
    "lost": "fewer than two attempts with a reward and their whole answer",
}


def _prompt(group: RolloutGroup, options: ExportOptions) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Return why there is no usable prompt, empty when there is one, and the prompt."""
    state = group.state if options.prompt == "as-sent" else group.bare_state
    if state is None:
        return NO_BARE_PROMPT, ()
    messages = _chat_messages(state)
    return (NO_CHAT_PROMPT, ()) if messages is None else ("", messages)


def _order(rollout: Rollout) -> tuple[float, float, int]:
    tokens = rollout.completion_tokens
    return -(rollout.reward or 0.0), float("inf") if tokens is None else tokens, rollout.index


def phase_of(group: RolloutGroup) -> Phase:
    """Return ``train`` unless the group was held out."""
    return "eval" if group.metadata.get("phase") == "eval" else "train"
