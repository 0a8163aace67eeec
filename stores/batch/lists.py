"""Read four parallel lists as groups, with every problem reported before anything is built.

States [B], then actions, rewards and old log-probabilities [B][G]: the form in which experience buffers hand data to
trainers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup, default_id, more, size_problems
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import frozen
from tfgrpo.stores.numeric import as_list, is_number


class ExperienceLists(NamedTuple):
    """The four parallel lists."""

    states: Any
    action_groups: Any
    reward_groups: Any
    log_prob_old_groups: Any


def groups_of_lists(
    lists: ExperienceLists, *, group_size: int | None, ids: Sequence[str] | None, allow_nan: bool, absent: bool
) -> tuple[RolloutGroup, ...]:
    """Return the groups of the four lists; ``absent``: None is an absent reward or log-probability.

    Raises ``ShapeError`` with every problem of lengths and values.
    """
    reader = _Reader([] if group_size is None else size_problems(group_size=group_size))
    states = reader.outer("states", lists.states, None)
    count = None if as_list(lists.states) is None else len(states)
    reader.names = [f"g{number}" for number in range(len(states))] if ids is None else reader.outer("ids", ids, count)
    for number, state in enumerate(states):
        if reason := _not_json(state):
            reader.add("states", "JSON values", reason, f"index {number}")
    if count == 0:
        reader.add("states", "at least one", "none")
    sizes = {} if reader.problems or group_size is None else dict.fromkeys(range(len(states)), group_size)
    actions = reader.rows("action_groups", lists.action_groups, count, sizes, _not_json, "JSON values")
    sizes = sizes or {number: len(row) for number, row in enumerate(actions) if row}
    refusal = partial(_not_a_number, allow_nan=allow_nan, absent=absent)
    numbers = "numbers" if allow_nan else "finite numbers"
    rewards = reader.rows("rewards", lists.reward_groups, count, sizes, refusal, numbers)
    totals: Sequence[Sequence[float | None]] = [[None] * len(row) for row in actions]
    if lists.log_prob_old_groups is not None:
        totals = reader.rows("log_probs_old", lists.log_prob_old_groups, count, sizes, refusal, numbers)
    reader.raise_problems()
    columns = zip(states, actions, rewards, totals, strict=True)
    return tuple(
        _group(default_id(number, content) if ids is None else reader.names[number], *content)
        for number, content in enumerate(columns)
    )


def _group(
    name: str, state: object, actions: Sequence[Any], rewards: Sequence[float | None], totals: Sequence[float | None]
) -> RolloutGroup:
    rollouts = (
        Rollout(
            f"{name}/{index}",
            name,
            index,
            action,
            # Lists do not say why a rollout has neither reply nor reward: what failed must not look answered.
            status="error" if action is None and reward is None else "ok",
            reward=None if reward is None else float(reward),
            logprob=None if total is None else LogProbs(total=float(total), complete=True),
        )
        for index, (action, reward, total) in enumerate(zip(actions, rewards, totals, strict=True))
    )
    return RolloutGroup(name, state, tuple(rollouts))


class _Reader:
    """Reads lists and collects their problems: of each kind the first, and how many more there are."""

    def __init__(self, problems: list[ShapeProblem]) -> None:
        self.problems = problems
        self.names: Sequence[Any] = ()
        self._wrong: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    def add(self, name: str, expected: str, received: str, where: str = "") -> None:
        """Add a problem."""
        self._wrong[name, expected].append((received, where))

    def raise_problems(self) -> None:
        """Raise ``ShapeError`` if there are any problems."""
        for (name, expected), wrong in self._wrong.items():
            received, where = wrong[0]
            self.problems.append(ShapeProblem(name, expected, received, where + more(len(wrong) - 1)))
        if self.problems:
            raise ShapeError(self.problems)

    def place(self, number: int) -> str:
        """Return how a problem names the group at this index."""
        return f"first bad group: index {number}" + (f", id {self.names[number]!r}" if number < len(self.names) else "")

    def outer(self, name: str, value: object, count: int | None) -> list[Any]:
        """Return a list, empty for anything else; its length has to be ``count``."""
        values = as_list(value)
        if values is None:
            self.add(name, "a list", "a text" if isinstance(value, str | bytes) else f"a {type(value).__name__}")
        elif count is not None and len(values) != count:
            self.add(name, f"{count}, one for each state", str(len(values)))
        return values or []

    def rows(
        self,
        name: str,
        value: object,
        count: int | None,
        sizes: Mapping[int, int],
        refusal: Callable[[Any], str],
        expected: str,
    ) -> list[list[Any]]:
        """Return the rows of a list, of these sizes and without values that are refused."""
        values = self.outer(name, value, count)
        uniform = len({*sizes.values()}) == 1
        for number, row in enumerate(rows := [*map(as_list, values)]):
            if row is None:
                self.add(name, "a list for each state", f"a {type(values[number]).__name__}", self.place(number))
                continue
            if not row and name == "action_groups" and not sizes:
                self.add(name, "at least one action in each group", "none", self.place(number))
            if uniform and len(row) != (size := sizes.get(number, len(row))):
                shape = f"shape ({count}, {size}) = (states, group_size)"
                self.add(name, shape, f"({len(rows)}, {len(row)})", self.place(number))
            elif len(row) != (size := sizes.get(number, len(row))):
                self.add(name, f"{size} per state", str(len(row)), self.place(number))
            for index, each in enumerate(row):
                if reason := refusal(each):
                    self.add(name, expected, reason, f"{self.place(number)}, action {index}")
        return [row or [] for row in rows]


def _not_json(value: object) -> str:
    """Return why a value is not JSON; empty when it is."""
    try:
        frozen(value)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _not_a_number(value: object, *, allow_nan: bool, absent: bool) -> str:
    """Return the text of a value that is no number; empty when it is one."""
    # NaN and infinity are floats; an integer that no float can hold is refused in any case.
    if is_number(value, allow_nan=allow_nan and isinstance(value, float)) or (absent and value is None):
        return ""
    kind = f"a {type(value).__name__} (one number for each action)"
    return kind if isinstance(value, list | tuple | Mapping) else repr(value)[:80]
