"""Rollouts and groups as frozen values, independent of the run that made them, and the check of a whole group.

They carry what a trainer needs: prompt, completion, reward, log-probabilities and sampling. Absent is None, never zero.
A constructor refuses only values outside JSON, because a group may be half of what it will be; batch, window and files
check the rest by ``check_groups``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import pstdev
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, ValidationInfo

from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.json_values import EMPTY, FrozenDict, Json, frozen, sha256_hex
from tfgrpo.stores.numeric import is_count, is_finite, is_number
from tfgrpo.stores.outcomes import RolloutStatus

LogProbKind: TypeAlias = Literal["raw", "processed", "unknown"]
"""``processed``: of the distribution that was sampled from, after temperature and truncation. ``raw``: before."""

GRADED: Final = ("ok", "parse_error")
"""The statuses with which a rollout can have a reward: what failed is never a number."""
ROUNDING: Final = 1e-5
"""How far above 0 a log-probability of single precision may be, and how far a sum of them may be off."""
NOT_COMPUTED: Final = -9999.0
"""Marker of OpenAI and vLLM for a log-probability that is minus infinity or was not computed: no value."""
_NAMES: Final[Any] = {"id": True, "rollouts": {"__all__": {"id", "group_id", "latency_s"}}}
# Digits of the digest in a default id: a million groups at one index collide with a probability below 1 in 500.
_ID_DIGITS: Final = 12
# Problems listed one by one; a batch that is wrong throughout is wrong in one way.
_SHOWN: Final = 50


def _at_most(bound: float, accepted: str) -> AfterValidator:
    def check(value: float, info: ValidationInfo) -> float:
        if value > bound or not (is_finite(value) or (info.context or {}).get("allow_nan")):
            raise ValueError(accepted)
        return value

    return AfterValidator(check)


_Number: TypeAlias = Annotated[float, _at_most(math.inf, "a finite number")]
_LogProb: TypeAlias = Annotated[float, _at_most(ROUNDING, "a finite number of at most 0")]
_Amount: TypeAlias = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_Count: TypeAlias = Annotated[int, Field(ge=0)]
_Name: TypeAlias = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Log-probabilities of the tokens of one completion, as reported when it was sampled."""

    tokens: tuple[_LogProb, ...] | None = None
    """One value per token; None when only the sum is known."""
    token_ids: tuple[int, ...] | None = None
    """Ids of the completion's tokens, where the server returned them; they cannot be derived from text."""
    total: _LogProb | None = None
    """Exact sum over the policy's own tokens, in nats; None when any value is missing."""
    count: _Count | None = None
    kind: LogProbKind = "unknown"
    complete: bool = False
    """Whether every token of the completion has its value."""
    mask: tuple[Literal[0, 1], ...] | None = None
    """1 for tokens of the policy, 0 for tool results in between; None: all of the policy."""

    def __post_init__(self) -> None:
        _freeze(self, ("tokens", "token_ids", "mask"))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a completion. None: unknown, or the endpoint's default."""

    model: str | None = None
    temperature: _Amount | None = None
    top_p: _Amount | None = None
    seed: int | None = None
    max_tokens: _Count | None = None
    finish_reason: str | None = None
    reshaped: bool | None = None
    """Whether the request had more that changes the distribution, such as ``top_k``, ``min_p`` or a penalty."""


@dataclass(frozen=True, slots=True)
class RolloutUsage:
    """Usage of a rollout. None is unknown, never zero."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None
    """Part of ``completion_tokens``; hidden, so without log-probabilities."""
    cost_usd: _Amount | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of one state."""

    id: _Name
    group_id: str
    index: _Count
    """Index in its group, from 0. A group that lost rollouts has gaps."""
    completion: Json
    """A text, a list of chat messages (assistant and tool turns), or any other JSON value; None without a reply."""
    status: RolloutStatus = "ok"
    reward: _Number | None = None
    """None: not graded. Higher is better."""
    reward_parts: Mapping[str, _Number | None] = EMPTY
    logprob: LogProbs | None = None
    """None: not captured; they cannot be computed later."""
    sampling: Sampling = Sampling()
    usage: RolloutUsage = RolloutUsage()
    latency_s: _Amount | None = None
    error: str | None = None
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        _freeze(self, (), ("completion", "reward_parts", "metadata"))

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...] | None:
        """The completion as chat messages, or None; a text is one assistant message."""
        if isinstance(self.completion, str):
            return (FrozenDict({"role": "assistant", "content": self.completion}),)
        return self.completion if is_messages(self.completion) else None

    @property
    def text(self) -> str | None:
        """The text of the completion, or of the last assistant message that has one; None for anything else."""
        if isinstance(self.completion, str):
            return self.completion
        contents = [turn.get("content") for turn in self.messages or () if turn["role"] == "assistant"]
        return next((text for text in reversed(contents) if isinstance(text, str)), None)

    @property
    def ratio_ready(self) -> bool:
        """Whether the log-probabilities are valid for probability ratios.

        They must be complete, and of the distribution that was sampled from: ``processed`` ones are, others only at
        temperature 1 without truncation. An unknown temperature or ``top_p`` counts as another one.
        """
        if self.logprob is None or not self.logprob.complete:
            return False
        untouched = self.sampling.temperature == 1.0 == self.sampling.top_p and not self.sampling.reshaped
        return self.logprob.kind == "processed" or untouched

    @property
    def complete_logprob(self) -> float | None:
        """The log-probability of the whole completion; None when any part of it is missing."""
        return self.logprob.total if self.logprob is not None and self.logprob.complete else None

    @property
    def completion_tokens(self) -> int | None:
        """Length of the completion in tokens, reported by the endpoint, else the number of log-probabilities."""
        if self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.logprob is None else self.logprob.count


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The rollouts of one state by one policy, with one library in force."""

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid", "revalidate_instances": "always"}
    """How a group with its rollouts is checked and read from JSON: no coercion, unknown keys refused."""

    id: _Name
    state: Json
    """The prompt as sent: a text, chat messages, or any other JSON value."""
    rollouts: tuple[Rollout, ...] = ()
    target_size: _Count = 0
    """Rollouts requested; 0: as many as there are. With fewer rollouts the group is ragged."""
    bare_state: Json = None
    """The prompt of the task alone, without injected lessons; None when it is the same, or not known."""
    policy_version: str | None = None
    experience_version: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    metadata: Mapping[str, Any] = EMPTY
    """More about the task. Exports use ``item_id``, ``answer``, ``domain``, ``run_id``, ``epoch``."""

    def __post_init__(self) -> None:
        _freeze(self, ("rollouts", "prompt_token_ids"), ("state", "bare_state", "metadata"))
        if self.target_size == 0:
            object.__setattr__(self, "target_size", len(self.rollouts))

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Reward of each rollout, or None, in order."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that have a reward."""
        return tuple(rollout for rollout in self.rollouts if rollout.reward is not None)

    @property
    def spread(self) -> float | None:
        """Population standard deviation of the rewards; None below two, and for NaN or infinity."""
        return spread_of_rewards([rollout.reward for rollout in self.rollouts if rollout.reward is not None])


def with_content_id(group: RolloutGroup, position: int) -> RolloutGroup:
    """Return the group and its rollouts with their default ids, as ``g0-1f3a9c0b7d2e`` and ``g0-1f3a9c0b7d2e/0``.

    That is the index ``position`` in its collection, and a digest of the content: a position alone would name the first
    group of every collection alike. How long a rollout took is no part of it.
    """
    content = _GROUP.dump_python(group, exclude=_NAMES, warnings=False)
    # By ``repr`` what is no JSON: the group is checked, and refused, after it is named.
    digest = sha256_hex(json.dumps(content, sort_keys=True, separators=(",", ":"), default=repr))
    name = f"g{position}-{digest[:_ID_DIGITS]}"
    rollouts = (replace(rollout, id=f"{name}/{rollout.index}", group_id=name) for rollout in group.rollouts)
    return replace(group, id=name, rollouts=tuple(rollouts))


def without_latency(group: RolloutGroup) -> RolloutGroup:
    """Return the group without how long its rollouts took."""
    return replace(group, rollouts=tuple(replace(rollout, latency_s=None) for rollout in group.rollouts))


def spread_of_rewards(rewards: Sequence[float]) -> float | None:
    """Return the population standard deviation; None below two values, and for NaN or infinity."""
    return pstdev(rewards) if len(rewards) > 1 and all(map(is_finite, rewards)) else None


def is_messages(value: object) -> bool:
    """Return whether a JSON value is a list of chat messages: objects with a ``role`` that is text."""
    turns = value if isinstance(value, list | tuple) else ()
    return bool(turns) and all(isinstance(turn, Mapping) and isinstance(turn.get("role"), str) for turn in turns)


def _freeze(record: object, tuples: Sequence[str], values: Sequence[str] = ()) -> None:
    for name in (*tuples, *values):
        value = getattr(record, name)
        if value is not None and not isinstance(value, str | FrozenDict):
            object.__setattr__(record, name, tuple(value) if name in tuples else frozen(value))


# --- the check of whole groups


_GROUP: Final = TypeAdapter(RolloutGroup)

Fault: TypeAlias = tuple[int | None, str, str, object]
"""Index of the rollout, None for the group itself; field; what is expected; what was received."""


def parse_group(text: str) -> tuple[RolloutGroup | None, list[Fault]]:
    """Return the group of a JSON text, None when it is none, and everything that is wrong with it."""
    try:
        group = _GROUP.validate_json(text, context={"allow_nan": False})
    except ValidationError as error:
        return None, [*_faults_of(error)]
    return group, [*_inconsistencies(group)]


def check_groups(groups: Sequence[object], *, allow_nan: bool = False) -> None:
    """Raise ``ShapeError`` with the problems of all groups, if there are any."""
    problems: list[ShapeProblem] = []
    seen: dict[object, int] = {}
    for number, group in enumerate(groups):
        problems.extend(problems_of_group(group, number, allow_nan=allow_nan))
        name = repr(group.id) if isinstance(group, RolloutGroup) else number
        if (first := seen.setdefault(name, number)) != number:
            problems.append(ShapeProblem("group id", "one of its own", str(name), f"indexes {first} and {number}"))
    if rest := problems[_SHOWN:]:
        problems[_SHOWN:] = [ShapeProblem("batch", f"at most {_SHOWN} problems", f"{len(rest)} more like these")]
    if problems:
        raise ShapeError(problems)


def problems_of_group(group: object, number: int, *, allow_nan: bool = False) -> list[ShapeProblem]:
    """Return the problems of the group at index ``number`` of its batch."""
    if not isinstance(group, RolloutGroup):
        return [ShapeProblem("groups", "a RolloutGroup", type(group).__name__, f"index {number}")]
    faults = [*_inconsistencies(group)]
    try:
        _GROUP.validate_python(group, context={"allow_nan": allow_nan})
    except ValidationError as error:
        faults = [*_faults_of(error), *faults]
    if not faults:
        return []
    position = f"group index {number}, id {group.id!r}"
    where = [f"{position}, rollout {getattr(rollout, 'id', None)!r}" for rollout in group.rollouts]
    return [
        ShapeProblem(name, expected, f"{received!r:.200}", position if index is None else where[index])
        for index, name, expected, received in faults
    ]


def _faults_of(error: ValidationError) -> Iterator[Fault]:
    # Of a list its first wrong value.
    seen = set()
    for fault in error.errors(include_url=False, include_context=False):
        steps = fault["loc"]
        index = int(steps[1]) if len(steps) > 1 and steps[0] == "rollouts" else None
        field = ".".join(step for step in steps[0 if index is None else 2 :] if isinstance(step, str))
        expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        if fault["type"] == "unexpected_keyword_argument":
            expected = "no field of this name"
        if (index, field) not in seen:
            seen.add((index, field))
            yield index, field or ("rollouts" if steps else ""), expected, fault["input"]


def _inconsistencies(group: RolloutGroup) -> Iterator[Fault]:
    size = len(group.rollouts)
    if is_number(group.target_size, allow_nan=False) and group.target_size < size:
        yield None, "target_size", f"at least its {size} rollouts", group.target_size
    for name in ("id", "index"):
        # By their texts: a value of another type may have no hash.
        counts = Counter(repr(getattr(rollout, name, rollout)) for rollout in group.rollouts)
        for value in (text for text, count in counts.items() if count > 1):
            yield None, f"rollout {name}", "one of its own", value
    rollouts: Sequence[object] = group.rollouts
    for index, rollout in enumerate(rollouts):
        if not isinstance(rollout, Rollout):
            continue
        if rollout.group_id != group.id:
            yield index, "group_id", repr(group.id), rollout.group_id
        if rollout.reward is not None and rollout.status not in GRADED:
            yield index, "reward", f"None unless the status is {' or '.join(GRADED)}", rollout.reward
        if isinstance(rollout.logprob, LogProbs):
            for field, expected, received in _logprob_faults(rollout.logprob):
                yield index, f"logprob{field}", expected, received


def _logprob_faults(logprob: LogProbs) -> Iterator[tuple[str, str, object]]:
    """Yield lists of different lengths, and what is called complete and is not: a marker, a count, a sum."""
    lists = {"tokens": logprob.tokens, "token_ids": logprob.token_ids, "mask": logprob.mask}
    lengths = {name: len(values) for name, values in lists.items() if values is not None}
    if len({*lengths.values()}) > 1:
        yield "", "lists of one length", lengths
    if logprob.complete and logprob.total is None:
        yield ".total", "a number, since complete is true", None
    tokens = logprob.tokens
    if not logprob.complete or tokens is None or not all(is_number(value, allow_nan=True) for value in tokens):
        return
    own = [*compress(tokens, logprob.mask)] if logprob.mask and len(logprob.mask) == len(tokens) else [*tokens]
    if NOT_COMPUTED in own:
        expected = f"no {NOT_COMPUTED:g}, which marks a missing value, since complete is true"
        yield ".tokens", expected, NOT_COMPUTED
    if logprob.count not in (None, len(own)):
        yield ".count", f"{len(own)}, as there are tokens", logprob.count
    total = logprob.total
    if total is None or not is_number(total, allow_nan=False) or not all(map(is_finite, own)):
        return
    # Tokens of single precision may have been added up in single precision.
    if not math.isclose(total, math.fsum(own), rel_tol=ROUNDING, abs_tol=ROUNDING):
        yield ".total", f"{math.fsum(own)!r}, the sum of the tokens", total


def size_problems(**sizes: object) -> list[ShapeProblem]:
    """Return a problem for each size below 1."""
    return [
        ShapeProblem(name, "a whole number of at least 1", repr(size))
        for name, size in sizes.items()
        if not is_count(size) or size == 0
    ]


def check_sizes(**sizes: object) -> None:
    """Raise ``ShapeError`` for sizes below 1."""
    if problems := size_problems(**sizes):
        raise ShapeError(problems)


def more(count: int) -> str:
    """Return the end of a message about a first place: how many more there are."""
    return f" and {count} more" if count else ""
