"""How does a plain Python function, asynchronous or not, become a rewarder? Adapts it; never imports or configures one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from rewarders.base import Abstained, RewardContext, Verdict
from stores.errors import RewardError
from stores.outcomes import RewardScore

Calling: TypeAlias = Literal["output and answer", "context"]

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CALLINGS: Final[Mapping[int, Calling]] = MappingProxyType({1: "context", 2: "output and answer"})
"""By the number of parameters without a default."""


@dataclass(frozen=True, slots=True)
class CallableRewarder:
    """A function as a rewarder.

    It is called with ``(output, answer)`` once for each attempt, or with ``(context)`` once for the group, and says for
    each attempt a number, True or False, None for "cannot tell", or a verdict of its own.
    """

    rewarder_id: str
    function: Callable[..., Any]
    calling: Calling

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Verdicts of the function.

        When a per-attempt function raises on some attempts only, it abstains on those; when it raises on all of them,
        ``RewardError`` says so. A value that is no verdict raises ``RewardError``.
        """
        if self.calling == "context":
            return _whole(self.rewarder_id, self.function(context))
        return _singly(self.rewarder_id, [self._one(attempt.output, context.answer) for attempt in context.outputs])

    def _one(self, output: str, answer: str) -> object:
        try:
            return self.function(output, answer)
        except Exception as error:  # noqa: BLE001  becomes a verdict: one bad output must not cost its siblings theirs
            return error


@dataclass(frozen=True, slots=True)
class AsyncCallableRewarder:
    """An asynchronous function as a rewarder, under the rules of ``CallableRewarder``; the attempts are asked at once."""

    rewarder_id: str
    function: Callable[..., Awaitable[Any]]
    calling: Calling

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Verdicts of the function. Raises ``RewardError`` as ``CallableRewarder.score`` does."""
        if self.calling == "context":
            return _whole(self.rewarder_id, await self.function(context))
        asked = (self._one(attempt.output, context.answer) for attempt in context.outputs)
        return _singly(self.rewarder_id, await asyncio.gather(*asked))

    async def _one(self, output: str, answer: str) -> object:
        try:
            return await self.function(output, answer)
        except Exception as error:  # noqa: BLE001  as above
            return error


def adapt(name: str, function: Callable[..., Any]) -> CallableRewarder | AsyncCallableRewarder:
    """The function as a rewarder called ``name``.

    Raises ``ValueError`` when it has neither one nor two parameters without a default.
    """
    signature = inspect.signature(function)
    required = [parameter for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    kinds = [parameter.kind for parameter in required]
    if not all(kind in _POSITIONAL for kind in kinds) or len(kinds) not in _CALLINGS:
        raise ValueError(f"a function of {signature}; a rewarder function takes (output, answer) or (context)")
    kind = AsyncCallableRewarder if _is_async(function) else CallableRewarder
    return kind(name, function, _CALLINGS[len(kinds)])


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  of an object with an asynchronous __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _whole(name: str, said: object) -> Sequence[Verdict]:
    if isinstance(said, str | bytes) or not isinstance(said, Iterable):
        raise RewardError(f"{name}: returned {type(said).__name__}, expected one value for each attempt")
    return [_verdict(name, value) for value in said]


def _singly(name: str, said: Sequence[object]) -> Sequence[Verdict]:
    failures = [error for error in said if isinstance(error, Exception)]
    if failures and len(failures) == len(said):
        raise RewardError(f"{name}: {_described(failures[0])}") from failures[0]
    return [_verdict(name, value) for value in said]


def _verdict(name: str, said: object) -> Verdict:
    if isinstance(said, Exception):
        return Abstained(name, f"raised {_described(said)}", broke=True)
    if said is None:
        return Abstained(name, "returned None")
    if isinstance(said, RewardScore | Abstained):
        return replace(said, rewarder_id=name)
    if isinstance(said, Real | np.bool_):
        return RewardScore(name, float(said), f"{name} returned {said}")
    raise RewardError(f"{name}: returned {type(said).__name__}, expected a number, a bool or None")


def _described(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
