"""Rewarders of a user, which tests name as ``module:attr``.

They are here, not beside their tests: a worker process imports this file, and that of a test would cost it a second.
"""

import ctypes
import time
from typing import Any, Final

from tfgrpo.stores.outcomes import RewardScore

EXAMPLES: Final = __name__
KEY: Final = "sk-test-0123456789abcdef"


def freeze(seconds: float) -> None:
    """Keep the interpreter lock for some seconds, as a regular expression with catastrophic backtracking does."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def nothing_right(output: str, answer: str) -> float:
    """Read no answer."""
    return 0.0


def everything_right(output: str, answer: str) -> float:
    return 1.0


def breaks(output: str, answer: str) -> float:
    raise ValueError("no idea")


def raises(output: str, answer: str) -> float:
    raise KeyError(output[:1])


def out_of_range(output: str, answer: str) -> float:
    """Score on another scale than 0 to 1."""
    return 7.0 if answer in output else -3.0


def too_slow(output: str, answer: str) -> float:
    time.sleep(0.3)
    return 1.0


def leaking(output: str, answer: str) -> float:
    """Fail with the key in the message."""
    raise ConnectionError(f"no {output}, no {answer} for {KEY}")


def lengths(output: str, answer: str) -> float:
    return float(len(output) + len(answer))


def hesitant(output: str, answer: str) -> float:
    """Score after 0.2 s."""
    time.sleep(0.2)
    return 0.5


class NoGrader:
    """Returns what no grader returns."""

    def grade_batch(self, inputs: Any) -> Any:
        return "good"


CALLS: list[str] = []
"""Outputs that ``noticed`` scored in this process."""


def noticed(output: str, answer: str) -> float:
    """Score, leaving a trace in the process where it runs."""
    CALLS.append(output)
    return 0.5


class Signed:
    """A rewarder for which the lowest reward is minus one."""

    rewarder_id = "signed"
    score_range = (-1.0, 1.0)

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def score(self, context: Any) -> list[RewardScore]:
        return [RewardScore("signed", self.reward, "as it is") for _ in context.outputs]


lowest, middle = Signed(-1.0), Signed(0.0)
