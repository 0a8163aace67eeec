"""Collect groups in one call, from a policy and a reward model that record their requests."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tfgrpo.stores.errors import ShapeError
from tfgrpo.tasks.collector import Collected, CollectorOptions, ExperienceCollector


class Policy:
    """Answers with the state and the index of the completion, or by a function of state, number and call."""

    def __init__(self, answer: Callable[[Any, int, int], Any] | None = None) -> None:
        self.asked: list[tuple[Any, int]] = []
        self.options: list[dict[str, Any]] = []
        self._answer = answer or (lambda state, n, call: [f"{state}:{index}" for index in range(n)])

    async def generate(self, state: Any, n: int, **options: Any) -> Any:
        self.asked.append((state, n))
        self.options.append(options)
        await asyncio.sleep(0)
        return self._answer(state, n, len(self.asked) - 1)


class Rewards:
    """Scores 1.0 for the first completion of each state, or by a function of states and completions."""

    def __init__(self, answer: Callable[[Any, Any], Any] | None = None) -> None:
        self.asked: list[tuple[list[Any], list[Any]]] = []
        self._answer = answer or (lambda states, completions: [float(text.endswith("0")) for text in completions])

    async def score_batch(self, states: Sequence[Any], completions: Sequence[Any]) -> Any:
        self.asked.append((list(states), list(completions)))
        return self._answer(states, completions)


def options(**more: Any) -> CollectorOptions:
    return CollectorOptions(**more)


async def collect(
    policy: Any = None,
    rewards: Any = None,
    states: Sequence[Any] = ("a", "b"),
    size: int = 2,
    generation: dict[str, Any] | None = None,
    **more: Any,
) -> Collected:
    collector = ExperienceCollector(policy or Policy(), rewards or Rewards(), size, options(**more))
    return await collector.collect(list(states), **(generation or {}))


async def refused(*args: Any, **more: Any) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        await collect(*args, **more)
    return caught.value


def without_digest(name: str) -> str:
    """Return a default id, or a text with ids, without the digests of their content."""
    return re.sub("-[0-9a-f]{12}", "", name)
