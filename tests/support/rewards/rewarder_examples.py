"""Rewarders of a user, which tests name as ``module:attr``."""

from __future__ import annotations

import re
import time


def freeze(seconds: float) -> None:
    """Keep the interpreter lock for most of some seconds, as a regular expression with catastrophic backtracking does."""
    start, size = time.monotonic(), 18
    while time.monotonic() - start < seconds:
        size += 1
        re.match(r"(a+)+$", "a" * size + "b")


def short_or_nan(output: str, answer: str) -> float:
    return 1.0 / len(output) if len(output) < 3 else float("nan")
