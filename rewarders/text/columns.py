"""Decide how the references of a dataset are to be read, by all of them: as numbers, labels, options, codes, or one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import stated_answer
from tfgrpo.rewarders.text.numbers import DecimalMark, reference_number
from tfgrpo.rewarders.text.references import JsonReference, is_formula
from tfgrpo.rewarders.text.words import SEVERAL_LETTERS, plain
from tfgrpo.stores.text import pluralize

Kind: TypeAlias = Literal["numbers", "options", "labels", "codes", "formulas", "JSON", "long texts", "texts", "mixed"]

_COMMA: Final = re.compile(r"(?<![\w.,])(?:0,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3})+,\d+)(?![\w.,]*\d)")
_POINT: Final = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}|0?\.\d+|\d+\.(?:\d{1,2}|\d{4,}))(?![\w.,]*\d)"
)
_THOUSANDS: Final = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w.,]*\d)")
_BRACKETED: Final = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
"""A pair, a list or an interval, whose commas are none of numbers."""
_SPACED_LIST: Final = re.compile(r"\d,\s+\d")
_MOST_LABELS: Final = 20
_LONGEST_LABEL: Final = 6
"""Words."""
_EACH: Final = 3
"""Items that a label has on average, at least: fewer are names that happen to recur."""
_LONG: Final = 12
"""Words of a usual reference beyond which nobody repeats it word for word."""


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How the references of a dataset are to be read."""

    kind: Kind
    total: int
    """References that are not empty."""
    decimal: DecimalMark = "."
    labels: tuple[str, ...] = ()
    """The distinct labels, most frequent first."""

    def __str__(self) -> str:
        count = pluralize(self.total, "reference")
        comma = " with decimal commas" if self.decimal == "," else ""
        if self.kind == "labels":
            names = ", ".join(self.labels[:6]) + (", …" if len(self.labels) > 6 else "")
            return f"{count} with {len(self.labels)} distinct values, read as labels: {names}"
        return f"{count} read as {self.kind}{comma}"


def read_column(references: Sequence[str]) -> ColumnReading:
    """Return how references are to be read.

    A kind is chosen only if every reference has it. ``codes`` are digits with leading zeros, which are no numbers; ``mixed``
    ones are read each by its form.
    """
    texts = [text.strip() for text in references if text.strip()]
    total = len(texts)
    if any(re.fullmatch(r"0\d+", text) for text in texts) and all(re.fullmatch(r"\d+", text) for text in texts):
        return ColumnReading("codes", total)
    decimal = decimal_mark(texts)
    # Prose that mentions one number is none: what a reference states, in a mark or at its end, is short.
    stated = (read.text if (read := stated_answer(text)) else text for text in texts)
    is_prose = texts and median(len(text.split()) for text in stated) > _LONG
    if texts and not is_prose and all(reference_number(text, decimal) is not None for text in texts):
        return ColumnReading("numbers", total, decimal)
    if texts and all(re.fullmatch(r"\(?[A-J]\)?\.?", text) for text in texts):
        return ColumnReading("options", total)
    if texts and all(SEVERAL_LETTERS.fullmatch(text) or re.fullmatch("[A-J]", text) for text in texts):
        return ColumnReading("mixed", total)
    spellings = {plain(text): text for text in reversed(texts)}
    frequent = [spellings[each] for each, _ in Counter(map(plain, texts)).most_common()]
    short = all(len(label.split()) <= _LONGEST_LABEL and "\n" not in label for label in frequent)
    truth = {*spellings} <= {"yes", "no"} or {*spellings} <= {"true", "false"}
    few = len(frequent) <= _MOST_LABELS and len(frequent) * _EACH <= total
    if texts and short and (few or truth):
        return ColumnReading("labels", total, labels=tuple(frequent))
    return ColumnReading(_kind(texts), total, decimal)


def _kind(texts: Sequence[str]) -> Kind:
    if texts and all(JsonReference.of(text) is not None for text in texts):
        return "JSON"
    if texts and sum(map(is_formula, texts)) * 2 > len(texts):
        return "formulas"
    if texts and median(len(text.split()) for text in texts) > _LONG:
        return "long texts"
    numbers = sum(reference_number(text) is not None for text in texts)
    return "texts" if not numbers and not any(map(is_formula, texts)) else "mixed"


def decimal_mark(references: Sequence[str]) -> DecimalMark:
    """Return the decimal mark of a column: a comma where some number can only have one, and none can only have a point."""
    texts = [_BRACKETED.sub(" ", text) for text in references]
    commas, thousands = (sum(pattern.search(text) is not None for text in texts) for pattern in (_COMMA, _THOUSANDS))
    lists = any(map(_SPACED_LIST.search, texts))
    return "," if commas > thousands and not lists and not any(map(_POINT.search, texts)) else "."
