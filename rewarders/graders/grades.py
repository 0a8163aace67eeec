"""What became of one item at one grader? A reward, or the reason why there is none; and which result belongs to it.

A grader's results are taken as they come: objects, mappings or bare numbers, in any order, too few or too many. What
cannot be used costs the item that it is for, and no other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.graders.base import GradeResult, GraderInput
from tfgrpo.stores.errors import GraderUnavailable, RewardError

T = TypeVar("T")
D = TypeVar("D")

_SHOWN: Final = 60
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Graded:
    """The grader gave a reward."""

    reward: float
    """Finite; any sign, any size."""


@dataclass(frozen=True, slots=True)
class NotGraded:
    """The grader gave nothing that can be used. Never a number."""

    reason: str
    error_type: str
    """Name of the exception, or what is wrong with the result: ``NoResult``, ``NotANumber``, ``TwoResults``."""
    broke: bool = False
    """It was the grader that failed: it raised, or cannot be asked. A ``RewardError`` of its own says that of the item."""


Grade: TypeAlias = Graded | NotGraded

SILENT: Final = NotGraded("the grader said nothing of it", "NoResult")
"""The grade of an item for which no call of the grader came to anything."""


@dataclass(frozen=True, slots=True)
class FailedResult(GradeResult):
    """The result of an item that a grader could not grade, with the reason. Its ``reward`` is NaN."""

    error: str = ""
    error_type: str = "RewardError"


def unless_it_raises(default: D, call: Callable[..., T], *arguments: object) -> T | D:
    """What a call into a class of a user's returns; ``default`` when that raises, whatever it raises."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001  the class is a user's, and so is what it raises
        return default


def not_graded(error: BaseException) -> NotGraded:
    """What an exception means for an item: its text in one line."""
    broke = not isinstance(error, RewardError) or isinstance(error, GraderUnavailable)
    return NotGraded(described(error), type(error).__name__, broke)


def matched(inputs: Sequence[GraderInput], said: object, *, strict: bool = False) -> tuple[Grade, ...]:
    """The grade of each input out of what a grader returned. Raises ``RewardError`` when that is no list of results.

    Results belong to the inputs that they name: by ``sample_id`` and ``completion_index``, else by one of the two alone. The
    first of several inputs of one name gets the first result of that name. Where names tell nothing, the position
    counts. An input without a result, or with two that differ, is not graded.

    ``strict``: names that are given are believed; the position counts only where no result has a name.
    """
    results = _results(said, len(inputs))
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


def finite_number(value: object) -> Graded | NotGraded:
    """A reward as a float: numbers of any kind, true and false, and text that is one number."""
    number = unless_it_raises(None, float, value)
    if number is None:
        return NotGraded(f"the reward {_short(value)} is no number", "NotANumber")
    if math.isfinite(number):
        return Graded(number)
    return NotGraded(f"the reward {_short(value)} is no finite number", "NotANumber")


_NO_RESULT: Final = "the grader returned no result for it"
_TWO: Final = NotGraded("the grader returned two different results for it", "TwoResults")


def _results(said: object, expected: int) -> list[object]:
    """What was returned as a list, read a little past the expected length and no further."""
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise RewardError(f"the grader returned a {type(said).__name__}, expected a list of results")
    return list(islice(said, 2 * expected + 1))


def _missing(foreign: object = None) -> NotGraded:
    """The grade of an input without a result. ``foreign``: a result for something else, if there is one."""
    if foreign is None:
        return NotGraded(_NO_RESULT, "NoResult")
    sample, index = _sample_name(foreign), _index_name(foreign)
    name = f"completion_index {_short(index)}" if sample is None else _short(sample)
    if sample is not None and index is not None:
        name += f", completion_index {_short(index)}"
    return NotGraded(f"{_NO_RESULT}, but one for {name}, which it was not asked for", "NoResult")


def _by_name(
    wanted: Sequence[Hashable], given: Sequence[Hashable], results: Sequence[object], strict: bool
) -> tuple[Grade, ...] | None:
    """Grades by name; None when the names of the results tell nothing."""
    known = Counter(wanted)
    said = Counter(name for name in given if name is not None)
    one_for_all = not strict and len(said) == 1 < len(known) and said.total() == len(wanted)
    if one_for_all or not known.keys() & said.keys():
        return None
    grades: dict[Hashable, list[Grade]] = {}
    for name, result in zip(given, results, strict=True):
        grades.setdefault(name, []).append(_grade(result))
    strays = (result for name, result in zip(given, results, strict=True) if name not in known)
    missing = _missing(next((each for each in strays if _full_name(each) != (None, None)), None))
    turns = {name: iter(_for_each(grades.get(name, []), count, missing)) for name, count in known.items()}
    return tuple(next(turns[name]) for name in wanted)


def _for_each(grades: Sequence[Grade], count: int, missing: NotGraded) -> Sequence[Grade]:
    """The grades of the inputs of one name."""
    if len(grades) > count:
        return list(grades[:count]) if len(set(grades)) == 1 else [_TWO] * count
    return [*grades, *[missing] * (count - len(grades))]


def _grade(result: object) -> Grade:
    if isinstance(result, FailedResult):
        return NotGraded(result.error, result.error_type)
    reward = _field(result, "reward")
    if reward is not _ABSENT:
        return finite_number(reward)
    if result is None or isinstance(result, Mapping):
        return NotGraded("the result has no reward", "NotANumber")
    return finite_number(result)


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
