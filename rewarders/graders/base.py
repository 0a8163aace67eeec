"""Graders as they are written for the data server and elsewhere: a protocol, functions as graders, and access to records."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, overload, runtime_checkable

from tfgrpo.rewarders.scorer import GradeResult, GraderInput, ItemScorer, field_of
from tfgrpo.rewarders.text.answers import without_reasoning
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.frozen_json import json_of

GradedBatch: TypeAlias = Sequence[GradeResult | float] | Awaitable[Sequence[GradeResult | float]]
_BLOCK: Final = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*\n(?P<code>.*?)"
    r"(?:^[ \t]*(?P=fence)|(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block, also one whose end is missing."""


@runtime_checkable
class Grader(Protocol):
    """Grades a batch: one result for each input, in the order of the inputs.

    A batch for which it raises is ungraded as a whole. With a class attribute ``per_item = True`` it declares that no
    reward depends on the other items of the batch; then every item of a failed batch is graded alone.
    """

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> GradedBatch:
        """Grade every input. A plain or a coroutine method; may be called from several threads at once."""
        ...


def metadata(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata; None when it, or the metadata, is absent or no object."""
    values = field_of(item, "metadata")
    return values.get(name) if isinstance(values, Mapping) else None


def described(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata, else of the record itself; None when neither has it."""
    value = metadata(item, name)
    return field_of(item, name) if value is None else value


def reason_of(read: Callable[[], Any]) -> str | None:
    """Return why a record cannot be used, which reading it raises as ``RewardError``; None if it can."""
    try:
        read()
    except RewardError as error:
        return str(error)
    return None


def final_answer(item: GraderInput) -> str | None:
    """Return the final answer; None when there is none, or when it is white space."""
    return item.answer if item.answer and not item.answer.isspace() else None


def answer_or_completion(item: GraderInput, *, require_answer: bool) -> str | None:
    """Return the final answer, else the whole completion unless ``require_answer``."""
    answer = final_answer(item)
    return answer if answer is not None or require_answer else item.completion


def column(item: GraderInput, name: str) -> Any:
    """Return what ``described`` does; a list or an object that was written as text is read."""
    value = described(item, name)
    written = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
    return value if not written or (read := json_of(value)) is None else read


def program(item: GraderInput, languages: Collection[str], holding: str = "") -> str | None:
    """Return the code of an output: its last fenced block, else all of it; None for reasoning without an end.

    Blocks in one of the languages count before those without a language, these before others. Of several the last one that
    has ``holding`` counts.
    """
    text = without_reasoning(item.completion)
    if text is None:
        return None
    blocks = [(block["language"].lower(), block["code"]) for block in _BLOCK.finditer(text)]
    found = [code for language, code in blocks if language in languages]
    found = found or [code for language, code in blocks if not language] or [code for _, code in blocks]
    last = found[-1] if found else text.strip("`\n")
    return next((code for code in reversed(found) if holding in code), last)


@dataclass(frozen=True, slots=True)
class FunctionGrader(ItemScorer):
    """A function of one item as a grader, which can still be called as the function."""

    function: Callable[[GraderInput], float]

    def __call__(self, item: GraderInput) -> float:
        """Call the function."""
        return self.function(item)

    score_one = __call__


@dataclass(frozen=True, slots=True)
class AsyncFunctionGrader:
    """A coroutine function of one item as a grader; the items of a batch run concurrently."""

    function: Callable[[GraderInput], Awaitable[float]]

    async def __call__(self, item: GraderInput) -> float:
        """Call the function."""
        return await self.function(item)

    score_one = __call__

    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """Call the function for all inputs at once; its first error passes through."""
        rewards = await asyncio.gather(*(self.function(item) for item in inputs))
        return [
            GradeResult(item.sample_id, reward, item.completion_index)
            for item, reward in zip(inputs, rewards, strict=True)
        ]


@overload
def grader(function: Callable[[GraderInput], float]) -> FunctionGrader: ...
@overload
def grader(function: Callable[[GraderInput], Awaitable[float]]) -> AsyncFunctionGrader: ...
def grader(function: Callable[[GraderInput], Any]) -> FunctionGrader | AsyncFunctionGrader:
    """Make a grader of a function from one ``GraderInput`` to its reward, plain or ``async``; a decorator.

    Raises ``TypeError`` when the function cannot be called with exactly one argument.
    """
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a grader function takes one argument, the GraderInput: {error}") from error
    return AsyncFunctionGrader(function) if inspect.iscoroutinefunction(function) else FunctionGrader(function)
