"""Call user code in this thread, and keep what it raises as a value; read what a scorer returns as one verdict on each attempt.

Results may be objects, mappings or bare numbers, in any order, too few or too many; an unusable one costs its own attempt the
score. Code may raise what is no ``Exception`` (``sys.exit``, ``pytest.fail``), which does not end the process.
"""

from __future__ import annotations

import inspect
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from numbers import Real
from operator import itemgetter
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from tfgrpo.rewarders.scorer import Abstained, GraderInput, RewardContext, Scorer, Verdict, Verdicts
from tfgrpo.stores.errors import GraderUnavailable, RewardError, RewarderTimeout
from tfgrpo.stores.json_values import FrozenDict, canonical_json, frozen
from tfgrpo.stores.outcomes import MAX_SCORE, RewardScore
from tfgrpo.stores.text import pluralize

_LONGEST: Final = 300
# Characters of a text that is kept whole: it goes to the journal, the rollouts and the report
_WHOLE: Final = 10_000

_T = TypeVar("_T")
L = TypeVar("L")
_P = ParamSpec("_P")
Work: TypeAlias = Sequence[GraderInput] | RewardContext
"""What a scorer is asked about: inputs, or for scope ``group`` one group."""
_Name: TypeAlias = tuple[Hashable, Hashable]
NO_NUMBER: Final = ("is no number", f"is no finite number of at most {MAX_SCORE:g}")
# Messages of a worker: it has made the scorer, it calls it, it cannot read what it was asked about. Any other is an answer.
READY: Final = b"ready"
BEGIN: Final = b"begin"
UNREADABLE: Final = b"unreadable"
REJECTS: Final = " (it does not take what it is called with)"
NO_RESULT: Final = "returned no result for it"
_SHOWN: Final = 60
_NAMELESS: Final = (None, None)
_REASONS: Final = ("reason", "feedback", "explanation", "rationale", "evidence")
_OTHER_MEMBERS: Final = frozenset({"score", "reward", "sample_id", "completion_index"})


def caught(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T | BaseException:
    """Return the result of user code, or what it raised. Ctrl-C passes through."""
    try:
        return call(*args, **kwargs)
    except BaseException as error:  # user code may raise what is no ``Exception``
        if is_ctrl_c(error):
            raise
        return error


def unless_it_raises(default: L, call: Callable[..., _T], *arguments: object) -> _T | L:
    """Return the result of a call into user code, or ``default`` when it raises."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001  the class is a user's, and so is what it raises
        return default


def described(error: BaseException, *, whole: bool = False) -> str:
    """Return class and text of an exception in a line of at most 300 characters; ``whole``: as it is, up to 10,000."""
    kind = type(error).__name__
    try:
        text = str(error)[:_WHOLE] if whole else " ".join(str(error).split())
        if isinstance(error, BaseExceptionGroup):
            text = f"{text}: {described(error.exceptions[0], whole=whole)}"
    except BaseException:  # noqa: BLE001  a user's exception class; its name has to do
        return kind
    if not whole and len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return text if isinstance(error, RewardError) and text and not whole else f"{kind}: {text}".removesuffix(": ")


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether the user ends the process, rather than the code of the user's in a thread or a worker."""
    in_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and in_main and signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call needs no thread, because it returns a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  of an object with an asynchronous __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def size(work: Work) -> int:
    """Return the number of attempts."""
    return len(work.outputs) if isinstance(work, RewardContext) else len(work)


def perform(scorer: Scorer, work: Work, limit_s: float = math.inf) -> Verdicts | Abstained:
    """Make one call of the scorer's code; of a coroutine function for single attempts one for each of them, at once.

    Return a single abstention for a batch that failed, perhaps for one of its attempts alone. Ctrl-C passes through.
    """
    begun = time.monotonic()
    if scorer.scope == "item" and is_async(scorer.call) and not isinstance(work, RewardContext):
        outcomes = _on_a_loop([partial(scorer.call, item) for item in work], limit_s)
        verdicts = tuple(as_verdict(scorer.rewarder_id, each) for each in outcomes)
    else:
        made = caught(_called, scorer, work, limit_s)
        # Late, although the code may have kept everyone from looking meanwhile.
        if time.monotonic() - begun > limit_s:
            made = RewarderTimeout(no_score(limit_s))
        if isinstance(made, BaseException):
            fault = failed(scorer.rewarder_id, made)
            # The error of a batch may be about one of its attempts, unless the service is down.
            return (fault,) * size(work) if isinstance(made, GraderUnavailable | RewarderTimeout) else fault
        verdicts = made
    items = [None] * size(work) if isinstance(work, RewardContext) else work
    return tuple(explained(scorer, *each) for each in zip(items, verdicts, strict=True))


def each_scored(scorer: Scorer, work: Work, ask: Callable[[Sequence[Work]], Sequence[Verdicts | Abstained]]) -> Verdicts:
    """Return the verdicts on all attempts. ``ask`` answers calls of the scorer: single attempts are asked about in one each.

    Of a failed batch whose attempts are independent each is asked about alone.
    """
    singles: list[Work] = [] if isinstance(work, RewardContext) else [[item] for item in work]
    parts = [work] if scorer.scope != "item" or is_async(scorer.call) else singles
    answers = ask(parts)
    if len(parts) < len(singles) and isinstance(answers[0], Abstained) and not scorer.together:
        parts, answers = singles, ask(singles)
    pairs = zip(parts, answers, strict=True)
    rows = ((answer,) * size(part) if isinstance(answer, Abstained) else answer for part, answer in pairs)
    return tuple(chain.from_iterable(rows))


def _called(scorer: Scorer, part: Any, limit_s: float) -> Verdicts:
    answer = scorer.call(part[0] if scorer.scope == "item" else part)
    if inspect.isawaitable(answer):
        (answer,) = _on_a_loop([lambda: answer], limit_s)
    return verdicts_of(scorer, part, answer)


def _on_a_loop(calls: Sequence[Callable[[], Any]], limit_s: float) -> list[Any]:
    import asyncio  # noqa: PLC0415 - half of the time in which a worker starts

    from tfgrpo.rewarders.threads import concurrently  # noqa: PLC0415 - as above

    return asyncio.run(concurrently(calls, limit_s))


def verdicts_of(scorer: Scorer, part: Work, outcome: object) -> Verdicts:
    """Return the verdicts on what a call was about. Raise what it raised, and ``RewardError`` for an answer of another form."""
    if isinstance(outcome, BaseException):
        raise outcome
    if isinstance(part, RewardContext):
        values = _listed(outcome, size(part), "one verdict for each attempt")
        if len(values) != size(part):
            raise RewardError(f"{pluralize(len(values), 'verdict')} for {pluralize(size(part), 'attempt')}")
        return tuple(as_verdict(scorer.rewarder_id, value) for value in values)
    if scorer.scope == "batch":
        return matched(scorer.rewarder_id, part, outcome)
    return (as_verdict(scorer.rewarder_id, outcome),)


def no_score(limit_s: float) -> str:
    """Return why an attempt has no score after its limit."""
    return f"no score within {limit_s:g} s"


def explained(scorer: Scorer, item: GraderInput | None, verdict: Verdict) -> Verdict:
    """Return a bare number with its evidence: the end of an attempt's answer, and the reference if it was compared."""
    if isinstance(verdict, Abstained) or verdict.evidence:
        return verdict
    if item is None:
        return replace(verdict, evidence=f"returned {verdict.score:g}")
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    compared = scorer.needs_answer and isinstance(item.record, Mapping)
    # An integer of thousands of digits and extreme nesting have no text.
    reference = f", reference {_end(unless_it_raises('', str, item.record.get('answer')))}" if compared else ""
    return replace(verdict, evidence=f"{answer}{reference}")


def _end(text: str) -> str:
    # Answers state their result at the end.
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")


def failed(name: str, error: BaseException) -> Abstained:
    """Return the verdict for an exception, with its text in one line. A ``RewardError`` concerns the attempt alone."""
    broke = not isinstance(error, RewardError) or isinstance(error, GraderUnavailable)
    *_, (frame, _) = [(None, 0), *walk_tb(error.__traceback__)]
    ours = frame is not None and Path(frame.f_code.co_filename).resolve().parent == Path(__file__).resolve().parent
    # Code that takes no such call, rather than one that cannot score this attempt.
    rejects = (isinstance(error, TypeError) and ours) or (
        isinstance(error, TypeError | AttributeError) and "GraderInput" in str(error)
    )
    return Abstained(name, described(error) + REJECTS * rejects, broke, late=isinstance(error, RewarderTimeout))


def as_verdict(name: str, value: object) -> Verdict:
    """Read a value as the verdict on one attempt: a verdict, a number, also as text, a boolean, or an object with a reward."""
    verdict = value if isinstance(value, BaseException) else caught(_read, name, value)
    return failed(name, verdict) if isinstance(verdict, BaseException) else verdict


def _read(name: str, value: object) -> Verdict:
    reward, members = (value, {}) if isinstance(value, RewardScore | Abstained) else _reward_of(value)
    if isinstance(reward, Abstained):
        return replace(reward, rewarder_id=name, reason=" ".join(str(reward.reason).split()))
    if reward is None:
        return Abstained(name, "returned None" if value is None else "the result has no reward, or two different ones")
    evidence, kept = "", dict[str, Any]()
    if isinstance(reward, RewardScore):
        evidence, kept = str(reward.evidence), {} if reward.details is None else _json(reward.details)
        reward = reward.score
    elif members:
        evidence = next((text for key in _REASONS if isinstance(text := members.get(key), str) and text.strip()), "")
        for key, member in members.items():
            if key not in _OTHER_MEMBERS and member is not None:
                kept |= unless_it_raises({}, lambda key=key, member=member: _json({key: _plain(member)}))
    number = unless_it_raises(None, float, reward)
    if number is None or not math.isfinite(number) or abs(number) > MAX_SCORE:
        shown = unless_it_raises(f"of type {type(reward).__name__}", repr, reward)
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
        return Abstained(name, f"the reward {shown} {NO_NUMBER[number is not None]}", broke=True)
    return RewardScore(name, number, " ".join(evidence.split()), FrozenDict(kept) if kept else None)


def _reward_of(value: object) -> tuple[object, Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        scores = [value[key] for key in ("reward", "score") if key in value]
        differ = len(scores) == 2 and unless_it_raises(True, lambda: bool(scores[0] != scores[1]))
        return (None if not scores or differ else scores[0]), value
    for key in () if isinstance(value, Real | Decimal | str | bytes) else ("reward", "score"):
        reward = unless_it_raises(_NAMELESS, getattr, value, key, _NAMELESS)
        if reward is not _NAMELESS:
            return reward, {each: unless_it_raises(None, getattr, value, each, None) for each in _REASONS}
    return value, {}


def _plain(value: object) -> object:
    # Numbers of numpy and torch are no JSON.
    item = unless_it_raises(None, getattr, value, "item", None)
    return unless_it_raises(value, item) if callable(item) and getattr(value, "ndim", None) == 0 else value


def _json(details: object) -> dict[str, Any]:
    try:
        kept = frozen(details)
        canonical_json(kept)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"details of a score that are no JSON: {error}") from None
    if not isinstance(kept, FrozenDict):
        raise ValueError(f"details of a score that are a {type(details).__name__}, expected a mapping")
    return dict(kept)


def _listed(answer: object, count: int, expected: str) -> list[Any]:
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise RewardError(f"returned a {type(answer).__name__}, expected {expected}")
    # A user's generator may be endless; twice as many show that one attempt has two.
    return list(islice(answer, 2 * count + 1))


def matched(name: str, inputs: Sequence[GraderInput], answer: object, *, strict: bool = False) -> Verdicts:
    """Return the verdict on each input from the return value of a batch. Raises ``RewardError`` when it is no list.

    Results belong to the inputs with their name: ``sample_id`` and ``completion_index``, else one of the two alone. Of one
    name the first input gets the first result. Without usable names, or if ``strict`` without any, the order counts. An
    input without a result, or with two that differ, has no score.
    """
    results = _listed(answer, len(inputs), "a list of results")
    verdicts = [as_verdict(name, result) for result in results]
    wanted, returned = ([*map(_name_of, holders)] for holders in (inputs, results))
    missing = Abstained(name, NO_RESULT)
    keys: tuple[Callable[[_Name], Hashable], ...] = (lambda whole: whole, itemgetter(0), itemgetter(1))
    for key in keys[:2] if strict and any(sample is not None for sample, _ in returned) else keys:
        expected = Counter(map(key, wanted))
        named = Counter(each for each in map(key, returned) if each is not None)
        # One name for all results of several inputs is a constant of the scorer's and tells nothing.
        one_for_all = not strict and len(named) == 1 < len(expected) and named.total() == len(wanted)
        if not one_for_all and expected.keys() & named.keys():
            by_name = dict[Hashable, list[Verdict]]()
            for each, verdict in zip(returned, verdicts, strict=True):
                by_name.setdefault(key(each), []).append(verdict)
            for one, count in expected.items():
                own = by_name.get(one, [])
                if len(own) > count and len(set(own)) > 1:
                    own = [Abstained(name, "returned two different results for it")] * count
                by_name[one] = [*own[:count], *[missing] * (count - len(own))]
            return tuple(by_name[key(each)].pop(0) for each in wanted)
    if strict and any(each != _NAMELESS for each in returned):
        return (missing,) * len(inputs)
    return (*verdicts[: len(inputs)], *[missing] * (len(inputs) - len(verdicts)))


def _name_of(holder: object) -> _Name:
    read = holder.get if isinstance(holder, Mapping) else partial(unless_it_raises, None, getattr, holder)
    sample, index = (read(name, None) for name in ("sample_id", "completion_index"))
    return tuple(each if isinstance(each, str | int | float) and each != "" else None for each in (sample, index))  # type: ignore[return-value]
