"""Convert four parallel lists to groups and back, with every problem reported before anything is built.

States [B], then actions, rewards and old log-probabilities [B][G]: the form in which experience buffers hand data to
trainers. Groups become masked arrays, too.
"""

from __future__ import annotations

import gc
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tfgrpo.stores.batch.checks import size_problems
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, default_id, scored_rollout
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json, frozen, to_builtins
from tfgrpo.stores.numeric import as_list, is_number
from tfgrpo.stores.text import pluralize

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float64]
    Bools: TypeAlias = npt.NDArray[np.bool_]


_Rows: TypeAlias = list[list[Any] | None]
_TEXTS: Final = {str}
_FLOATS: Final = {float}


class ExperienceLists(NamedTuple):
    """The four parallel lists."""

    states: Any
    action_groups: Any
    reward_groups: Any
    log_prob_old_groups: Any


@dataclass(frozen=True, slots=True)
class FlatExperience:
    """One entry per rollout, state by state."""

    states: tuple[Json, ...]
    """The state of each rollout: repeated for every rollout of its group."""
    completions: tuple[Json, ...]
    rewards: tuple[float | None, ...]
    logprobs: tuple[float | None, ...]
    """Sum over the completion; None where it is not complete."""
    group_indexes: tuple[int, ...]
    rollout_ids: tuple[str, ...]

    @classmethod
    def of(cls, groups: Sequence[RolloutGroup]) -> FlatExperience:
        """Return the rollouts of the groups, one after another."""
        pairs = [(number, group, rollout) for number, group in enumerate(groups) for rollout in group.rollouts]
        return cls(
            states=tuple(group.state for _, group, _ in pairs),
            completions=tuple(rollout.completion for _, _, rollout in pairs),
            rewards=tuple(rollout.reward for _, _, rollout in pairs),
            logprobs=tuple(complete_logprob(rollout) for _, _, rollout in pairs),
            group_indexes=tuple(number for number, _, _ in pairs),
            rollout_ids=tuple(rollout.id for _, _, rollout in pairs),
        )


def complete_logprob(rollout: Rollout) -> float | None:
    """Return the log-probability of a whole completion; None when any part of it is missing."""
    logprob = rollout.logprob
    return logprob.total if logprob is not None and logprob.complete else None


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceArrays:
    """A batch of B groups, the largest of which has Gmax rollouts. All arrays are ``[B, Gmax]`` and read-only.

    An absent value is NaN and its mask is False, so that no mean includes it unnoticed.
    """

    rewards: Floats
    """NaN where ``mask`` is False."""
    mask: Bools
    """Whether the rollout has a reward."""
    logp_old: Floats
    """Log-probability of the whole completion; NaN where ``logp_mask`` is False."""
    logp_mask: Bools
    token_lengths: Floats
    """Tokens of the completion; NaN where they are not known."""
    present: Bools
    """Whether there is a rollout, graded or not."""
    group_ids: tuple[str, ...]


def arrays_of_groups(groups: Sequence[RolloutGroup]) -> ExperienceArrays:
    """Return the arrays of groups, in order."""
    import numpy as np  # noqa: PLC0415 - slow to import, and this module is on the path of every command

    widest = max((len(group.rollouts) for group in groups), default=0)
    shape = (len(groups), widest)
    sizes = np.array([len(group.rollouts) for group in groups], dtype=np.int64)
    present = np.arange(widest)[np.newaxis, :] < sizes[:, np.newaxis]

    def masked(value: Callable[[Rollout], float | None]) -> tuple[Floats, Bools]:
        column = [value(rollout) for group in groups for rollout in group.rollouts]
        values = np.full(shape, np.nan)
        values[present] = [np.nan if number is None else number for number in column]
        mask = np.zeros(shape, dtype=np.bool_)
        mask[present] = [number is not None for number in column]
        return values, mask

    rewards, mask = masked(lambda rollout: rollout.reward)
    logp_old, logp_mask = masked(complete_logprob)
    lengths, _ = masked(lambda rollout: rollout.completion_tokens)
    arrays: tuple[npt.NDArray[Any], ...] = (rewards, mask, logp_old, logp_mask, lengths, present)
    for array in arrays:
        array.setflags(write=False)
    return ExperienceArrays(rewards, mask, logp_old, logp_mask, lengths, present, tuple(group.id for group in groups))


def lists_of_groups(groups: Sequence[RolloutGroup], *, partial: bool) -> ExperienceLists:
    """Return mutable copies. Raises ``ShapeError`` for absent values, unless ``partial``."""
    rewards = [list(group.rewards) for group in groups]
    logprobs = [[complete_logprob(rollout) for rollout in group.rollouts] for group in groups]
    if not partial:
        problems = [*_absent("rewards", rewards, groups), *_absent("log_probs_old", logprobs, groups)]
        if problems:
            raise ShapeError(problems)
    return ExperienceLists(
        [to_builtins(group.state) for group in groups],
        [[to_builtins(rollout.completion) for rollout in group.rollouts] for group in groups],
        rewards,
        logprobs,
    )


def groups_of_lists(
    lists: ExperienceLists, *, group_size: int | None, ids: Sequence[str] | None, allow_nan: bool, partial: bool
) -> tuple[tuple[RolloutGroup, ...], bool]:
    """Return the groups of the four lists, and whether a batch has anything left to check.

    Raises ``ShapeError`` with every problem.
    """
    reader = _Reader(group_size, allow_nan, partial)
    states = reader.outer("states", lists.states, None)
    count = None if states is None else len(states)
    if states == []:
        reader.problems.append(ShapeProblem("states", "at least one", "none"))
    names = reader.names([f"g{number}" for number in range(count or 0)] if ids is None else ids, count)
    reader.values("states", None if states is None else [states], frozen, named=False)
    actions = reader.rows("action_groups", lists.action_groups, count, None)
    sizes = reader.sizes(actions)
    reader.values("action_groups", actions, frozen)
    rewards = reader.numbers("rewards", lists.reward_groups, count, sizes)
    logprobs = lists.log_prob_old_groups
    if logprobs is not None:
        logprobs = reader.numbers("log_probs_old", logprobs, count, sizes)
    if reader.problems or states is None or actions is None:
        raise ShapeError(reader.problems)
    own = [row or [] for row in actions]
    columns = zip(states, own, rewards, logprobs or [None] * len(states), strict=True)
    with _without_collection():
        groups = tuple(
            _group(_default_id(number, *content) if ids is None else names[number], *content)
            for number, content in enumerate(columns)
        )
    return groups, any(not max(total or 0.0 for total in row) <= 0.0 for row in logprobs or ())


@contextmanager
def _without_collection() -> Iterator[None]:
    """Make many objects, none of which is garbage: to search them for it again and again takes as long as to make them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _default_id(number: int, state: object, actions: list[Any], *numbers: list[float | None] | None) -> str:
    """Return the default id of a group. Texts and numbers count as Python writes them: as JSON they take half of all time."""
    try:
        packed = [None if row is None else struct.pack(f"{len(row)}d", *row).hex() for row in numbers]
    except struct.error:  # None, where one is absent
        return default_id(number, [state, actions, *numbers])
    if {type(state), *map(type, actions)} == _TEXTS:
        return default_id(number, f"{state!r}{actions!r}{packed!r}")
    return default_id(number, [state, actions, *packed])


def _group(
    name: str, state: object, actions: list[Any], rewards: list[float | None], logprobs: list[float | None] | None
) -> RolloutGroup:
    completions = actions if {*map(type, actions)} == _TEXTS else [*map(frozen, actions)]
    totals = logprobs or [None] * len(actions)
    rollouts = map(scored_rollout, repeat(name), count(), completions, rewards, totals)
    return RolloutGroup(name, state, tuple(rollouts))


class _Reader:
    """Reads lists and collects their problems."""

    def __init__(self, group_size: int | None, allow_nan: bool, partial: bool) -> None:
        self.problems = [] if group_size is None else size_problems(group_size=group_size)
        self._ids: Sequence[str] = ()
        self._allow_nan = allow_nan
        self._partial = partial
        self._group_size = None if self.problems else group_size

    def outer(self, name: str, value: object, count: int | None) -> list[Any] | None:
        """Return the list, with a problem for a length other than ``count``; None, and a problem, for anything else."""
        values = as_list(value)
        if values is None:
            kind = "a text" if isinstance(value, str | bytes) else f"a {type(value).__name__}"
            self.problems.append(ShapeProblem(name, "a list", kind))
        elif count is not None and len(values) != count:
            expected = f"{pluralize(count, 'group')}, one for each state"
            self.problems.append(ShapeProblem(name, expected, pluralize(len(values), "group")))
        return values

    def names(self, ids: Sequence[str], count: int | None) -> Sequence[str]:
        """Return the ids of the groups; later problems name them."""
        self._ids = self.outer("ids", ids, None) or ()
        if count is not None and as_list(ids) is not None and len(self._ids) != count:
            self.problems.append(ShapeProblem("ids", f"{count}, one for each state", str(len(self._ids))))
        first: dict[object, int] = {}
        for number, name in enumerate(self._ids):
            if not isinstance(name, str) or not name:
                self.problems.append(ShapeProblem("ids", "texts", repr(name), f"index {number}"))
            elif first.setdefault(name, number) != number:
                where = f"indexes {first[name]} and {number}"
                self.problems.append(ShapeProblem("ids", "one of its own for each state", repr(name), where))
        return self._ids

    def rows(self, name: str, value: object, count: int | None, sizes: Sequence[int] | None) -> _Rows | None:
        """Return rows, None for one that is no list, and check their lengths; None when it is no list at all."""
        values = self.outer(name, value, count)
        if values is None:
            return None
        rows = [*map(as_list, values)]
        flat = [number for number, row in enumerate(rows) if row is None]
        if flat:
            received = f"a {type(values[flat[0]]).__name__}"
            self.problems.append(ShapeProblem(name, "a list for each state", received, self._where(flat)))
        lengths = [None if row is None else len(row) for row in rows]
        self._lengths(name, lengths, sizes)
        empty = [number for number, length in enumerate(lengths) if length == 0]
        if empty and sizes is None:
            self.problems.append(ShapeProblem(name, "at least one action in each group", "none", self._where(empty)))
        return rows

    def _lengths(self, name: str, lengths: Sequence[int | None], sizes: Sequence[int] | None) -> None:
        """Check the lengths of rows: by ``sizes``, one for each or, for another number of rows, any of them."""
        expected: Sequence[Iterable[int]] = [[self._group_size]] * len(lengths) if self._group_size is not None else []
        if sizes is not None:
            expected = [[size] for size in sizes] if len(sizes) == len(lengths) else [sorted({*sizes})] * len(lengths)
        pairs = enumerate(zip(lengths, expected, strict=False))
        bad = [number for number, (length, fitting) in pairs if length is not None and length not in fitting]
        if bad:
            first, received = expected[bad[0]], {lengths[number] for number in range(len(lengths))}
            wanted = " or ".join(map(str, first))
            if len(received) == len({*first}) == 1 and all(each == first for each in expected):
                shape = f"shape ({len(lengths)}, {wanted}) = (states, group_size)"
                problem = ShapeProblem(name, shape, f"({len(lengths)}, {lengths[0]})", self._where(bad))
            else:
                problem = ShapeProblem(name, f"{wanted} per state", f"{lengths[bad[0]]}", self._where(bad))
            self.problems.append(problem)

    def sizes(self, rows: _Rows | None) -> list[int] | None:
        """Return the lengths of the rows, as a measure for other lists; None when they do not have the right ones."""
        sizes = [len(row) for row in rows or () if row is not None]
        is_measure = bool(sizes) and len(sizes) == len(rows or ()) and self._group_size in (None, *sizes)
        return sizes if is_measure and (self._group_size is None or len({*sizes}) == 1) else None

    def values(self, name: str, rows: _Rows | None, check: Callable[[Any], object], *, named: bool = True) -> None:
        """Check every value of the rows."""
        bad = [
            (number, index, reason)
            for number, row in enumerate(rows or ())
            if row and {*map(type, row)} != _TEXTS
            for index, value in enumerate(row)
            if (reason := _refusal(check, value))
        ]
        if bad:
            number, index, reason = bad[0]
            where = f"{self._where([number])}, action {index}" if named else f"index {index}"
            self.problems.append(ShapeProblem(name, "JSON values", reason, where + _more(len(bad) - 1)))

    def numbers(
        self, name: str, value: object, count: int | None, sizes: Sequence[int] | None
    ) -> list[list[float | None]]:
        """Return rows of numbers, and of None where values may be absent."""
        rows = [row or [] for row in self.rows(name, value, count, sizes) or ()]
        plain = [self._is_plain(row) for row in rows]
        bad = [
            (number, index, each)
            for number, row in enumerate(rows)
            if not plain[number]
            for index, each in enumerate(row)
            if not self._is_value(each)
        ]
        if bad:
            number, index, wrong = bad[0]
            where = f"{self._where([number])}, action {index}" + _more(len(bad) - 1)
            expected = "numbers" if self._allow_nan else "finite numbers"
            self.problems.append(ShapeProblem(name, expected, _value_text(wrong), where))
            return []
        return [
            row if is_plain else [None if each is None else float(each) for each in row]
            for row, is_plain in zip(rows, plain, strict=True)
        ]

    def _is_plain(self, row: list[Any]) -> bool:
        """Return whether all are floats, and finite where they have to be; nearly every row is such."""
        return {*map(type, row)} == _FLOATS and (self._allow_nan or math.isfinite(sum(row)))

    def _is_value(self, value: object) -> bool:
        return is_number(value, allow_nan=self._allow_nan) or (self._partial and value is None)

    def _where(self, numbers: Sequence[int]) -> str:
        first = numbers[0]
        name = f", id {self._ids[first]!r}" if first < len(self._ids) else ""
        return f"first bad group: index {first}{name}{_more(len(numbers) - 1)}"


def _refusal(check: Callable[[Any], object], value: object) -> str:
    try:
        check(value)
    except (TypeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _each(rows: Sequence[Sequence[Any]] | None) -> Iterator[tuple[int, int, Any]]:
    return ((number, index, value) for number, row in enumerate(rows or ()) for index, value in enumerate(row))


def _absent(
    name: str, rows: Sequence[Sequence[float | None]], groups: Sequence[RolloutGroup]
) -> Iterator[ShapeProblem]:
    bad = [(number, index) for number, index, value in _each(rows) if value is None]
    if bad:
        number, index = bad[0]
        where = f"first: group index {number}, rollout {groups[number].rollouts[index].id!r}{_more(len(bad) - 1)}"
        yield ShapeProblem(name, "a number for every rollout", "None", where)


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _value_text(value: object) -> str:
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} (one number for each action)"
    return repr(value)[:80]
