"""Convert four parallel lists to groups and back, with every problem reported before anything is built.

States [B], then actions, rewards and old log-probabilities [B][G]: the form in which experience buffers hand data to
trainers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from tfgrpo.stores.batch.checks import is_count, is_number
from tfgrpo.stores.batch.content_ids import default_id
from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json, frozen, to_builtins
from tfgrpo.stores.text import pluralize


class ExperienceLists(NamedTuple):
    """The four parallel lists, as given or as handed out."""

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
        """The rollouts of the groups, one after another."""
        pairs = [(place, group, rollout) for place, group in enumerate(groups) for rollout in group.rollouts]
        return cls(
            states=tuple(group.state for _, group, _ in pairs),
            completions=tuple(rollout.completion for _, _, rollout in pairs),
            rewards=tuple(rollout.reward for _, _, rollout in pairs),
            logprobs=tuple(complete_logprob(rollout) for _, _, rollout in pairs),
            group_indexes=tuple(place for place, _, _ in pairs),
            rollout_ids=tuple(rollout.id for _, _, rollout in pairs),
        )


def complete_logprob(rollout: Rollout) -> float | None:
    """The log-probability of a whole completion; None when any part of it is missing."""
    logprob = rollout.logprob
    return logprob.total if logprob is not None and logprob.complete else None


def lists_of_groups(groups: Sequence[RolloutGroup], *, partial: bool) -> ExperienceLists:
    """Plain copies that may be changed. Raises ``ShapeError`` for what is absent, unless ``partial``."""
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
    lists: ExperienceLists, *, group_size: int | None, ids: Sequence[str] | None, allow_nan: bool
) -> tuple[RolloutGroup, ...]:
    """Groups of the four lists. Raises ``ShapeError`` with everything that is wrong with them."""
    reader = _Reader(group_size, allow_nan)
    states = reader.outer("states", lists.states, None)
    count = len(states) if states is not None else None
    if states == []:
        reader.problems.append(ShapeProblem("states", "at least one", "none"))
    names = [f"g{place}" for place in range(count or 0)] if ids is None else reader.outer("ids", ids, None)
    if names is None:
        names = []
    elif count is not None and len(names) != count:
        reader.problems.append(ShapeProblem("ids", f"{count}, one for each state", str(len(names))))
    reader.problems.extend(_problems_of_ids(names))
    reader.ids = names
    reader.values("states", [states] if states is not None else None, frozen, named=False)
    told = len(reader.problems)
    actions = reader.rows("action_groups", lists.action_groups, count, None)
    # Groups of a wrong length are no measure for the other lists.
    sizes = None if actions is None or len(reader.problems) > told else [len(row) for row in actions]
    reader.values("action_groups", actions, frozen)
    rewards = reader.numbers("rewards", lists.reward_groups, count, sizes)
    given = lists.log_prob_old_groups
    logprobs = None if given is None else reader.numbers("log_probs_old", given, count, sizes)
    if reader.problems:
        raise ShapeError(reader.problems)
    whole = cast("tuple[list[Any], list[list[Any]], list[list[float]]]", (states, actions, rewards))
    if ids is None:
        names = [default_id(place, content) for place, content in enumerate(_contents(whole, logprobs))]
    return tuple(_group(names, place, whole, logprobs) for place in range(len(whole[0])))


def _contents(
    lists: tuple[list[Any], list[list[Any]], list[list[float]]], logprobs: list[list[float]] | None
) -> Iterator[tuple[Any, ...]]:
    """What each group holds."""
    return zip(*lists, logprobs if logprobs is not None else repeat(None), strict=False)


def _group(
    names: Sequence[str],
    place: int,
    lists: tuple[list[Any], list[list[Any]], list[list[float]]],
    logprobs: list[list[float]] | None,
) -> RolloutGroup:
    states, actions, rewards = lists
    name = names[place]
    rollouts = (
        Rollout(
            id=f"{name}/{index}",
            group_id=name,
            index=index,
            completion=action,
            reward=rewards[place][index],
            logprob=None if logprobs is None else LogProbs(total=logprobs[place][index], complete=True),
        )
        for index, action in enumerate(actions[place])
    )
    return RolloutGroup(name, states[place], tuple(rollouts))


_MORE: Final = "and {} more"


class _Reader:
    """Reads lists and collects what is wrong with them."""

    def __init__(self, group_size: int | None, allow_nan: bool) -> None:
        self.problems: list[ShapeProblem] = []
        self.ids: Sequence[str] = ()
        self._allow_nan = allow_nan
        self._group_size = group_size
        if group_size is not None and (not is_count(group_size) or group_size < 1):
            self.problems.append(ShapeProblem("group_size", "a whole number of at least 1", repr(group_size)))
            self._group_size = None

    def outer(self, name: str, given: object, count: int | None) -> list[Any] | None:
        """The list itself; None, and a problem, when it is none or has another length than there are states."""
        values = as_list(given)
        if values is None:
            kind = "a text" if isinstance(given, str | bytes) else f"a {type(given).__name__}"
            self.problems.append(ShapeProblem(name, "a list", kind))
        elif count is not None and len(values) != count:
            expected = f"{pluralize(count, 'group')}, one for each state"
            self.problems.append(ShapeProblem(name, expected, pluralize(len(values), "group")))
            return None
        return values

    def rows(self, name: str, given: object, count: int | None, sizes: list[int] | None) -> list[list[Any]] | None:
        """A list of rows, with what is wrong with their lengths among the problems; None when it is no such list."""
        values = self.outer(name, given, count)
        if values is None:
            return None
        rows = [as_list(row) for row in values]
        flat = [place for place, row in enumerate(rows) if row is None]
        if flat:
            received = f"a {type(values[flat[0]]).__name__}"
            self.problems.append(ShapeProblem(name, "a list for each state", received, self._where(flat)))
            return None
        whole = cast("list[list[Any]]", rows)
        expected = self._sizes(whole, sizes)
        bad = [place for place, row in enumerate(whole) if len(row) != expected[place]]
        if bad:
            self.problems.append(self._mismatch(name, whole, expected, bad))
        empty = [place for place, row in enumerate(whole) if not row]
        if empty and sizes is None:
            self.problems.append(ShapeProblem(name, "at least one action in each group", "none", self._where(empty)))
        return whole

    def values(
        self, name: str, rows: list[list[Any]] | None, check: Callable[[Any], object], *, named: bool = True
    ) -> None:
        """Put every value of the rows through ``check``."""
        bad = [(place, index, reason) for place, index, value in _each(rows) if (reason := _refusal(check, value))]
        if bad:
            place, index, reason = bad[0]
            where = f"{self._where([place])}, action {index}" if named else f"index {index}"
            self.problems.append(ShapeProblem(name, "JSON values", reason, where + _more(len(bad) - 1)))

    def numbers(self, name: str, given: object, count: int | None, sizes: list[int] | None) -> list[list[float]] | None:
        """Rows of numbers."""
        rows = self.rows(name, given, count, sizes)
        number = "numbers" if self._allow_nan else "finite numbers"
        bad = [
            (place, index, value)
            for place, index, value in _each(rows)
            if not is_number(value, allow_nan=self._allow_nan)
        ]
        if bad:
            place, index, value = bad[0]
            where = f"{self._where([place])}, action {index}" + _more(len(bad) - 1)
            self.problems.append(ShapeProblem(name, number, _value_text(value), where))
            return None
        return None if rows is None else [[float(value) for value in row] for row in rows]

    def _sizes(self, rows: list[list[Any]], sizes: list[int] | None) -> list[int]:
        if sizes is not None:
            return sizes
        return [len(row) if self._group_size is None else self._group_size for row in rows]

    def _mismatch(self, name: str, rows: list[list[Any]], expected: list[int], bad: list[int]) -> ShapeProblem:
        if len(set(expected)) == 1 and len({len(row) for row in rows}) == 1:
            shape = f"shape ({len(rows)}, {expected[0]}) = (states, group_size)"
            return ShapeProblem(name, shape, f"({len(rows)}, {len(rows[0])})", self._where(bad))
        first = bad[0]
        return ShapeProblem(name, f"{expected[first]} per state", f"{len(rows[first])}", self._where(bad))

    def _where(self, places: Sequence[int]) -> str:
        first = places[0]
        name = f", id {self.ids[first]!r}" if first < len(self.ids) else ""
        return f"first bad group: index {first}{name}{_more(len(places) - 1)}"


def as_list(value: object) -> list[Any] | None:
    """A list, tuple or array (anything with ``tolist``) as a list; None for everything else, texts included."""
    if isinstance(value, list | tuple):
        return list(value)
    tolist = getattr(value, "tolist", None)
    if not callable(tolist):
        return None
    values = tolist()
    return values if isinstance(values, list) else None


def _refusal(check: Callable[[Any], object], value: object) -> str:
    try:
        check(value)
    except (TypeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _problems_of_ids(names: Sequence[object]) -> Iterator[ShapeProblem]:
    first: dict[object, int] = {}
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name:
            yield ShapeProblem("ids", "texts", repr(name), f"index {place}")
        elif first.setdefault(name, place) != place:
            yield ShapeProblem("ids", "one of its own for each state", repr(name), f"indexes {first[name]} and {place}")


def _each(rows: Sequence[Sequence[Any]] | None) -> Iterator[tuple[int, int, Any]]:
    return ((place, index, value) for place, row in enumerate(rows or ()) for index, value in enumerate(row))


def _absent(
    name: str, rows: Sequence[Sequence[float | None]], groups: Sequence[RolloutGroup]
) -> Iterator[ShapeProblem]:
    bad = [(place, index) for place, index, value in _each(rows) if value is None]
    if bad:
        place, index = bad[0]
        rollout = groups[place].rollouts[index].id
        where = f"first: group index {place}, rollout {rollout!r}{_more(len(bad) - 1)}"
        yield ShapeProblem(name, "a number for every rollout", "None", where)


def _more(count: int) -> str:
    return f" {_MORE.format(count)}" if count else ""


def _value_text(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} (one number for each action)"
    return repr(value)[:80]
