"""A batch of experience: groups of rollouts as data, checked as a whole on construction.

It is not a record of a run and computes no advantages (``tfgrpo.rewarders.advantages.batch`` does, from ``arrays()``).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tfgrpo.stores.batch.shapes import (
    LogProbs,
    Rollout,
    RolloutGroup,
    check_groups,
    check_sizes,
    more,
    size_problems,
    with_content_id,
)
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.json_values import Json, frozen, to_builtins
from tfgrpo.stores.numeric import as_list, is_number
from tfgrpo.stores.text import pluralize

RaggedPolicy: TypeAlias = Literal["strict", "pad", "drop_group", "resample"]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rollouts that were excluded, and why."""

    group_id: str
    rollouts: int
    reason: str


class ExperienceLists(NamedTuple):
    """Four parallel lists, the form in which experience buffers hand data to trainers: states [B], the others [B][G]."""

    states: Any
    action_groups: Any
    reward_groups: Any
    log_prob_old_groups: Any


class FlatExperience(NamedTuple):
    """One entry per rollout, state by state."""

    states: tuple[Json, ...]
    completions: tuple[Json, ...]
    rewards: tuple[float | None, ...]
    logprobs: tuple[float | None, ...]
    """Sum over the completion; None where it is not complete."""
    group_indexes: tuple[int, ...]
    rollout_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceArrays:
    """A batch of B groups, the largest of which has Gmax rollouts. All arrays are ``[B, Gmax]`` and read-only.

    An absent value is NaN and its mask is False, so that no mean includes it unnoticed.
    """

    rewards: Floats
    mask: Bools
    logp_old: Floats
    logp_mask: Bools
    token_lengths: Floats
    """Tokens of the completion; NaN where they are not known."""
    present: Bools
    """Also where the rollout has no reward."""
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExperienceBatch:
    """Groups of rollouts, in order.

    Raises ``ShapeError``, with every problem of every group, for duplicate or unfitting ids, values that are not numbers,
    NaN and infinity (unless ``allow_nan``), rewards of failed rollouts, and token lists of unequal length.
    """

    groups: tuple[RolloutGroup, ...]
    allow_nan: bool = field(default=False, compare=False)
    """Accept NaN and infinity as rewards and log-probabilities. No function that computes takes such a batch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        check_groups(self.groups, allow_nan=self.allow_nan)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[RolloutGroup]:
        return iter(self.groups)

    def rollouts(self) -> Iterator[Rollout]:
        """Yield every rollout, state by state."""
        return (rollout for group in self.groups for rollout in group.rollouts)

    def arrays(self) -> ExperienceArrays:
        """Return rewards, log-probabilities and lengths as ``float64[B, Gmax]``, with masks of the values that exist."""
        sizes = np.array([len(group.rollouts) for group in self.groups], dtype=np.int64)
        present = np.arange(sizes.max(initial=0))[np.newaxis, :] < sizes[:, np.newaxis]

        def masked(value: Callable[[Rollout], float | None]) -> tuple[Floats, Bools]:
            column = [value(rollout) for rollout in self.rollouts()]
            values, mask = np.full(present.shape, np.nan), np.zeros(present.shape, dtype=np.bool_)
            values[present] = [np.nan if number is None else number for number in column]
            mask[present] = [number is not None for number in column]
            return values, mask

        rewards, logprobs = masked(lambda rollout: rollout.reward), masked(lambda rollout: rollout.complete_logprob)
        arrays = *rewards, *logprobs, masked(lambda rollout: rollout.completion_tokens)[0], present
        for array in arrays:
            array.setflags(write=False)
        return ExperienceArrays(*arrays, tuple(group.id for group in self.groups))

    def flat(self) -> FlatExperience:
        """Return one entry per rollout, state by state: the order of reward functions."""
        pairs = [(number, group, rollout) for number, group in enumerate(self.groups) for rollout in group.rollouts]
        return FlatExperience(
            states=tuple(group.state for _, group, _ in pairs),
            completions=tuple(rollout.completion for _, _, rollout in pairs),
            rewards=tuple(rollout.reward for _, _, rollout in pairs),
            logprobs=tuple(rollout.complete_logprob for _, _, rollout in pairs),
            group_indexes=tuple(number for number, _, _ in pairs),
            rollout_ids=tuple(rollout.id for _, _, rollout in pairs),
        )

    def to_lists(self, *, partial: bool = False) -> ExperienceLists:
        """Return the four parallel lists. Raises ``ShapeError`` for absent rewards or log-probabilities.

        ``partial``: None for them instead.
        """
        rewards = [list(group.rewards) for group in self.groups]
        logprobs = [[rollout.complete_logprob for rollout in group.rollouts] for group in self.groups]
        problems = []
        for name, rows in (("rewards", rewards), ("log_probs_old", logprobs)):
            absent = [(number, index) for number, row in enumerate(rows) for index, each in enumerate(row) if each is None]
            if absent and not partial:
                number, index = absent[0]
                where = f"first: group index {number}, rollout {self.groups[number].rollouts[index].id!r}"
                problems.append(ShapeProblem(name, "a number for every rollout", "None", where + more(len(absent) - 1)))
        if problems:
            raise ShapeError(problems)
        actions = [[to_builtins(rollout.completion) for rollout in group.rollouts] for group in self.groups]
        return ExperienceLists([to_builtins(group.state) for group in self.groups], actions, rewards, logprobs)

    @classmethod
    def from_lists(
        cls,
        states: Sequence[object],
        action_groups: Sequence[object],
        reward_groups: object,
        log_prob_old_groups: object = None,
        *,
        group_size: int | None = None,
        ids: Sequence[str] | None = None,
        allow_nan: bool = False,
        partial: bool = False,
    ) -> ExperienceBatch:
        """Build a batch from four parallel lists: states [B], then actions, rewards and log-probabilities [B][G].

        Rewards and log-probabilities may be nested lists or anything with ``tolist`` (numpy, torch), the latter also None.
        ``group_size``: size of every group; None: groups may differ, but all lists of a group must agree. ``ids``: names of
        the groups, by default those of ``with_content_id``. ``partial``: None is an absent reward or log-probability.
        Raises ``ShapeError`` with every problem.
        """
        lists = ExperienceLists(states, action_groups, reward_groups, log_prob_old_groups)
        reader = _Lists(allow_nan=allow_nan, partial=partial)
        return cls(tuple(reader.groups(lists, group_size, ids)), allow_nan)

    def merge(self, *others: ExperienceBatch) -> ExperienceBatch:
        """Return the groups of several batches, one after another. Raises ``ShapeError`` for a duplicate group."""
        groups = [group for batch in (self, *others) for group in batch.groups]
        return ExperienceBatch(tuple(groups), any(batch.allow_nan for batch in (self, *others)))

    def filter(self, *, min_spread: float | None = None, keep: Callable[[RolloutGroup], bool] | None = None) -> ExperienceBatch:
        """Return the groups with a spread (population standard deviation) of at least ``min_spread``, and that pass ``keep``.

        With ``min_spread``, groups with fewer than two rewards have no spread and are removed, as are flat groups even
        for 0. Raises ``ShapeError`` for a ``min_spread`` that is not a finite number.
        """
        if min_spread is not None and not is_number(min_spread, allow_nan=False):
            raise ShapeError.one("min_spread", "a finite number, or None", repr(min_spread))
        spread_out = (group for group in self.groups if min_spread is None or 0.0 < (group.spread or 0.0) >= min_spread)
        return ExperienceBatch(tuple(filter(keep or bool, spread_out)), self.allow_nan)

    def split(self, size: int) -> tuple[ExperienceBatch, ...]:
        """Return batches of ``size`` groups, the last one with the rest. Raises ``ShapeError`` for a size below 1."""
        check_sizes(size=size)
        starts = range(0, len(self.groups), size)
        return tuple(ExperienceBatch(self.groups[start : start + size], self.allow_nan) for start in starts)

    def shaped(
        self, policy: RaggedPolicy, *, group_size: int | None = None, min_group_size: int = 2, rng: random.Random | None = None
    ) -> tuple[ExperienceBatch, tuple[Exclusion, ...]]:
        """Return the groups under a policy for ragged groups, and what it excluded, with reasons.

        A rollout counts when it has a reward. ``strict``: every group has ``group_size`` of them (default: its own target), or
        ``ShapeError`` names all others. ``pad``: as it is. ``drop_group``: without the groups that have fewer than
        ``min_group_size``. ``resample``: of the others exactly ``group_size`` each, some drawn again with ``rng``.
        """
        problems = size_problems(min_group_size=min_group_size, **({} if group_size is None else {"group_size": group_size}))
        if policy not in get_args(RaggedPolicy):
            problems.append(ShapeProblem("policy", " | ".join(get_args(RaggedPolicy)), repr(policy)))
        if policy == "resample" and rng is None:
            problems.append(ShapeProblem("rng", "a random.Random, so that the draw can be repeated", "None"))
        groups: list[RolloutGroup] = []
        excluded: list[Exclusion] = []
        for number, group in enumerate(() if problems else self.groups):
            wanted, scored = group_size or group.target_size, len(group.scored)
            if policy == "strict" and not scored == wanted == len(group.rollouts):
                lost = next((rollout for rollout in group.rollouts if rollout.reward is None), None)
                why = f"; rollout {lost.index}: {lost.error or f'{lost.status}, without a reward'}" if lost else ""
                where = f"group index {number}, id {group.id!r}{why}"
                problems.append(ShapeProblem("rewards", f"{wanted} for this state", str(scored), where))
            if policy in ("drop_group", "resample") and scored < min_group_size:
                reason = f"{pluralize(scored, 'scored rollout')}, fewer than {min_group_size}"
                excluded.append(Exclusion(group.id, len(group.rollouts), reason))
            elif policy == "resample" and rng is not None:
                groups.append(_resampled(group, wanted, rng))
                if excess := len(group.rollouts) - min(scored, wanted):
                    excluded.append(Exclusion(group.id, excess, f"not scored, or beyond the {wanted} wanted"))
            else:
                groups.append(group)
        if problems:
            raise ShapeError(problems)
        return replace(self, groups=tuple(groups)), tuple(excluded)


def _resampled(group: RolloutGroup, size: int, rng: random.Random) -> RolloutGroup:
    """Return the group with its first scored rollouts, and marked copies of them where some are missing."""
    kept = list(group.scored[:size])
    # Without repetition while possible, so that no rollout counts more often than its peers by more than one.
    copies: list[Rollout] = []
    while len(copies) < size - len(kept):
        copies.extend(rng.sample(kept, min(len(kept), size - len(kept) - len(copies))))
    taken = {rollout.index for rollout in kept}
    free = (index for index in count() if index not in taken)
    for number, each in enumerate(copies, start=1):
        marked = {**each.metadata, "resampled_from": each.id}
        kept.append(replace(each, id=f"{each.id}+{number}", index=next(free), metadata=marked))
    return replace(group, rollouts=tuple(kept), target_size=size)


class _Lists:
    """Reads four parallel lists as groups, with their problems: of each kind the first, and how many more there are."""

    def __init__(self, *, allow_nan: bool, partial: bool) -> None:
        self._allow_nan, self._partial = allow_nan, partial
        self._names: Sequence[Any] = ()
        self._wrong: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    def groups(self, lists: ExperienceLists, group_size: int | None, ids: object) -> Iterator[RolloutGroup]:
        # Every problem of lengths and values is raised before any group is yielded.
        problems = [] if group_size is None else size_problems(group_size=group_size)
        states = self._outer("states", lists.states, None)
        count = None if as_list(lists.states) is None else len(states)
        self._names = [f"g{number}" for number in range(len(states))] if ids is None else self._outer("ids", ids, count)
        for number, state in enumerate(states):
            if reason := _not_json(state):
                self._add("states", "JSON values", reason, f"index {number}")
        if count == 0:
            self._add("states", "at least one", "none")
        sizes = {} if problems or group_size is None else dict.fromkeys(range(len(states)), group_size)
        actions = self._rows("action_groups", lists.action_groups, count, sizes, _not_json, "JSON values")
        sizes = sizes or {number: len(row) for number, row in enumerate(actions) if row}
        numbers = "numbers" if self._allow_nan else "finite numbers"
        rewards = self._rows("rewards", lists.reward_groups, count, sizes, self._not_a_number, numbers)
        totals: Sequence[Sequence[float | None]] = [[None] * len(row) for row in actions]
        if lists.log_prob_old_groups is not None:
            totals = self._rows("log_probs_old", lists.log_prob_old_groups, count, sizes, self._not_a_number, numbers)
        for (name, expected), wrong in self._wrong.items():
            received, where = wrong[0]
            problems.append(ShapeProblem(name, expected, received, where + more(len(wrong) - 1)))
        if problems:
            raise ShapeError(problems)
        for number, (name, state, *rows) in enumerate(zip(self._names, states, actions, rewards, totals, strict=True)):
            rollouts = (_rollout(name, index, *values) for index, values in enumerate(zip(*rows, strict=True)))
            group = RolloutGroup(name, state, tuple(rollouts))
            yield group if ids is not None else with_content_id(group, number)

    def _add(self, name: str, expected: str, received: str, where: str = "") -> None:
        self._wrong[name, expected].append((received, where))

    def _place(self, number: int) -> str:
        name = f", id {self._names[number]!r}" if number < len(self._names) else ""
        return f"first bad group: index {number}{name}"

    def _outer(self, name: str, value: object, count: int | None) -> list[Any]:
        values = as_list(value)
        if values is None:
            self._add(name, "a list", "a text" if isinstance(value, str | bytes) else f"a {type(value).__name__}")
        elif count is not None and len(values) != count:
            self._add(name, f"{count}, one for each state", str(len(values)))
        return values or []

    def _rows(
        self,
        name: str,
        value: object,
        count: int | None,
        sizes: Mapping[int, int],
        refusal: Callable[[Any], str],
        expected: str,
    ) -> list[list[Any]]:
        values = self._outer(name, value, count)
        uniform = len({*sizes.values()}) == 1
        for number, row in enumerate(rows := [*map(as_list, values)]):
            if row is None:
                self._add(name, "a list for each state", f"a {type(values[number]).__name__}", self._place(number))
                continue
            if not row and name == "action_groups" and not sizes:
                self._add(name, "at least one action in each group", "none", self._place(number))
            if len(row) != (size := sizes.get(number, len(row))):
                wanted = f"shape ({count}, {size}) = (states, group_size)" if uniform else f"{size} per state"
                received = f"({len(rows)}, {len(row)})" if uniform else str(len(row))
                self._add(name, wanted, received, self._place(number))
            for index, each in enumerate(row):
                if reason := refusal(each):
                    self._add(name, expected, reason, f"{self._place(number)}, action {index}")
        return [row or [] for row in rows]

    def _not_a_number(self, value: object) -> str:
        # NaN and infinity are floats; an integer that no float can hold is refused in any case.
        allow_nan = self._allow_nan and isinstance(value, float)
        if is_number(value, allow_nan=allow_nan) or (self._partial and value is None):
            return ""
        kind = f"a {type(value).__name__} (one number for each action)"
        return kind if isinstance(value, list | tuple | Mapping) else repr(value)[:80]


def _not_json(value: object) -> str:
    try:
        frozen(value)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _rollout(group_id: str, index: int, action: Any, reward: float | None, total: float | None) -> Rollout:
    return Rollout(
        f"{group_id}/{index}",
        group_id,
        index,
        action,
        # Lists do not say why a rollout has neither reply nor reward: what failed must not look answered.
        status="error" if action is None and reward is None else "ok",
        reward=None if reward is None else float(reward),
        logprob=None if total is None else LogProbs(total=float(total), complete=True),
    )
