"""Which part of a completion is reasoning, and which is the final answer? Cuts the text; judges and repairs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion, and what it holds when its reasoning block is well placed."""

    raw: str
    """As generated, not stripped."""
    reasoning: str | None
    """Stripped text of the block; None when it is empty, or when there is no block."""
    answer: str | None
    """Stripped text behind the block; None when it is empty, or when there is no block."""


def parse_completion(text: str) -> Completion:
    """Cut at the first ``<think>`` and the first ``</think>``, which are literal: no attributes, no other case.

    Without both, or with the first close before the first open, there is neither reasoning nor answer: an answer without
    a reasoning block is not guessed at. Text before the block is ignored, and later tags belong to the answer.
    """
    opened = text.find(OPEN)
    closed = text.find(CLOSE)
    if opened < 0 or closed < opened:
        return Completion(text, None, None)
    reasoning = text[opened + len(OPEN) : closed].strip()
    answer = text[closed + len(CLOSE) :].strip()
    return Completion(text, reasoning or None, answer or None)
