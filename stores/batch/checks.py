"""Check that the values of a batch fit together, and report every problem of every group at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, get_args

from tfgrpo.stores.batch.shapes import (
    GRADED,
    NO_SAMPLING,
    NO_USAGE,
    NOT_COMPUTED,
    ROUNDING,
    LogProbKind,
    LogProbs,
    Rollout,
    RolloutGroup,
    RolloutStatus,
)
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import EMPTY
from tfgrpo.stores.numeric import is_count, is_finite, is_number

_STATUSES: Final = get_args(RolloutStatus)
_KINDS: Final = get_args(LogProbKind)
_STATUSES_TEXT: Final = " | ".join(_STATUSES)
_GRADED_TEXT: Final = " or ".join(sorted(GRADED))
_AMOUNTS: Final = ("sampling.temperature", "sampling.top_p", "usage.cost_usd", "latency_s")
_COUNTS: Final = ("sampling.max_tokens", "usage.prompt_tokens", "usage.completion_tokens", "usage.reasoning_tokens")
_amounts_of, _counts_of = attrgetter(*_AMOUNTS), attrgetter(*_COUNTS)
_MAX: Final = sys.float_info.max
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


def check_sizes(**sizes: int) -> None:
    """Raise ``ShapeError`` for sizes below 1."""
    if problems := size_problems(**sizes):
        raise ShapeError(problems)


def size_problems(**sizes: int) -> list[ShapeProblem]:
    """Return a problem for each size below 1."""
    return [
        ShapeProblem(name, "a whole number of at least 1", repr(size))
        for name, size in sizes.items()
        if not is_count(size) or size < 1
    ]


def problems_of_group(group: RolloutGroup, number: int, *, allow_nan: bool = False) -> list[ShapeProblem]:
    """Return the problems of the group at index ``number`` of its batch."""
    checks = _Checks(f"group index {number}, id {group.id!r}", allow_nan=allow_nan)
    checks.group(group)
    return checks.problems


class _Checks:
    """Collects the problems of one group."""

    def __init__(self, where: str, *, allow_nan: bool) -> None:
        self.problems: list[ShapeProblem] = []
        self._where = where
        self._allow_nan = allow_nan
        self._number = "a number" if allow_nan else "a finite number"

    def group(self, group: RolloutGroup) -> None:
        if _is_plain(group):
            return
        size, where = len(group.rollouts), self._where
        self._expect(_is_text(group.id), "group id", "a text", group.id)
        fits = is_count(group.target_size) and group.target_size >= size
        self._expect(fits, "target_size", f"a whole number of at least its {size} rollouts", group.target_size)
        ids: set[str] = set()
        indexes: set[int] = set()
        rollouts: Sequence[object] = group.rollouts
        for rollout in rollouts:
            self._where = where
            if not isinstance(rollout, Rollout):
                self.problems.append(ShapeProblem("rollouts", "a Rollout", type(rollout).__name__, where))
                continue
            self._expect(rollout.id not in ids, "rollout id", "one of its own", rollout.id)
            self._expect(rollout.index not in indexes, "rollout index", "one of its own", rollout.index)
            ids.add(rollout.id)
            indexes.add(rollout.index)
            self._where = f"{where}, rollout {rollout.id!r}"
            self._rollout(rollout, group)

    def _expect(self, holds: bool, name: str, expected: str, received: object) -> None:
        if not holds:
            self.problems.append(ShapeProblem(name, expected, repr(received), self._where))

    def _rollout(self, rollout: Rollout, group: RolloutGroup) -> None:
        self._expect(_is_text(rollout.id), "rollout id", "a text", rollout.id)
        self._expect(rollout.group_id == group.id, "group_id", repr(group.id), rollout.group_id)
        self._expect(is_count(rollout.index), "index", "a whole number of at least 0", rollout.index)
        self._expect(rollout.status in _STATUSES, "status", _STATUSES_TEXT, rollout.status)
        self._reward(rollout)
        if rollout.logprob is not None:
            self._logprob(rollout.logprob)
            self._sum(rollout.logprob)
        for name, amount in zip(_AMOUNTS, _amounts_of(rollout), strict=True):
            fits = amount is None or (is_number(amount, allow_nan=False) and amount >= 0)
            self._expect(fits, name, "a finite number of at least 0, or None", amount)
        for name, count in zip(_COUNTS, _counts_of(rollout), strict=True):
            self._expect(count is None or is_count(count), name, "a whole number of at least 0, or None", count)

    def _reward(self, rollout: Rollout) -> None:
        reward = rollout.reward
        self._expect(self._is_number_or_none(reward), "reward", f"{self._number}, or None", reward)
        if reward is not None and rollout.status not in GRADED:
            received = f"{reward!r} with status {rollout.status!r}"
            expected = f"None unless the status is {_GRADED_TEXT}"
            self.problems.append(ShapeProblem("reward", expected, received, self._where))
        parts: object = rollout.reward_parts
        if not isinstance(parts, Mapping):
            self.problems.append(ShapeProblem("reward_parts", "numbers by name", type(parts).__name__, self._where))
            return
        for name, part in parts.items():
            self._expect(self._is_number_or_none(part), f"reward_parts[{name!r}]", f"{self._number}, or None", part)

    def _logprob(self, logprob: LogProbs) -> None:
        number, total, count = f"{self._number} of at most 0", logprob.total, logprob.count
        self._expect(logprob.kind in _KINDS, "logprob.kind", " | ".join(_KINDS), logprob.kind)
        self._expect(total is None or self._is_logprob(total), "logprob.total", f"{number}, or None", total)
        whole = total is not None or not logprob.complete
        self._expect(whole, "logprob.total", "a number, since complete is true", None)
        counted = count is None or is_count(count)
        self._expect(counted, "logprob.count", "a whole number of at least 0, or None", count)
        bad = [value for value in logprob.tokens or () if not self._is_logprob(value)]
        self._expect(not bad, "logprob.tokens", number, bad[0] if bad else None)
        lists = {"tokens": logprob.tokens, "token_ids": logprob.token_ids, "mask": logprob.mask}
        lengths = {name: len(values) for name, values in lists.items() if values is not None}
        self._expect(len(set(lengths.values())) <= 1, "logprob", "lists of one length", lengths)
        mask = set(logprob.mask or ())
        self._expect(mask <= {0, 1}, "logprob.mask", "0 and 1", sorted(mask))

    def _sum(self, logprob: LogProbs) -> None:
        """Check a complete sum: markers of missing values, a wrong count, a total that is not the sum."""
        tokens, total = logprob.tokens, logprob.total
        if not logprob.complete or tokens is None or not all(is_number(value, allow_nan=True) for value in tokens):
            return
        own = tokens
        if logprob.mask is not None and len(logprob.mask) == len(tokens):
            own = tuple(value for value, mine in zip(tokens, logprob.mask, strict=True) if mine)
        if NOT_COMPUTED in own:
            expected = f"no {NOT_COMPUTED:g}, which marks a missing value, since complete is true"
            received = f"{own.count(NOT_COMPUTED)} of them"
            self.problems.append(ShapeProblem("logprob.tokens", expected, received, self._where))
        counted = logprob.count in (None, len(own))
        self._expect(counted, "logprob.count", f"{len(own)}, as there are tokens", logprob.count)
        if total is None or not is_number(total, allow_nan=False) or not all(map(is_finite, own)):
            return
        whole = math.fsum(own)
        # Tokens of single precision may have been added up in single precision.
        close = math.isclose(total, whole, rel_tol=1e-5, abs_tol=1e-5)
        self._expect(close, "logprob.total", f"{whole!r}, the sum of the tokens", total)

    def _is_number_or_none(self, value: object) -> bool:
        return value is None or is_number(value, allow_nan=self._allow_nan)

    def _is_logprob(self, value: float) -> bool:
        """Whether it is a number of at most 0, up to rounding."""
        return is_number(value, allow_nan=self._allow_nan) and not value > ROUNDING


def _is_plain(group: RolloutGroup) -> bool:
    """Return whether a group is as buffers make it: answers with a number, and nothing else to check.

    The checks of all fields take ten times as long.
    """
    own, rollouts = group.id, group.rollouts
    if own.__class__ is not str or not own or group.target_size != len(rollouts):
        return False
    for rollout in rollouts:
        if rollout.__class__ is not Rollout or rollout.id.__class__ is not str or not rollout.id:
            return False
        logprob = rollout.logprob
        if not (
            rollout.group_id == own
            and rollout.index.__class__ is int
            and rollout.index >= 0
            and rollout.status == "ok"
            and rollout.reward.__class__ is float
            and -_MAX <= rollout.reward <= _MAX
            and rollout.reward_parts is EMPTY
            and rollout.sampling is NO_SAMPLING
            and rollout.usage is NO_USAGE
            and rollout.latency_s is None
            and (logprob is None or _is_plain_sum(logprob))
        ):
            return False
    size = len(rollouts)
    return len({rollout.id for rollout in rollouts}) == size == len({rollout.index for rollout in rollouts})


def _is_plain_sum(logprob: LogProbs) -> bool:
    total = logprob.total
    return (
        total.__class__ is float
        and -_MAX <= total <= 0.0
        and logprob.kind == "unknown"
        and logprob.tokens is logprob.token_ids is logprob.mask is None
        and logprob.count is None
        and logprob.__class__ is LogProbs
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
