"""Match the results of a scorer with the attempts that it was asked about.

Results may be objects, mappings or bare numbers, in any order, too few or too many. An unusable result costs its own attempt
the score, and no other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import islice
from numbers import Real
from operator import itemgetter
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final, TypeAlias, TypeVar, cast

from tfgrpo.rewarders.faults import described, is_ctrl_c
from tfgrpo.rewarders.scorer import Abstained, GraderInput, Verdict, Verdicts
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import GraderUnavailable, RewardError, RewarderTimeout
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import MAX_SCORE, RewardScore
from tfgrpo.stores.text import pluralize

T = TypeVar("T")
D = TypeVar("D")

_SHOWN: Final = 60
_ABSENT: Final = object()
NO_NUMBER: Final = ("is no number", f"is no finite number of at most {MAX_SCORE:g}")
REJECTS: Final = " (it does not take what it is called with)"
_HERE: Final = Path(__file__).resolve().parent
_Name: TypeAlias = tuple[Hashable, Hashable]
_NAMELESS: Final = (None, None)
NO_RESULT: Final = "returned no result for it"


def unless_it_raises(default: D, call: Callable[..., T], *arguments: object) -> T | D:
    """Return the result of a call into user code, or ``default`` when it raises."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001  the class is a user's, and so is what it raises
        return default


def failed(name: str, error: BaseException) -> Abstained:
    """Return the verdict for an exception, with its text in one line. A ``RewardError`` concerns the attempt alone."""
    broke = not isinstance(error, RewardError) or isinstance(error, GraderUnavailable)
    late = isinstance(error, RewarderTimeout)
    return Abstained(name, described(error) + (REJECTS if _rejects(error) else ""), broke, late)


def _rejects(error: BaseException) -> bool:
    """Return whether an error means that code takes no such call, rather than that it cannot score this attempt."""
    if isinstance(error, TypeError | AttributeError) and "GraderInput" in str(error):
        return True
    if not isinstance(error, TypeError):
        return False
    *_, (frame, _) = walk_tb(error.__traceback__) if error.__traceback__ else [(None, 0)]
    return frame is not None and Path(frame.f_code.co_filename).resolve().parent == _HERE


def as_verdict(name: str, value: object) -> Verdict:
    """Read a value as the verdict on one attempt: a verdict, a number of any kind, a boolean, or an object with a reward.

    Numbers as text are read as numbers. None, NaN and anything else abstain, and so does a value that raises when it is
    looked at. The score of a bare number has no evidence yet.
    """
    if isinstance(value, BaseException):
        return failed(name, value)
    try:
        return _read(name, value)
    except BaseException as error:  # the class is a user's
        if is_ctrl_c(error):
            raise
        return failed(name, error)


def _read(name: str, value: object) -> Verdict:
    if isinstance(value, RewardScore | Abstained):
        return _checked(name, value)
    reward, members = _reward_of(value)
    if reward is None:
        return Abstained(name, "returned None" if value is None else "the result has no reward, or two different ones")
    if isinstance(reward, RewardScore | Abstained):
        return _checked(name, reward)
    return _number(name, reward, members)


_REASONS: Final = ("reason", "feedback", "explanation", "rationale", "evidence")
"""Members of a result that say why."""
_OTHER_MEMBERS: Final = frozenset({"score", "reward", "sample_id", "completion_index"})


def _reward_of(value: object) -> tuple[object, Mapping[Any, Any]]:
    """Return the reward of a result, and its members if it is a mapping or an object that has more."""
    if isinstance(value, Mapping):
        scores = [value[key] for key in ("reward", "score") if key in value]
        differ = len(scores) == 2 and unless_it_raises(True, lambda: bool(scores[0] != scores[1]))
        return (None if not scores or differ else scores[0]), value
    if isinstance(value, Real | Decimal | str | bytes):
        return value, {}
    for key in ("reward", "score"):
        reward = unless_it_raises(_ABSENT, getattr, value, key, _ABSENT)
        if reward is not _ABSENT:
            members = {name: unless_it_raises(None, getattr, value, name, None) for name in _REASONS}
            return reward, members
    return value, {}


def _number(name: str, reward: object, members: Mapping[Any, Any]) -> Verdict:
    number = unless_it_raises(None, float, reward)
    if number is None:
        return Abstained(name, f"the reward {_short(reward)} {NO_NUMBER[0]}", broke=True)
    if not math.isfinite(number) or abs(number) > MAX_SCORE:
        return Abstained(name, f"the reward {_short(reward)} {NO_NUMBER[1]}", broke=True)
    reasons = [text for key in _REASONS if isinstance(text := members.get(key), str) and text.strip()]
    kept: dict[str, Any] = {}
    for key, value in members.items() if isinstance(members, Mapping) else ():
        if key not in _OTHER_MEMBERS and value is not None:
            kept |= unless_it_raises({}, lambda key=key, value=value: dict(_json({key: _plain(value)})))
    return RewardScore(
        name, number, " ".join(reasons[0].split()) if reasons else "", FrozenDict(kept) if kept else None
    )


def _plain(value: object) -> object:
    """Return a scalar of numpy as Python's."""
    item = unless_it_raises(None, getattr, value, "item", None)
    return unless_it_raises(value, item) if callable(item) and getattr(value, "ndim", None) == 0 else value


def _checked(name: str, verdict: Verdict) -> Verdict:
    """Return a verdict in the name of its scorer, with evidence in one line and details that are JSON."""
    if isinstance(verdict, Abstained):
        return replace(verdict, rewarder_id=name, reason=" ".join(str(verdict.reason).split()))
    score: object = verdict.score
    if not isinstance(score, Real) or not is_finite(score) or abs(float(score)) > MAX_SCORE:
        return Abstained(name, f"the score {_short(score)} is no finite number of at most {MAX_SCORE:g}", broke=True)
    try:
        details = None if verdict.details is None else _json(verdict.details)
    except RewardError as error:
        return Abstained(name, str(error), broke=True)
    return RewardScore(name, float(score), " ".join(str(verdict.evidence).split()), details)


def _json(details: object) -> FrozenDict:
    """Return details as frozen JSON, which a record needs. Raises ``RewardError``."""
    try:
        kept = frozen(details)
        canonical_json(kept)
    except (TypeError, ValueError, RecursionError) as error:
        raise RewardError(f"details of a score that are no JSON: {error}") from None
    if not isinstance(kept, FrozenDict):
        raise RewardError(f"details of a score that are a {type(details).__name__}, expected a mapping")
    return kept


def group_verdicts(name: str, answer: object, count: int) -> Verdicts:
    """Return the verdicts on a group from the return value of its scorer. Raises ``RewardError`` unless one for each."""
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise RewardError(f"returned {type(answer).__name__}, expected one verdict for each attempt")
    values = list(islice(answer, 2 * count + 1))
    if len(values) != count:
        raise RewardError(f"{pluralize(len(values), 'verdict')} for {pluralize(count, 'attempt')}")
    return tuple(as_verdict(name, value) for value in values)


def matched(name: str, inputs: Sequence[GraderInput], answer: object, *, strict: bool = False) -> Verdicts:
    """Return the verdict on each input from the return value of a batch. Raises ``RewardError`` when it is no list.

    Results belong to the inputs with their name: ``sample_id`` and ``completion_index``, else one of the two alone. The
    first of several inputs of one name gets the first result of that name. Without usable names the order counts. An input
    without a result, or with two that differ, has no score.

    ``strict``: names of results always count; the order counts only where no result has a name.
    """
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise RewardError(f"returned a {type(answer).__name__}, expected a list of results")
    # A user's generator may be endless; twice as many show that one item has two results.
    results = list(islice(answer, 2 * len(inputs) + 1))
    verdicts = [as_verdict(name, result) for result in results]
    wanted, given = ([*map(_name_of, holders)] for holders in (inputs, results))
    keys: tuple[Callable[[_Name], Hashable], ...] = (lambda whole: whole, itemgetter(0), itemgetter(1))
    for key in keys[:2] if strict and any(sample is not None for sample, _ in given) else keys:
        found = _by_name(name, wanted, given, verdicts, key, strict=strict)
        if found is not None:
            return found
    named = next((each for each in given if each != _NAMELESS), None)
    if strict and named is not None:
        return (_missing(name, named),) * len(inputs)
    return (*verdicts[: len(inputs)], *[_missing(name)] * (len(inputs) - len(verdicts)))


def _by_name(
    name: str,
    wanted: Sequence[_Name],
    given: Sequence[_Name],
    verdicts: Sequence[Verdict],
    key: Callable[[_Name], Hashable],
    *,
    strict: bool,
) -> Verdicts | None:
    """Return verdicts by one part of the names, or the whole ones; None when those of the results are useless."""
    known = Counter(map(key, wanted))
    named = Counter(each for each in map(key, given) if each is not None)
    # One name for all results of several inputs is a constant of the scorer's and tells nothing.
    one_for_all = not strict and len(named) == 1 < len(known) and named.total() == len(wanted)
    if one_for_all or not known.keys() & named.keys():
        return None
    missing = _missing(name, next((each for each in given if key(each) not in known and each != _NAMELESS), None))
    found: dict[Hashable, list[Verdict]] = {}
    for each, verdict in zip(given, verdicts, strict=True):
        found.setdefault(key(each), []).append(verdict)
    turns: dict[Hashable, Iterator[Verdict]] = {}
    for whose, count in known.items():
        own = found.get(whose, [])
        if len(own) > count and len(set(own)) > 1:
            own = [Abstained(name, "returned two different results for it")] * count
        turns[whose] = iter([*own[:count], *[missing] * (count - len(own))])
    return tuple(next(turns[key(each)]) for each in wanted)


def _missing(name: str, foreign: _Name | None = None) -> Abstained:
    """Return the verdict on an input without a result. ``foreign``: the name of a result for an unknown item."""
    if foreign is None:
        return Abstained(name, NO_RESULT)
    sample, index = foreign
    parts = [
        *([] if sample is None else [_short(sample)]),
        *([] if index is None else [f"completion_index {_short(index)}"]),
    ]
    return Abstained(name, f"{NO_RESULT}, but one for {', '.join(parts)}, which it was not asked for")


def _name_of(holder: object) -> _Name:
    """Return ``sample_id`` and ``completion_index`` of an input or a result, each None where it has none."""
    read = holder.get if isinstance(holder, Mapping) else partial(unless_it_raises, None, getattr, holder)
    sample, index = (read(name, None) for name in ("sample_id", "completion_index"))
    names = (each if isinstance(each, str | int | float) and each != "" else None for each in (sample, index))
    return cast("_Name", tuple(names))


def _short(value: object) -> str:
    text = unless_it_raises(f"of type {type(value).__name__}", repr, value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
