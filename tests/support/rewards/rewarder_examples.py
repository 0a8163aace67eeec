"""Rewarders of a user, which tests name as ``module:attr``."""

from __future__ import annotations

import re
import time
from typing import Any

from tfgrpo.rewarders.scorer import Abstained, RewardContext
from tfgrpo.stores.outcomes import RewardScore


def freeze(seconds: float) -> None:
    """Keep the interpreter lock for most of some seconds, as a regular expression with catastrophic backtracking does."""
    start, size = time.monotonic(), 18
    while time.monotonic() - start < seconds:
        size += 1
        re.match(r"(a+)+$", "a" * size + "b")


def same(output: str, answer: str) -> bool:
    return output == answer


def at_least(output: str, answer: str, least: int = 1, *, most: int = 100) -> bool:
    return least <= len(output) <= most


def lengths(context: RewardContext) -> list[int]:
    return [len(attempt.output) for attempt in context.outputs]


def verdicts(context: RewardContext) -> list[RewardScore | Abstained]:
    return [RewardScore("mine", 1.0, "fine"), Abstained("mine", "no")]


def picky(output: str, answer: str) -> int | None:
    if output == "boom":
        raise ValueError("cannot read\nthis")
    return None if output == "skip" else 1


def short_or_nan(output: str, answer: str) -> float:
    return 1.0 / len(output) if len(output) < 3 else float("nan")


def sends_text(output: str, answer: str) -> str:
    return "good"


def returns_one(context: RewardContext) -> float:
    return 1.0


async def later(output: str, answer: str) -> float:
    return 1.0


async def later_lengths(context: RewardContext) -> list[int]:
    return [len(attempt.output) for attempt in context.outputs]


async def later_picky(output: str, answer: str) -> int | None:
    if output == "boom":
        raise ValueError("cannot read")
    return None if output == "skip" else 1


def three(a: str, b: str, c: str) -> float:
    return 1.0


def catch_all(*arguments: str) -> float:
    return 1.0


class Length:
    rewarder_id = "length"

    def __init__(self, scale: float = 1.0) -> None:
        if scale <= 0:
            raise ValueError("scale must be above 0")
        self.scale = scale

    def score(self, context: RewardContext) -> list[RewardScore]:
        return [RewardScore("length", len(attempt.output) * self.scale, "length") for attempt in context.outputs]


class Loose:
    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, output: str, answer: str) -> int:
        return len(self.options)


class Anonymous:
    def score(self, context: RewardContext) -> list[RewardScore]:
        return []


class Inert:
    pass


class AsyncCall:
    async def __call__(self, output: str, answer: str) -> float:
        return 1.0


instance = Length(2.0)
number = 7
