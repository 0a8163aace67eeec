"""Which number does a text give as its answer? Joins where the answer stands with how a number is read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from tfgrpo.rewarders.text.answers import stated_answer
from tfgrpo.rewarders.text.number_text import Number, last_number, only_number, stated_number

_PLAIN: Final = re.compile("[+-]?[0-9]{1,18}")
_MARK: Final = "####"
"""Before the answer, in references of the GSM8K form."""


def answered_number(text: str) -> Number | None:
    r"""The number behind the last ``Answer:`` line or in the last ``\boxed{}``, else the last number; None without one.

    A text that is nothing but a plain integer, as most references are, is read without looking for anything else.
    """
    plain = _plain_integer(text)
    if plain is not None:
        return plain
    stated = stated_answer(text)
    return last_number(stated.text) if stated.place == "text" else stated_number(stated.text)


def reference_number(text: str) -> Number | None:
    """The number that a reference is; None when it is no single number.

    What is behind the last ``####``, else the last ``Answer:`` line, else the only box, else the text has to be one.
    """
    plain = _plain_integer(text)
    if plain is not None:
        return plain
    marked = text.rpartition(_MARK)[2]
    stated = stated_answer(marked)
    return None if stated.place == "box" and marked.count("boxed") > 1 else only_number(stated.text)


def _plain_integer(text: str) -> Number | None:
    bare = text.strip()
    return Number(Fraction(int(bare)), percent=False, text=bare) if _PLAIN.fullmatch(bare) else None
