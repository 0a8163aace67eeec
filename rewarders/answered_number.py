"""Which number does a text give as its answer? Joins where the answer stands with how a number is read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from rewarders.answers import stated_answer
from rewarders.number_text import Number, last_number, stated_number

_PLAIN: Final = re.compile("[+-]?[0-9]{1,18}")


def answered_number(text: str) -> Number | None:
    r"""The number behind the last ``Answer:`` line or in the last ``\boxed{}``, else the last number; None without one.

    A text that is nothing but a plain integer, as most references are, is read without looking for anything else.
    """
    bare = text.strip()
    if _PLAIN.fullmatch(bare):
        return Number(Fraction(int(bare)), percent=False, text=bare)
    stated = stated_answer(text)
    return last_number(stated.text) if stated.place == "text" else stated_number(stated.text)
