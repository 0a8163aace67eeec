"""Where in a text is a mistake? Turns a position into line, column and an excerpt with a caret; finds no mistakes itself."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import Final

from tfgrpo.stores.errors import PowlError

MAX_CHARS: Final = 1_000_000
"""Characters of the longest text that is read."""

_AROUND: Final = 60
"""Characters shown to the left and to the right of the caret."""


def error_at(text: str, position: int, reason: str) -> PowlError:
    """The error for a mistake at ``position``: line and column count from 1, a column is a character."""
    breaks = _line_breaks(text)
    number = bisect_left(breaks, position)
    begin = breaks[number - 1] + 1 if number else 0
    end = breaks[number] if number < len(breaks) else len(text)
    left = max(begin, position - _AROUND)
    right = min(end, position + _AROUND)
    before = "…" if left > begin else ""
    after = "…" if right < end else ""
    shown = _one_line(f"{before}{text[left:right]}{after}")
    caret = " " * (len(before) + position - left) + "^"
    return PowlError(reason, line=number + 1, column=position - begin + 1, excerpt=f"{shown}\n{caret}")


@lru_cache(maxsize=1)
def _line_breaks(text: str) -> tuple[int, ...]:
    """Kept for the text at hand: prose with thousands of broken expressions has thousands of errors."""
    return tuple(found.start() for found in re.finditer("\n", text))


def checked_text(text: object) -> str:
    """The text itself. Raises ``PowlError`` when there is none, when it is blank or too long, and for no text at all."""
    if text is not None and not isinstance(text, str):
        raise PowlError(f"expected a text, received {type(text).__name__}")
    if text is None or not text.strip():
        raise PowlError("there is no text")
    if len(text) > MAX_CHARS:
        raise PowlError(f"the text has {len(text):,} characters; at most {MAX_CHARS:,} are read")
    return text


def shortened(text: str) -> str:
    """A word of the input as it stands in a message."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def _one_line(text: str) -> str:
    if text.isprintable():
        return text.rstrip()
    return "".join(character if character.isprintable() else " " for character in text).rstrip()
