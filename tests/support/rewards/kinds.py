"""Scorers of a user that return or raise what the prompt of the item names; every form a scorer can have."""

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tfgrpo.rewarders.graders import GradeResult
from tfgrpo.rewarders.scorer import Abstained, GraderInput, RewardContext
from tfgrpo.stores.errors import GraderUnavailable, RewardError
from tfgrpo.stores.outcomes import RewardScore

Inputs = Sequence[GraderInput]


class OutOfTime(BaseException):
    """What time limits such as those of ``func_timeout`` raise."""


class Mute(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Odd:
    """An object that no one can read."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    @property
    def reward(self) -> float:
        raise RuntimeError("no")


@dataclass(frozen=True)
class Explained:
    """A result with a reason, as DSPy has it."""

    score: float
    feedback: str


VALUES: Final[dict[str, Any]] = {
    "a float": 0.5,
    "a bool": True,
    "text of a number": "0.25",
    "a Fraction": Fraction(1, 4),
    "a Decimal": Decimal("0.5"),
    "a numpy float": np.float32(0.5),
    "below zero": -3.0,
    "a dict": {"reward": 0.5},
    "a dict with a score": {"score": np.float64(0.5), "reason": "no\nunit", "unit": "km", "at": (1, 2)},
    "two different rewards": {"score": 1, "reward": 0},
    "a dict without a reward": {"accuracy": 1},
    "an object": Explained(0.5, "no unit"),
    "a result": GradeResult("q1", 0.5),
    "None": None,
    "NaN": math.nan,
    "infinity": -math.inf,
    "huge": 2e100,
    "a huge int": 10**400,
    "a word": "good",
    "an odd object": Odd(),
    "a list": [0.5],
    "a verdict": RewardScore("other", 0.5, "two\nlines", {"votes": [1, {"by": "a"}]}),  # type: ignore[arg-type]
    "a verdict of NaN": RewardScore("other", math.nan, ""),
    "a verdict of text": RewardScore("other", "1.0", ""),  # type: ignore[arg-type]
    "a verdict of a huge int": RewardScore("other", 10**5000, ""),
    "a verdict with odd evidence": RewardScore("other", 1.0, Mute()),  # type: ignore[arg-type]
    "details that are no JSON": RewardScore("other", 0.5, "", {"seen": {1, 2}}),  # type: ignore[arg-type]
    "details with NaN": RewardScore("other", 0.5, "", {"seen": math.nan}),  # type: ignore[arg-type]
    "details that are a list": RewardScore("other", 0.5, "", [1]),  # type: ignore[arg-type]
    "lone surrogates": RewardScore("other", 0.5, "\ud800", {"\udfff": "\ud800"}),  # type: ignore[arg-type]
    "an abstention": Abstained("other", "two\nreadings"),
}
"""What a scorer may return for one attempt."""

ERRORS: Final[dict[str, BaseException]] = {
    "an error": ValueError("cannot\nread  this"),
    "a long error": ValueError("x" * 5000),
    "a mute error": Mute(),
    "a refusal": RewardError("two answers"),
    "an exit": SystemExit(3),
    "Ctrl-C of its own": KeyboardInterrupt(),
    "no exception": OutOfTime("too slow"),
    "a cancellation": asyncio.CancelledError(),
    "a closed generator": GeneratorExit(),
    "a stop": StopIteration(),
    "an unavailable service": GraderUnavailable("the service is down"),
    "a group of errors": BaseExceptionGroup("two", [SystemExit(3), ValueError("no")]),
}
"""What a scorer may raise about one attempt."""


def one(prompt: str, output: str) -> Any:
    """Return 1 for any output but ``bad``, for which the prompt names what is returned or raised."""
    if output != "bad":
        return 1.0
    if prompt in ERRORS:
        raise ERRORS[prompt]
    return VALUES[prompt]


def named(inputs: Inputs) -> list[GradeResult]:
    """Return a result for each input, which is its output as a number."""
    return [GradeResult(each.sample_id, float(each.completion), each.completion_index) for each in inputs]


def dicts(inputs: Inputs) -> list[dict[str, Any]]:
    """Return results as a service sends them."""
    return [{"sample_id": x.sample_id, "completion_index": x.completion_index, "reward": x.completion} for x in inputs]


BATCHES: Final[dict[str, Callable[[Inputs], Any]]] = {
    "numbers": lambda inputs: [float(each.completion) for each in inputs],
    "results": named,
    "reversed": lambda inputs: named(inputs)[::-1],
    "dicts": dicts,
    "an array": lambda inputs: np.array([float(each.completion) for each in inputs]),
    "a generator": lambda inputs: (float(each.completion) for each in inputs),
    "endless numbers": lambda inputs: itertools.repeat(0.5),
    "too few": lambda inputs: named(inputs)[:-1],
    "too many": lambda inputs: [*named(inputs), named(inputs)[0]],
    "two differ": lambda inputs: [*named(inputs), GradeResult(inputs[0].sample_id, 9.0, inputs[0].completion_index)],
    "names only": lambda inputs: [GradeResult(each.sample_id, float(each.completion)) for each in inputs],
    "indices only": lambda inputs: [{**each, "sample_id": ""} for each in dicts(inputs)[::-1]],
    "foreign names": lambda inputs: [GradeResult("other", float(each.completion)) for each in inputs],
    "one foreign name": lambda inputs: [*named(inputs)[1:], GradeResult("other", 9.0, 0)],
    "an unnamed one": lambda inputs: [*named(inputs)[1:], 9.0],
    "none": lambda inputs: None,
    "one number": lambda inputs: 0.5,
    "a mapping": lambda inputs: {"results": []},
    "a broken generator": lambda inputs: (1 / 0 for _ in inputs),
    "changes the record": lambda inputs: [_spoiled(each) for each in inputs],
}
"""What a scorer may return for a batch."""


def _spoiled(item: GraderInput) -> float:
    whole = item.record["answer"] == "42"
    item.record["answer"] = "spoiled"  # type: ignore[index]
    return float(item.completion) if whole else -1.0


def _batch(inputs: Inputs) -> Any:
    prompt = inputs[0].record["prompt"]
    return BATCHES[prompt](inputs) if prompt in BATCHES else [one(prompt, each.completion) for each in inputs]


class Batch:
    """A grader of batches."""

    def grade_batch(self, inputs: Inputs) -> Any:
        return _batch(inputs)


class Each(Batch):
    """A grader of batches whose rewards do not depend on each other."""

    per_item = True


class LaterBatch:
    """The same as a coroutine."""

    per_item = False

    async def grade_batch(self, inputs: Inputs) -> Any:
        await asyncio.sleep(0)
        return _batch(inputs)


class LaterEach(LaterBatch):
    per_item = True


class PromisedBatch:
    """A plain method that returns a coroutine."""

    def grade_batch(self, inputs: Inputs) -> Any:
        return LaterBatch().grade_batch(inputs)


def item(item: GraderInput) -> Any:
    """Score one attempt."""
    return one(item.record["prompt"], item.completion)


def function(output: str, prompt: str) -> Any:
    return one(prompt, output)


async def later_function(output: str, prompt: str) -> Any:
    await asyncio.sleep(0)
    return one(prompt, output)


def promised_function(output: str, prompt: str) -> Any:
    return later_function(output, prompt)


def group(context: RewardContext) -> Any:
    """Score a group."""
    return [one(context.prompt, each.output) for each in context.outputs]


class Group:
    """A rewarder of groups."""

    rewarder_id = "mine"

    def score(self, context: RewardContext) -> Any:
        return group(context)


class LaterGroup:
    rewarder_id = "mine"

    async def score(self, context: RewardContext) -> Any:
        await asyncio.sleep(0)
        return group(context)


class LoopGroup(LaterGroup):
    """A rewarder that waits for the run's model."""

    asks_model = True
