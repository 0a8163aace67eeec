"""Call one scorer in this thread and report each verdict as it comes; whatever its code raises becomes a verdict."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from tfgrpo.rewarders.faults import is_cancellation, is_ctrl_c
from tfgrpo.rewarders.matching import as_verdict, failed, group_verdicts, matched, unless_it_raises
from tfgrpo.rewarders.scorer import Abstained, GraderInput, RewardContext, Scorer, Verdict, Verdicts
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

Work: TypeAlias = Sequence[GraderInput] | RewardContext
"""What a scorer is asked about: inputs, or for scope ``group`` one group."""
Report: TypeAlias = Callable[[int, Any], None]
"""Gets the index of an attempt and its verdict."""
T = TypeVar("T")
_SHOWN: Final = 60
_SLACK_S: Final = 0.5
"""How much later than its limit a coroutine is given up, where something else is to happen at the limit."""


def size(work: Work) -> int:
    """Return the number of attempts."""
    return len(work.outputs) if isinstance(work, RewardContext) else len(work)


def perform(
    scorer: Scorer, work: Work, report: Report, begin: Callable[[], None] = lambda: None, limit_s: float = math.inf
) -> None:
    """Score all attempts; ``begin`` is called before each call of the scorer's code, to start its clocks.

    An error of the scorer's code costs the attempts of that call. Of a failed batch whose attempts are independent each is
    asked about alone. A verdict that comes later than ``limit_s`` after its call began never counts, whoever was kept from
    looking meanwhile. Ctrl-C passes through.
    """
    begun = 0.0

    def start() -> None:
        nonlocal begun
        begin()
        begun = time.monotonic()

    def tell(index: int, verdict: Verdict) -> None:
        report(index, verdict if time.monotonic() - begun <= limit_s else late(scorer, limit_s))

    if isinstance(work, RewardContext) or scorer.scope == "batch":
        _perform_at_once(scorer, work, tell, start, limit_s)
    elif is_async(scorer.call):
        start()
        asyncio.run(_perform_concurrently(scorer, work, tell, limit_s))
    else:
        for index, item in enumerate(work):
            start()
            value = _caught(lambda item=item: _awaited(scorer.call(item), limit_s))  # type: ignore[misc]
            tell(index, explained(scorer, item, as_verdict(scorer.rewarder_id, value)))


def _perform_at_once(scorer: Scorer, work: Work, tell: Report, start: Callable[[], None], limit_s: float) -> None:
    """Score a group or a batch in one call."""
    name, count = scorer.rewarder_id, size(work)

    def read(answer: Any) -> Verdicts:
        if isinstance(work, RewardContext):
            return group_verdicts(name, answer, count)
        return matched(name, work, answer)

    start()
    verdicts = _caught(lambda: read(_awaited(scorer.call(work), limit_s)))
    if isinstance(verdicts, BaseException):
        whole = scorer.together or count == 1 or isinstance(verdicts, GraderUnavailable | RewarderTimeout)
        if not (whole or isinstance(work, RewardContext)):
            for index, item in enumerate(work):
                _perform_at_once(scorer, [item], lambda _, verdict, at=index: tell(at, verdict), start, limit_s)  # type: ignore[misc]
            return
        verdicts = (failed(name, verdicts),) * count
    for index, verdict in enumerate(verdicts):
        tell(index, explained(scorer, None if isinstance(work, RewardContext) else work[index], verdict))


async def _perform_concurrently(scorer: Scorer, work: Sequence[GraderInput], tell: Report, limit_s: float) -> None:
    async def one(index: int, item: GraderInput) -> None:
        value = await outcome_of(lambda: scorer.call(item))
        tell(index, explained(scorer, item, as_verdict(scorer.rewarder_id, value)))

    tasks = [asyncio.ensure_future(one(index, item)) for index, item in enumerate(work)]
    _, pending = await asyncio.wait(tasks, timeout=limit_s)
    for index, task in enumerate(tasks):
        if task in pending:
            task.cancel()
            tell(index, late(scorer, limit_s))


async def outcome_of(call: Callable[[], Any]) -> Any:
    """Return what a call returns or raises, awaited if it can be; the cancellation of the caller passes through.

    Raised into an event loop, what is no ``Exception`` would end the loop.
    """
    try:
        answer = call()
        return await answer if inspect.isawaitable(answer) else answer
    except BaseException as error:  # user code: its failure is data
        if is_ctrl_c(error) or is_cancellation(error):
            raise
        return error


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
    return replace(verdict, evidence=f"{scorer.rewarder_id} {verdict.score:g}; {answer}{reference}")


def _end(text: str) -> str:
    """Quote the end of a text in one line: answers state their result there."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")


def _awaited(answer: Any, limit_s: float) -> Any:
    """Return what a coroutine returns, on an event loop for this call alone; anything else as it is.

    The caller has left at the limit. Soon after it the coroutine is cancelled, so that the thread of the call ends, too.
    """
    if not inspect.isawaitable(answer):
        return answer

    async def wait() -> Any:
        task = asyncio.ensure_future(outcome_of(lambda: answer))
        await asyncio.wait([task], timeout=limit_s + _SLACK_S)
        return task.result() if task.done() else RewarderTimeout(_no_score(limit_s))

    outcome = asyncio.run(wait())
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _caught(call: Callable[[], Any]) -> Any:
    """Return the result of user code, or what it raised."""
    try:
        return call()
    except BaseException as error:  # user code may raise what is no ``Exception``
        if is_ctrl_c(error):
            raise
        return error


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await everything concurrently. When one raises, the others still finish first: their answers are paid for."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    # Nothing is left out here; the condition is for the type checker.
    return [result for result in done if not isinstance(result, BaseException)]


def late(scorer: Scorer, limit_s: float) -> Abstained:
    """Return the verdict on an attempt whose score did not come in time."""
    return Abstained(scorer.rewarder_id, _no_score(limit_s), late=True)


def _no_score(limit_s: float) -> str:
    return f"no score within {limit_s:g} s"


def patience(scorer: Scorer, limit_s: float) -> float:
    """Return how long to wait for a call: a little longer than the limit where that is kept for each attempt within it."""
    return limit_s + (_SLACK_S if scorer.scope == "item" and is_async(scorer.call) else 0.0)
