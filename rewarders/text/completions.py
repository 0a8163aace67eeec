"""Split a completion into reasoning and final answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion, with its parts if its reasoning block is well placed."""

    raw: str
    """As generated, not stripped."""
    reasoning: str | None
    """Stripped text of the block; None when empty or absent."""
    answer: str | None
    """Stripped text after the block; None when empty or without a block."""


def parse_completion(text: str) -> Completion:
    """Split at the first ``<think>`` and the first ``</think>``, which are literal: no attributes, no other case.

    Without both, or with the first close before the first open, there is neither reasoning nor answer. Text before the
    block is ignored, and later tags belong to the answer.
    """
    opened = text.find(OPEN)
    closed = text.find(CLOSE)
    if opened < 0 or closed < opened:
        return Completion(text, None, None)
    reasoning = text[opened + len(OPEN) : closed].strip()
    answer = text[closed + len(CLOSE) :].strip()
    return Completion(text, reasoning or None, answer or None)
