"""Tell what a judge states in a reply from what it quotes of the output that it judges.

A statement is outside quotation marks, fences and block quotes, behind words of a closed list, and not hedged behind. Prose
that is neither clearly the one nor the other is taken for a quotation: it is cheaper to ask again than to be misled.
"""

from __future__ import annotations

import re
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HELD: Final = "\x00"
"""Holds the place of a JSON object in the text around it."""

_WHOLE: Final = re.compile(r"\s*(?:```[^\n`]*\n([^`]*)```|[\"\u201c`]([^\"\u201c\u201d`]*)[\"\u201d`])\s*")
_FENCED: Final = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED: Final = re.compile(
    r"^[ \t]*>.*$|\"[^\"]*(?:\"|\Z)|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]*(?:\u00bb|\Z)|`[^`\n]*`", re.MULTILINE
)
_SENTENCE: Final = re.compile(r"(?<![:\s])\s*\n|[.!?;](?=\s)")
"""Ends a sentence; a line break behind a colon does not."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_LEAD_CHARS: Final = 160
_JUDGE: Final = _words(
    "assessment deserves earns evaluation gets i judgement judgment me merits my rating receives verdict"
)
_OUTPUT: Final = _words("answer output reply response")
"""Words that need one of ``_JUDGE`` beside them: ``the output: score: 1`` quotes, ``I give the output a score of 1`` states."""
_LINKING: Final = _words(
    "a an and as assign award based be below better conclusion d evaluate final following for format gave give given "
    "grade hence here in is it json judge let ll object of on overall rate requested result rubric s so summary sure "
    "that the therefore think this thus to total up will would"
)
_KNOWN: Final = _JUDGE | _OUTPUT | _LINKING
_AFTER: Final = re.compile(
    r"[*_`\"'\u201d)\]]*(?:\s*\Z|[ \t]*\n|\s*[.!;](?!\w)|\s*[(\u2013\u2014](?!\s*\d)|\s+-\s(?!\s*\d)"
    r"|,?\s+(?:of\s+course|because|since|as|overall|points?|output|response)\b)"
)
"""What may follow a statement: ``1 to 10``, ``1 - 0.7`` and ``1 would be too much`` state something else."""


def is_stated(text: str, label: re.Pattern[str]) -> bool:
    """Whether the judge itself states what ``label`` matches, or gives a JSON object, anywhere in its reply."""
    own = _own_words(text, label)
    objects = (found for found in re.finditer(HELD, own) if _is_led(own, found))
    return any(objects) or any(_is_led(own, said) and _AFTER.match(own, said.end()) for said in label.finditer(own))


def _own_words(text: str, label: re.Pattern[str]) -> str:
    """The text without its quotations of what ``label`` matches; a reply that is quoted as a whole is no quotation."""
    whole = _WHOLE.fullmatch(text)
    if whole:
        return whole[1] or whole[2] or ""
    text = _FENCED.sub(lambda fence: fence[2] if HELD in fence[2] else "", text)
    return _QUOTED.sub(lambda span: "" if HELD in span[0] or label.search(span[0]) else span[0], text)


def _is_led(own: str, said: re.Match[str]) -> bool:
    lead = _SENTENCE.split(own[max(0, said.start() - _LEAD_CHARS) : said.start()])[-1]
    words = set(_WORD.findall(lead.lower()))
    return words <= _KNOWN and (not words & _OUTPUT or bool(words & _JUDGE))
