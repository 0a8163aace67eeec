"""How is a number of things said? With the noun in the right number, in every message for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 lesson``, ``2 lessons``, ``1,200 lessons``, for nouns that form their plural with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
