"""Grades of items, and the matching of a grader's results to its inputs.

Results may be objects, mappings or bare numbers, in any order, too few or too many. An unusable result costs its own item
the grade, and no other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.graders.base import Grade, GraderInput, NotGraded
from tfgrpo.stores.errors import GraderUnavailable, RewardError

T = TypeVar("T")
D = TypeVar("D")

_SHOWN: Final = 60
_ABSENT: Final = object()
_NO_RESULT: Final = "the grader returned no result for it"
NO_GRADE: Final = NotGraded(_NO_RESULT, "NoResult")
"""The grade of an item without any result."""


def unless_it_raises(default: D, call: Callable[..., T], *arguments: object) -> T | D:
    """Return the result of a call into user code, or ``default`` when it raises."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001  the class is a user's, and so is what it raises
        return default


def not_graded(error: BaseException) -> NotGraded:
    """Return the grade for an exception, with its text in one line."""
    broke = not isinstance(error, RewardError) or isinstance(error, GraderUnavailable)
    return NotGraded(described(error), type(error).__name__, broke)


def matched(inputs: Sequence[GraderInput], answer: object, *, strict: bool = False) -> tuple[Grade, ...]:
    """Return the grade of each input from the return value of a grader. Raises ``RewardError`` when it is no list.

    Results belong to the inputs with their name: ``sample_id`` and ``completion_index``, else one of the two alone. The
    first of several inputs of one name gets the first result of that name. Without usable names the order counts. An
    input without a result, or with two that differ, is not graded.

    ``strict``: names of results always count; the order counts only where no result has a name.
    """
    results = _results(answer, len(inputs))
    by_sample = strict and any(_sample_name(result) is not None for result in results)
    for names in (_full_name, _sample_name) if by_sample else (_full_name, _sample_name, _index_name):
        found = _by_name([names(item) for item in inputs], [names(result) for result in results], results, strict)
        if found is not None:
            return found
    named = next((result for result in results if _full_name(result) != (None, None)), None)
    if strict and named is not None:
        return (_missing(named),) * len(inputs)
    rewards = [_grade(result) for result in results[: len(inputs)]]
    return (*rewards, *[_missing()] * (len(inputs) - len(rewards)))


def as_grade(value: object) -> Grade:
    """Read a reward: numbers of any kind, booleans, and text that is a number. A grade stays as it is."""
    if isinstance(value, NotGraded):
        return value
    number = unless_it_raises(None, float, value)
    if number is None:
        return NotGraded(f"the reward {_short(value)} is no number", "NotANumber")
    if math.isfinite(number):
        return number
    return NotGraded(f"the reward {_short(value)} is no finite number", "NotANumber")


_TWO: Final = NotGraded("the grader returned two different results for it", "TwoResults")


def _results(answer: object, expected: int) -> list[object]:
    """Read a return value as a list, up to a little past the expected length."""
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise RewardError(f"the grader returned a {type(answer).__name__}, expected a list of results")
    # A user's generator may be endless; twice as many show that one item has two results.
    return list(islice(answer, 2 * expected + 1))


def _missing(foreign: object = None) -> NotGraded:
    """Return the grade of an input without a result. ``foreign``: a result for an unknown item, if there is one."""
    if foreign is None:
        return NO_GRADE
    sample, index = _sample_name(foreign), _index_name(foreign)
    name = f"completion_index {_short(index)}" if sample is None else _short(sample)
    if sample is not None and index is not None:
        name += f", completion_index {_short(index)}"
    return NotGraded(f"{_NO_RESULT}, but one for {name}, which it was not asked for", "NoResult")


def _by_name(
    wanted: Sequence[Hashable], given: Sequence[Hashable], results: Sequence[object], strict: bool
) -> tuple[Grade, ...] | None:
    """Return grades by name; None when the names of the results are useless."""
    known = Counter(wanted)
    named = Counter(name for name in given if name is not None)
    # One name for all results of several inputs is a constant of the grader's and tells nothing.
    one_for_all = not strict and len(named) == 1 < len(known) and named.total() == len(wanted)
    if one_for_all or not known.keys() & named.keys():
        return None
    grades: dict[Hashable, list[Grade]] = {}
    for name, result in zip(given, results, strict=True):
        grades.setdefault(name, []).append(_grade(result))
    strays = (result for name, result in zip(given, results, strict=True) if name not in known)
    missing = _missing(next((each for each in strays if _full_name(each) != (None, None)), None))
    turns = {name: iter(_for_each(grades.get(name, []), count, missing)) for name, count in known.items()}
    return tuple(next(turns[name]) for name in wanted)


def _for_each(grades: Sequence[Grade], count: int, missing: NotGraded) -> Sequence[Grade]:
    """Return the grades of the inputs of one name."""
    if len(grades) > count:
        return list(grades[:count]) if len(set(grades)) == 1 else [_TWO] * count
    return [*grades, *[missing] * (count - len(grades))]


def _grade(result: object) -> Grade:
    reward = _field(result, "reward")
    if reward is not _ABSENT:
        return as_grade(reward)
    if result is None or isinstance(result, Mapping):
        return NotGraded("the result has no reward", "NotANumber")
    return as_grade(result)


def _full_name(holder: object) -> tuple[Hashable, Hashable]:
    return _sample_name(holder), _index_name(holder)


def _sample_name(holder: object) -> Hashable:
    return _hashable(_field(holder, "sample_id"))


def _index_name(holder: object) -> Hashable:
    return _hashable(_field(holder, "completion_index"))


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, str | int | float) and value != "" else None


def _field(holder: object, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name, _ABSENT)
    return unless_it_raises(_ABSENT, getattr, holder, name, _ABSENT)


def _short(value: object) -> str:
    text = unless_it_raises(f"of type {type(value).__name__}", repr, value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
