"""How does a plain Python function become a rewarder? Adapts a callable; never imports or configures one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
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
            return self._whole(context)
        said = [self._one(attempt.output, context.answer) for attempt in context.outputs]
        failures = [error for error in said if isinstance(error, Exception)]
        if failures and len(failures) == len(said):
            raise RewardError(f"{self.rewarder_id}: {_described(failures[0])}") from failures[0]
        return [self._verdict(value) for value in said]

    def _whole(self, context: RewardContext) -> Sequence[Verdict]:
        said = self.function(context)
        if isinstance(said, str | bytes) or not isinstance(said, Iterable):
            raise RewardError(
                f"{self.rewarder_id}: returned {type(said).__name__}, expected one value for each attempt"
            )
        return [self._verdict(value) for value in said]

    def _one(self, output: str, answer: str) -> object:
        try:
            return self.function(output, answer)
        except Exception as error:  # noqa: BLE001  becomes a verdict: one bad output must not cost its siblings theirs
            return error

    def _verdict(self, said: object) -> Verdict:
        if isinstance(said, Exception):
            return Abstained(self.rewarder_id, f"raised {_described(said)}")
        if said is None:
            return Abstained(self.rewarder_id, "returned None")
        if isinstance(said, RewardScore | Abstained):
            return replace(said, rewarder_id=self.rewarder_id)
        if isinstance(said, Real | np.bool_):
            return RewardScore(self.rewarder_id, float(said), f"{self.rewarder_id} returned {said}")
        raise RewardError(f"{self.rewarder_id}: returned {type(said).__name__}, expected a number, a bool or None")


def adapt(name: str, function: Callable[..., Any]) -> CallableRewarder:
    """The function as a rewarder called ``name``.

    Raises ``ValueError`` when it is asynchronous or has neither one nor two parameters without a default.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise ValueError("an asynchronous function; a rewarder function must be synchronous")
    signature = inspect.signature(function)
    required = [parameter for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    kinds = [parameter.kind for parameter in required]
    if all(kind in _POSITIONAL for kind in kinds) and len(kinds) in _CALLINGS:
        return CallableRewarder(name, function, _CALLINGS[len(kinds)])
    raise ValueError(f"a function of {signature}; a rewarder function takes (output, answer) or (context)")


def _described(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
