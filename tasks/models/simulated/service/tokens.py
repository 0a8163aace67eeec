"""How many tokens is a text? About one for four characters, rounded up; never more than its UTF-8 bytes."""

from __future__ import annotations

_CHARS = 4


def count_tokens(text: str) -> int:
    """Tokens of a text; none for the empty text."""
    return -(-len(text) // _CHARS)


def cut(text: str, limit: int) -> str:
    """The first ``limit`` tokens of a text."""
    return text[: limit * _CHARS]


def pieces(text: str) -> list[str]:
    """The text token by token."""
    return [text[start : start + _CHARS] for start in range(0, len(text), _CHARS)]
