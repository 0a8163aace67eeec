"""Call one scorer in this thread and report each verdict as it comes; whatever its code raises becomes a verdict."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from tfgrpo.rewarders.faults import is_ctrl_c
from tfgrpo.rewarders.matching import NO_RESULT, as_verdict, failed, group_verdicts, matched
from tfgrpo.rewarders.scorer import Abstained, GraderInput, RewardContext, Scorer, Verdict
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

Work: TypeAlias = Sequence[GraderInput] | RewardContext
"""What a scorer is asked about: inputs, or for scope ``group`` one group."""
Report: TypeAlias = Callable[[int, Any], None]
"""Gets the index of an attempt and its verdict."""
T = TypeVar("T")
_SHOWN: Final = 60


def size(work: Work) -> int:
    """Return the number of attempts."""
    return len(work.outputs) if isinstance(work, RewardContext) else len(work)


def perform(scorer: Scorer, work: Work, report: Report, begin: Callable[[], None] = lambda: None) -> None:
    """Score all attempts; ``begin`` is called before each call of the scorer's code, to start its clocks.

    An error of the scorer's code costs the attempts of that call. Of a failed batch whose attempts are independent each is
    asked about alone. Ctrl-C passes through.
    """
    if isinstance(work, RewardContext):
        begin()
        verdicts = _caught(lambda: group_verdicts(scorer.rewarder_id, _awaited(scorer.call(work)), len(work.outputs)))
        for index in range(len(work.outputs)):
            failure = isinstance(verdicts, BaseException)
            report(index, failed(scorer.rewarder_id, verdicts) if failure else _with_evidence(verdicts[index]))
    elif scorer.scope == "batch":
        begin()
        _perform_batch(scorer, work, report, begin)
    elif is_async(scorer.call):
        begin()
        asyncio.run(_perform_concurrently(scorer, work, report))
    else:
        for index, item in enumerate(work):
            begin()
            value = _caught(lambda item=item: _awaited(scorer.call(item)))  # type: ignore[misc]
            report(index, explained(scorer, item, _read(scorer, value)))


def _perform_batch(scorer: Scorer, work: Sequence[GraderInput], report: Report, begin: Callable[[], None]) -> None:
    name = scorer.rewarder_id
    verdicts = _caught(lambda: matched(name, work, _awaited(scorer.call(work))))
    if not isinstance(verdicts, BaseException):
        for index, verdict in enumerate(verdicts):
            report(index, explained(scorer, work[index], verdict))
    elif len(work) == 1 or not scorer.per_item or isinstance(verdicts, GraderUnavailable | RewarderTimeout):
        for index in range(len(work)):
            report(index, failed(name, verdicts))
    else:
        for index, item in enumerate(work):
            begin()
            _perform_batch(scorer, [item], lambda _, verdict, index=index: report(index, verdict), begin)  # type: ignore[misc]


async def _perform_concurrently(scorer: Scorer, work: Sequence[GraderInput], report: Report) -> None:
    async def one(index: int, item: GraderInput) -> None:
        try:
            value = await scorer.call(item)
        except BaseException as error:  # user code: its failure is data
            if is_ctrl_c(error):
                raise
            value = error
        report(index, explained(scorer, item, _read(scorer, value)))

    await asyncio.gather(*(one(index, item) for index, item in enumerate(work)))


def _read(scorer: Scorer, value: Any) -> Verdict:
    """Read a returned value; the class of a user's object may raise anything."""
    verdict: Verdict | BaseException = _caught(lambda: as_verdict(scorer.rewarder_id, value))
    return failed(scorer.rewarder_id, verdict) if isinstance(verdict, BaseException) else verdict


def _with_evidence(verdict: Verdict) -> Verdict:
    if isinstance(verdict, Abstained) or verdict.evidence:
        return verdict
    return replace(verdict, evidence=f"returned {verdict.score:g}")


def explained(scorer: Scorer, item: GraderInput, verdict: Verdict) -> Verdict:
    """Return a bare number with its evidence: the end of the answer, and the reference if it was compared."""
    if isinstance(verdict, Abstained) or verdict.evidence:
        return verdict
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    compared = scorer.needs_answer and isinstance(item.record, Mapping)
    reference = f", reference {_end(str(item.record.get('answer')))}" if compared else ""
    return replace(verdict, evidence=f"{scorer.rewarder_id} {verdict.score:g}; {answer}{reference}")


def _end(text: str) -> str:
    """Quote the end of a text in one line: answers state their result there."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")


def _awaited(answer: Any) -> Any:
    """Return what a coroutine returns, on an event loop for this call alone; anything else as it is."""
    if not inspect.isawaitable(answer):
        return answer

    async def wait(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    return asyncio.run(wait(answer))


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


def missing(scorer: Scorer) -> Abstained:
    """Return the verdict on an attempt that a scorer left out."""
    return Abstained(scorer.rewarder_id, NO_RESULT)
