"""Adapt a Python function, asynchronous or not, as a rewarder; import and configure none."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any, Final

import numpy as np

from tfgrpo.rewarders.base import Abstained, Range, RewardContext, Verdict, declared_range
from tfgrpo.rewarders.faults import described, each_alone, is_cancellation, is_ctrl_c
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.errors import OptionError, RewardError
from tfgrpo.stores.outcomes import RewardScore

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
SIGNATURES: Final = "(output, answer), or (context) with that name; further parameters need a default"


@dataclass(frozen=True, slots=True)
class _Adapted:
    rewarder_id: str
    function: Callable[..., Any]
    by_context: bool
    """Called with ``(context)`` once for the group; else with ``(output, answer)`` once for each attempt."""

    @property
    def score_range(self) -> Range:
        """Range that the function declares as an attribute."""
        return declared_range(self.function)


class CallableRewarder(_Adapted):
    """A function as a rewarder. Its value for an attempt is a number, a bool, None to abstain, or a verdict."""

    __slots__ = ()

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Return the verdicts of the function; an abstention where it raised or returned no verdict."""
        if self.by_context:
            return _verdicts(self.rewarder_id, self.function(context))
        return _verdicts(self.rewarder_id, [self._one(attempt.output, context.answer) for attempt in context.outputs])

    def _one(self, output: str, answer: str) -> object:
        try:
            return self.function(output, answer)
        except BaseException as error:  # one bad output must not cost its siblings their verdicts
            if is_ctrl_c(error):
                raise
            return error


class AsyncCallableRewarder(_Adapted):
    """An asynchronous function as a rewarder, under the rules of ``CallableRewarder``; attempts run concurrently."""

    __slots__ = ()

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Return the verdicts, as ``CallableRewarder.score`` does."""
        if self.by_context:
            return _verdicts(self.rewarder_id, await self.function(context))
        asked = (self._one(attempt.output, context.answer) for attempt in context.outputs)
        return _verdicts(self.rewarder_id, await asyncio.gather(*asked))

    async def _one(self, output: str, answer: str) -> object:
        try:
            return await self.function(output, answer)
        except BaseException as error:  # as above
            if is_ctrl_c(error) or is_cancellation(error):
                raise
            return error


def adapt(name: str, function: Callable[..., Any]) -> CallableRewarder | AsyncCallableRewarder:
    """Return the function as a rewarder called ``name``.

    Raises ``ValueError`` unless its parameters without a default are two, or one named ``context``; ``(answer, output)`` are
    swapped.
    """
    signature = inspect.signature(function)
    required = [parameter for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    names = [parameter.name for parameter in required]
    by_context = names == ["context"]
    if names == ["answer", "output"]:  # called by position, it would compare the right way round only by luck
        raise OptionError("a function of (answer, output)", SIGNATURES)
    if not all(parameter.kind in _POSITIONAL for parameter in required) or not (by_context or len(required) == 2):
        raise OptionError(f"a function of {signature}", SIGNATURES)
    for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - looked at, not called
        if inspect.isasyncgenfunction(call) or (inspect.isgeneratorfunction(call) and not by_context):
            raise OptionError("a function that yields", "one that returns the score of an attempt")
    kind = AsyncCallableRewarder if is_async(function) else CallableRewarder
    return kind(name, function, by_context)


def _verdicts(name: str, values: object) -> Sequence[Verdict]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise RewardError(f"{name}: returned {type(values).__name__}, expected one value for each attempt")
    return each_alone(values, partial(_verdict, name), lambda reason: Abstained(name, reason, broke=True))


def _verdict(name: str, value: object) -> Verdict:
    if isinstance(value, BaseException):
        raise RewardError(f"raised {described(value)}")
    if value is None:
        return Abstained(name, "returned None")
    if isinstance(value, RewardScore | Abstained):
        return replace(value, rewarder_id=name)
    if isinstance(value, Real | np.bool_ | Decimal):
        return RewardScore(name, float(value), f"{name} returned {value}")
    raise RewardError(f"returned {type(value).__name__}, expected a number, a bool or None")
