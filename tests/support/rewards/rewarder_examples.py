"""Rewarders as a user would write them, named as ``rewarder_examples:...`` by the tests."""

from __future__ import annotations

import re
import time

from tfgrpo.rewarders.base import Abstained
from tfgrpo.stores.outcomes import RewardScore


def freeze(seconds):
    """Hold the interpreter lock again and again for a while, as a regular expression run wild does."""
    start, size = time.monotonic(), 18
    while time.monotonic() - start < seconds:
        size += 1
        re.match(r"(a+)+$", "a" * size + "b")


def same(output, answer):
    return output == answer


def at_least(output, answer, least=1, *, most=100):
    return least <= len(output) <= most


def lengths(context):
    return [len(attempt.output) for attempt in context.outputs]


def verdicts(context):
    return [RewardScore("mine", 1.0, "fine"), Abstained("mine", "no")]


def picky(output, answer):
    if output == "boom":
        raise ValueError("cannot read\nthis")
    return None if output == "skip" else 1


def short_or_nan(output, answer):
    return 1.0 / len(output) if len(output) < 3 else float("nan")


def sends_text(output, answer):
    return "good"


def returns_one(context):
    return 1.0


async def later(output, answer):
    return 1.0


async def later_lengths(context):
    return [len(attempt.output) for attempt in context.outputs]


async def later_picky(output, answer):
    if output == "boom":
        raise ValueError("cannot read")
    return None if output == "skip" else 1


def three(a, b, c):
    return 1.0


def catch_all(*parts):
    return 1.0


class Length:
    rewarder_id = "length"

    def __init__(self, scale=1.0):
        if scale <= 0:
            raise ValueError("scale must be above 0")
        self.scale = scale

    def score(self, context):
        return [RewardScore("length", len(attempt.output) * self.scale, "length") for attempt in context.outputs]


class Loose:
    def __init__(self, **options):
        self.options = options

    def __call__(self, output, answer):
        return len(self.options)


class Anonymous:
    def score(self, context):
        return []


class Inert:
    pass


class AsyncCall:
    async def __call__(self, output, answer):
        return 1.0


instance = Length(2.0)
number = 7
