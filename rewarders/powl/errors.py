"""Where in a text is a mistake? Turns a position into line, column and an excerpt with a caret; finds no mistakes itself."""

from __future__ import annotations

from typing import Final

from stores.errors import PowlError

MAX_CHARS: Final = 1_000_000
"""Characters of the longest text that is read."""

_AROUND: Final = 60
"""Characters shown to the left and to the right of the caret."""


def error_at(text: str, position: int, reason: str) -> PowlError:
    """The error for a mistake at ``position``: line and column count from 1, a column is a character."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : end if end >= 0 else len(text)]
    column = position - begin
    left = max(0, column - _AROUND)
    right = min(len(line), column + _AROUND)
    before = "…" if left else ""
    after = "…" if right < len(line) else ""
    shown = _one_line(f"{before}{line[left:right]}{after}")
    caret = " " * (len(before) + column - left) + "^"
    return PowlError(reason, line=text.count("\n", 0, position) + 1, column=column + 1, excerpt=f"{shown}\n{caret}")


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
    return "".join(character if character.isprintable() else " " for character in text).rstrip()
