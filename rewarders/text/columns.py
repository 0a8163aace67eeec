"""Read the references of a dataset: what kind they are, all together, and the notation of their numbers and dates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import stated_answer
from tfgrpo.rewarders.text.choices import SEVERAL_LETTERS
from tfgrpo.rewarders.text.lexer import DecimalMark
from tfgrpo.rewarders.text.moments import SLASHED, DateOrder
from tfgrpo.rewarders.text.numbers import reference_number
from tfgrpo.rewarders.text.references import JsonReference, is_formula
from tfgrpo.rewarders.text.spelling import plain
from tfgrpo.stores.text import pluralize

ReferenceKind: TypeAlias = Literal[
    "numbers", "options", "labels", "codes", "formulas", "JSON", "long texts", "texts", "mixed"
]

_COMMA: Final = re.compile(
    r"(?<![\w.,])(?:0,\d+|\d+,(?:\d{1,2}|\d{4,})|[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+|\.\d{3}))(?![\w.,]*\d)"
)
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)+(?:-[a-z]\w*)?", re.IGNORECASE)
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

    kind: ReferenceKind
    total: int
    """References that are not empty."""
    decimal: DecimalMark = "."
    labels: tuple[str, ...] = ()
    """The distinct labels, most frequent first."""
    dates: DateOrder = ""
    """What comes first in dates such as ``03/04/2024``."""

    def __str__(self) -> str:
        count = pluralize(self.total, "reference")
        comma = " with decimal commas" if self.decimal == "," else ""
        if self.kind == "labels":
            names = ", ".join(self.labels[:6]) + (", …" if len(self.labels) > 6 else "")
            return f"{count} with {len(self.labels)} distinct values, read as labels: {names}"
        order = f", dates with the {self.dates} first" if self.dates else ""
        return f"{count} read {'each by its form' if self.kind == 'mixed' else f'as {self.kind}'}{comma}{order}"


def read_column(references: Sequence[str], most_labels: int = _MOST_LABELS) -> ColumnReading:
    """Return how references are to be read.

    A kind is chosen only if every reference has it. ``codes`` are digits with leading zeros, which are no numbers; ``mixed``
    ones are read each by its form. ``most_labels``: how many distinct values may be labels.
    """
    texts = [text.strip() for text in references if text.strip()]
    total = len(texts)
    decimal = decimal_mark(texts)
    if decimal == "." and _are_codes(texts):
        return ColumnReading("codes", total)
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
    few = len(frequent) <= most_labels and len(frequent) * _EACH <= total
    if texts and short and (few or truth):
        return ColumnReading("labels", total, labels=tuple(frequent))
    return ColumnReading(_kind(texts), total, decimal, dates=_order_of_dates(texts))


def _order_of_dates(texts: Sequence[str]) -> DateOrder:
    """Return what comes first in the slashed dates of a column: the month, where some other part can only be a day."""
    dates = [each for each in map(SLASHED.fullmatch, texts) if each and "." not in each[0]]
    days = [any(int(each[part]) > 12 for each in dates) for part in ("one", "two")]
    return "" if days[0] == days[1] else "day" if days[0] else "month"


def _kind(texts: Sequence[str]) -> ReferenceKind:
    if texts and all(JsonReference.of(text) is not None for text in texts):
        return "JSON"
    if texts and sum(map(is_formula, texts)) * 2 > len(texts):
        return "formulas"
    if texts and median(len(text.split()) for text in texts) > _LONG:
        return "long texts"
    numbers = sum(reference_number(text) is not None for text in texts)
    return "texts" if not numbers and not any(map(is_formula, texts)) else "mixed"


def _are_codes(texts: Sequence[str]) -> bool:
    """Return whether what looks like numbers is none: ``007``, or ``3.10`` beside ``3.1`` or ``3.1.4``."""
    if all(re.fullmatch(r"\d+", text) for text in texts):
        return any(re.fullmatch(r"0\d+", text) for text in texts)
    numbers = [*map(reference_number, {*texts})] if all(map(_VERSION.fullmatch, texts)) else []
    return 0 < len({number.value for number in numbers if number is not None}) < len(numbers)


def decimal_mark(references: Sequence[str]) -> DecimalMark:
    """Return the decimal mark of a column: a comma where some number can only have one, and none can only have a point."""
    texts = [_BRACKETED.sub(" ", text) for text in references]
    commas, thousands = (sum(pattern.search(text) is not None for text in texts) for pattern in (_COMMA, _THOUSANDS))
    behind = [each.partition(".")[2] for each in texts if re.fullmatch(r"-?\d{1,3}(?:\.\d{3})?", each)]
    if len(behind) == len(texts) and "" in behind and any(each.endswith("0") for each in behind):
        return ","  # 850 beside 12.000: those are no decimals
    lists = any(map(_SPACED_LIST.search, texts))
    return "," if commas > thousands and not lists and not any(map(_POINT.search, texts)) else "."
