"""Check a text before it is parsed, and report errors in it with line, column and excerpt."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import Final

from tfgrpo.stores.errors import PowlError

MAX_CHARS: Final = 1_000_000
"""Characters of the longest accepted text."""
_EXCERPT: Final = 60
"""Characters shown to the left and to the right of the caret."""
_SPACE: Final = re.compile(r"\s*")


def checked_text(text: object) -> str:
    """Return the text. Raises ``PowlError`` when it is no text, blank or too long."""
    if text is not None and not isinstance(text, str):
        raise PowlError(f"expected a text, received {type(text).__name__}")
    if text is None or not text.strip():
        raise PowlError("there is no text")
    if len(text) > MAX_CHARS:
        raise PowlError(f"the text has {len(text):,} characters; at most {MAX_CHARS:,} are read")
    return text


def skip_space(text: str, position: int) -> int:
    """Return the first position from here on that is not white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def error_at(text: str, position: int, reason: str) -> PowlError:
    """Return the error for a mistake at ``position``: line and column count from 1, a column is a character."""
    breaks = _line_breaks(text)
    number = bisect_left(breaks, position)
    begin = breaks[number - 1] + 1 if number else 0
    end = breaks[number] if number < len(breaks) else len(text)
    left = max(begin, position - _EXCERPT)
    right = min(end, position + _EXCERPT)
    before = "…" if left > begin else ""
    after = "…" if right < end else ""
    excerpt = "".join(each if each.isprintable() else " " for each in f"{before}{text[left:right]}{after}").rstrip()
    caret = " " * (len(before) + position - left) + "^"
    return PowlError(reason, line=number + 1, column=position - begin + 1, excerpt=f"{excerpt}\n{caret}")


@lru_cache(maxsize=1)
def _line_breaks(text: str) -> tuple[int, ...]:
    # Cached for the current text: prose with thousands of broken expressions has thousands of errors.
    return tuple(found.start() for found in re.finditer("\n", text))


def shortened(text: str) -> str:
    """Return a word of the input, quoted for a message."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
