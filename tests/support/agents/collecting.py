"""Policies and rewards that count what they are asked, and a collection in one call, for the tests of the collector."""

from __future__ import annotations

import asyncio
import re

import pytest

from tfgrpo.stores.errors import ShapeError
from tfgrpo.tasks.collector.collector import ExperienceCollector
from tfgrpo.tasks.collector.options import CollectorOptions


class Policy:
    """Answers with its state and the number of the answer; counts what it was asked."""

    def __init__(self, answer=None):
        self.asked = []
        self.options = []
        self._answer = answer or (lambda state, n, place: [f"{state}:{index}" for index in range(n)])

    async def generate(self, state, n, **options):
        self.asked.append((state, n))
        self.options.append(options)
        await asyncio.sleep(0)
        return self._answer(state, n, len(self.asked) - 1)


class Rewards:
    def __init__(self, answer=None):
        self.asked = []
        self._answer = answer or (lambda states, completions: [float(text.endswith("0")) for text in completions])

    async def score_batch(self, states, completions):
        self.asked.append((list(states), list(completions)))
        return self._answer(states, completions)


def options(**more):
    return CollectorOptions(**more)


async def collect(policy=None, rewards=None, states=("a", "b"), size=2, generation=None, **more):
    collector = ExperienceCollector(policy or Policy(), rewards or Rewards(), size, options(**more))
    return await collector.collect(list(states), **(generation or {}))


async def refused(*args, **more) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        await collect(*args, **more)
    return caught.value


def place_of(name):
    """A default id without the digest of its content."""
    return re.sub("-[0-9a-f]{12}", "", name)
