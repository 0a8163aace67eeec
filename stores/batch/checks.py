"""Check that the values of a batch fit together, and report every problem of every group at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast, get_args

from tfgrpo.stores.batch.shapes import (
    GRADED,
    NOT_COMPUTED,
    ROUNDING,
    LogProbKind,
    LogProbs,
    Rollout,
    RolloutGroup,
    RolloutStatus,
)
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.numeric import is_count, is_finite, is_number

_STATUSES: Final = get_args(RolloutStatus)
_KINDS: Final = get_args(LogProbKind)
_GRADED_TEXT: Final = " or ".join(sorted(GRADED))
_SHOWN: Final = 50
"""Problems listed one by one; a batch that is wrong throughout is wrong in one way."""


def check_groups(groups: Sequence[object], *, allow_nan: bool = False) -> None:
    """Raise ``ShapeError`` with the problems of all groups, if there are any."""
    problems: list[ShapeProblem] = []
    seen: dict[str, int] = {}
    for number, group in enumerate(groups):
        if not isinstance(group, RolloutGroup):
            problems.append(ShapeProblem("groups", "a RolloutGroup", type(group).__name__, f"index {number}"))
            continue
        problems.extend(problems_of_group(group, number, allow_nan=allow_nan))
        if group.id in seen:
            problems.append(
                ShapeProblem("group id", "one of its own", repr(group.id), f"indexes {seen[group.id]} and {number}")
            )
        seen.setdefault(group.id, number)
    if problems:
        more = len(problems) - _SHOWN
        if more > 0:
            problems[_SHOWN:] = [ShapeProblem("batch", f"at most {_SHOWN} problems", f"{more} more like these")]
        raise ShapeError(problems)


def check_sizes(**sizes: int | None) -> None:
    """Raise ``ShapeError`` for sizes below 1; None is no size."""
    if problems := size_problems(**sizes):
        raise ShapeError(problems)


def size_problems(**sizes: int | None) -> list[ShapeProblem]:
    """Return a problem for each size below 1; None is no size."""
    return [
        ShapeProblem(name, "a whole number of at least 1", repr(size))
        for name, size in sizes.items()
        if size is not None and (not is_count(size) or size < 1)
    ]


def problems_of_group(group: RolloutGroup, number: int, *, allow_nan: bool = False) -> Iterator[ShapeProblem]:
    """Yield the problems of the group at index ``number`` of its batch."""
    where = f"group index {number}, id {group.id!r}"
    if not isinstance(group.id, str) or not group.id:
        yield ShapeProblem("group id", "a text", repr(group.id), where)
    if not is_count(group.target_size) or group.target_size < len(group.rollouts):
        expected = f"a whole number of at least its {len(group.rollouts)} rollouts"
        yield ShapeProblem("target_size", expected, repr(group.target_size), where)
    ids: set[str] = set()
    indexes: set[int] = set()
    rollouts: Sequence[object] = group.rollouts
    for rollout in rollouts:
        if not isinstance(rollout, Rollout):
            yield ShapeProblem("rollouts", "a Rollout", type(rollout).__name__, where)
            continue
        if rollout.id in ids:
            yield ShapeProblem("rollout id", "one of its own", repr(rollout.id), where)
        if rollout.index in indexes:
            yield ShapeProblem("rollout index", "one of its own", repr(rollout.index), where)
        ids.add(rollout.id)
        indexes.add(rollout.index)
        yield from _problems_of_rollout(rollout, group, where, allow_nan=allow_nan)


def _is_logprob(value: object, *, allow_nan: bool) -> bool:
    """Whether it is a number of at most 0, up to rounding."""
    return is_number(value, allow_nan=allow_nan) and not cast("float", value) > ROUNDING


def _problems_of_rollout(
    rollout: Rollout, group: RolloutGroup, where: str, *, allow_nan: bool
) -> Iterator[ShapeProblem]:
    where = f"{where}, rollout {rollout.id!r}"
    if not isinstance(rollout.id, str) or not rollout.id:
        yield ShapeProblem("rollout id", "a text", repr(rollout.id), where)
    if rollout.group_id != group.id:
        yield ShapeProblem("group_id", repr(group.id), repr(rollout.group_id), where)
    if not is_count(rollout.index):
        yield ShapeProblem("index", "a whole number of at least 0", repr(rollout.index), where)
    if rollout.status not in _STATUSES:
        yield ShapeProblem("status", " | ".join(_STATUSES), repr(rollout.status), where)
    yield from _problems_of_reward(rollout, where, allow_nan=allow_nan)
    if rollout.logprob is not None:
        yield from _problems_of_logprob(rollout.logprob, where, allow_nan=allow_nan)
    yield from _problems_of_measures(rollout, where)


def _problems_of_reward(rollout: Rollout, where: str, *, allow_nan: bool) -> Iterator[ShapeProblem]:
    number = "a number" if allow_nan else "a finite number"
    if rollout.reward is not None:
        if not is_number(rollout.reward, allow_nan=allow_nan):
            yield ShapeProblem("reward", f"{number}, or None", repr(rollout.reward), where)
        if rollout.status not in GRADED:
            received = f"{rollout.reward!r} with status {rollout.status!r}"
            yield ShapeProblem("reward", f"None unless the status is {_GRADED_TEXT}", received, where)
    parts: object = rollout.reward_parts
    if not isinstance(parts, Mapping):
        yield ShapeProblem("reward_parts", "numbers by name", type(parts).__name__, where)
        return
    for name, part in parts.items():
        if part is not None and not is_number(part, allow_nan=allow_nan):
            yield ShapeProblem(f"reward_parts[{name!r}]", f"{number}, or None", repr(part), where)


def _problems_of_logprob(logprob: LogProbs, where: str, *, allow_nan: bool) -> Iterator[ShapeProblem]:
    number = f"{'a number' if allow_nan else 'a finite number'} of at most 0"
    if logprob.kind not in _KINDS:
        yield ShapeProblem("logprob.kind", " | ".join(_KINDS), repr(logprob.kind), where)
    if logprob.total is not None and not _is_logprob(logprob.total, allow_nan=allow_nan):
        yield ShapeProblem("logprob.total", f"{number}, or None", repr(logprob.total), where)
    if logprob.complete and logprob.total is None:
        yield ShapeProblem("logprob.total", "a number, since complete is true", "None", where)
    if logprob.count is not None and not is_count(logprob.count):
        yield ShapeProblem("logprob.count", "a whole number of at least 0, or None", repr(logprob.count), where)
    bad = [value for value in logprob.tokens or () if not _is_logprob(value, allow_nan=allow_nan)]
    if bad:
        yield ShapeProblem("logprob.tokens", number, repr(bad[0]), where)
    lists = {"tokens": logprob.tokens, "token_ids": logprob.token_ids, "mask": logprob.mask}
    lengths = {name: len(values) for name, values in lists.items() if values is not None}
    if len(set(lengths.values())) > 1:
        yield ShapeProblem("logprob", "lists of one length", str(lengths), where)
    if logprob.mask is not None and not set(logprob.mask) <= {0, 1}:
        yield ShapeProblem("logprob.mask", "0 and 1", repr(sorted(set(logprob.mask))), where)

    yield from _problems_of_sum(logprob, where)


def _problems_of_sum(logprob: LogProbs, where: str) -> Iterator[ShapeProblem]:
    """Problems of a complete sum: markers of missing values, a wrong count, a total that is not the sum."""
    tokens = logprob.tokens
    if not logprob.complete or tokens is None or not all(is_number(value, allow_nan=True) for value in tokens):
        return
    own = tokens
    if logprob.mask is not None and len(logprob.mask) == len(tokens):
        own = tuple(value for value, mine in zip(tokens, logprob.mask, strict=True) if mine)
    if NOT_COMPUTED in own:
        expected = f"no {NOT_COMPUTED:g}, which marks a missing value, since complete is true"
        yield ShapeProblem("logprob.tokens", expected, f"{own.count(NOT_COMPUTED)} of them", where)
    if logprob.count is not None and logprob.count != len(own):
        yield ShapeProblem("logprob.count", f"{len(own)}, as there are tokens", repr(logprob.count), where)
    whole = math.fsum(own) if all(map(is_finite, own)) else math.nan
    total = logprob.total
    # Tokens of single precision may have been added up in single precision.
    if (
        is_number(total, allow_nan=False)
        and not math.isnan(whole)
        and not math.isclose(cast("float", total), whole, rel_tol=1e-5, abs_tol=1e-5)
    ):
        yield ShapeProblem("logprob.total", f"{whole!r}, the sum of the tokens", repr(total), where)


def _problems_of_measures(rollout: Rollout, where: str) -> Iterator[ShapeProblem]:
    """Problems of sampling and usage: numbers that JSON cannot represent."""
    sampling, usage = rollout.sampling, rollout.usage
    for name, amount in (
        ("sampling.temperature", sampling.temperature),
        ("sampling.top_p", sampling.top_p),
        ("usage.cost_usd", usage.cost_usd),
        ("latency_s", rollout.latency_s),
    ):
        if amount is not None and not (is_number(amount, allow_nan=False) and amount >= 0):
            yield ShapeProblem(name, "a finite number of at least 0, or None", repr(amount), where)
    for name, count in (
        ("sampling.max_tokens", sampling.max_tokens),
        ("usage.prompt_tokens", usage.prompt_tokens),
        ("usage.completion_tokens", usage.completion_tokens),
        ("usage.reasoning_tokens", usage.reasoning_tokens),
    ):
        if count is not None and not is_count(count):
            yield ShapeProblem(name, "a whole number of at least 0, or None", repr(count), where)
