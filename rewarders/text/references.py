"""Compare an output with one reference of a form: a number, a list, JSON, a formula or a date, and read any reference.

What has two readings is no score: ``compare`` raises ``RewardError``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import (
    VOCABULARY,
    Stated,
    bare_reference,
    json_in,
    load_json,
    stated_answer,
    without_reasoning,
    written_value,
)
from tfgrpo.rewarders.text.choices import SEVERAL_LETTERS, label_reference
from tfgrpo.rewarders.text.numbers import (
    REMARK,
    TO_BASE,
    UNITS,
    DecimalMark,
    Number,
    answered_number,
    format_value,
    number_of,
    numbers_agree,
    only_number,
    ordinal,
    reference_number,
)
from tfgrpo.rewarders.text.words import (
    LATEX_SPACE,
    ORDINAL,
    QUOTES,
    RELATED,
    SHOWN,
    UNCLEAR,
    Compared,
    Reference,
    TextReference,
    is_denied,
    nothing,
    parts_of,
    plain,
    same_text,
    shown,
)
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.text import pluralize


@dataclass(frozen=True, slots=True)
class ExactReference(Reference):
    """Text that is equal in every character, except outer white space."""

    normalized: bool = False
    """Compare the ``plain`` forms instead."""

    def _compare(self, stated: Stated) -> Compared:
        read: Callable[[str], str] = plain if self.normalized else str.strip
        return Compared(any(read(each) == read(self.text) for each in stated.candidates), shown(stated.text))


@dataclass(frozen=True, slots=True)
class NumberReference(Reference):
    """A number, compared by value; two readings where another notation would make an answer the reference."""

    number: Number
    decimal: DecimalMark = "."
    tolerance: Fraction = Fraction(0)

    @property
    def shown(self) -> str:
        """The number as written, and its value if that looks different."""
        return shown_number(self.number)

    def _compare(self, stated: Stated) -> Compared:
        dates = _dates(plain(stated.text)) if re.fullmatch(r"\d{4}", self.text.strip()) else []
        unit, factor = TO_BASE.get(self.number.unit, ("", Fraction(1)))
        spans = _durations(plain(stated.text)) if unit == "second" and len(re.findall(r"\d+", stated.text)) > 1 else []
        year = len(dates) == 1 and {each[0] for each in dates[0]} == {self.number.value}
        if year or (len(spans) == 1 and spans[0] == {(self.number.value * factor,)}):
            return Compared(True, shown(stated.text))
        number = number_of(stated, self.decimal)
        if number is not None and re.match(r"[-+\u2212]", self.text) and _FALL.search(stated.text):
            number = replace(number, value=-abs(number.value))
        if re.fullmatch(r"\d{4}", self.text) and RELATED.search(stated.text.casefold().partition(self.text)[0]):
            raise RewardError(f"{shown(stated.text)} is related to a year")
        if number is not None and {number.unit, self.number.unit} == {"", "bc"} and number.value == self.number.value:
            raise RewardError(f"{shown(stated.text)} and the reference {shown(self.text)} may be of different eras")
        if number is not None and self._agrees(number):
            known = [bool(each.unit or each.percent) for each in (number, self.number)]
            if known[0] != known[1] and _COUNTED.fullmatch(self.text if known[0] else stated.text):
                raise RewardError(f"{shown_number(number)} and {self.shown} may be of different things")
            made_of = [_MADE_OF.fullmatch(plain(each)) for each in (stated.text, self.text)]
            if made_of[0] and made_of[1] and made_of[0][1] != made_of[1][1]:
                return Compared(False, shown(stated.text))
            return Compared(True, shown_number(number))
        ordinals = {ordinal(each) for each in ORDINAL.findall(plain(stated.text))} - {None}
        same = ordinals == {ordinal(self.text)} and not UNCLEAR.search(stated.text)
        if same or (number is None and any(same_text(each, self.text) for each in stated.candidates)):
            return Compared(True, shown(stated.text))
        before, sign, _ = stated.text.replace(r"\approx", "\u2248").rpartition("\u2248")
        exact = answered_number(f"Answer: {before}", self.decimal) if sign else None
        if exact is not None and self._agrees(exact):
            return Compared(True, shown_number(exact))
        self._refuse_second_reading(stated, number)
        answered = f"{shown(stated.text)} (no number)" if number is None else shown_number(number)
        return Compared(False, answered, states=number is not None)

    def _is_alone(self, _text: str, /) -> bool:
        return True  # a number next to others is none

    def _refuse_second_reading(self, stated: Stated, number: Number | None) -> None:
        if "," in stated.whole or (self.decimal == "," and "." in stated.whole):
            other = None
            with suppress(RewardError):  # in the other notation the answer may be several numbers
                other = number_of(stated, "." if self.decimal == "," else ",")
            if other is not None and (number is None or other.value != number.value) and self._agrees(other):
                raise RewardError(
                    f"{shown(other.text)} may be {format_value(other.value)}: point and comma have two readings"
                )
        may_be = reference_number(self.text, "," if self.decimal == "." else ".")
        if number is not None and may_be is not None and numbers_agree(number, may_be, self.tolerance):
            raise RewardError(f"the reference {shown(self.text)} may be {format_value(may_be.value)}")
        share = _SHARE.fullmatch(number.text) if number is not None else None
        if share is not None and Fraction(int(share[1])) == self.number.value:
            raise RewardError(f"{shown(share[0])} may be {share[1]} of {share[2]}")
        for one, another in ((number, self.number), (self.number, number)):
            if one is not None and another is not None and one.scale > 1 and one.value / one.scale == another.value:
                raise RewardError(f"{shown(one.text)} may be {format_value(another.value)}, in another unit")

    def _agrees(self, number: Number) -> bool:
        # 0.1 + 0.2 is 0.30000000000000004 in a file that a program wrote.
        noise = abs(self.number.value) / 10**14 if len(self.number.text) > _DIGITS_OF_FLOAT else 0
        return numbers_agree(number, self.number, self.tolerance + noise)


_COUNTED: Final = re.compile(r"\W*[\d.,]+ (?!dollar|buck|percent|degree|thousand|[mb]illion)[A-Za-z]{3,}\W*")
_ROOTS: Final = re.compile(r"\b[a-z]\w{0,3} ?= ?([^=,]{1,30}?)\$?,? or \$?[a-z]\w{0,3} ?= ?(.{1,60})", re.IGNORECASE)
"""Between the solutions of an equation: ``x = 2 or x = 3``."""
_MADE_OF: Final = re.compile(r"[\d.,]+ ?% (?:of )?([a-z]{3,})")
_FALL: Final = re.compile(r"\b(?:down|fell|fall\w*|drop\w*|de(?:creas|clin)\w*|los[est]\w*)\b", re.IGNORECASE)
"""What makes a number negative beside a reference with a sign."""
_ANGLES: Final = re.compile(r"\\langle\b(.*?)\\rangle\b")
_FACTOR: Final = re.compile(r"[\d)]\s*$|[\w)]\s*[*/\u00b7\u00d7]\s*$|[-+\u2212]$")
"""Before a list that is multiplied: ``2(3, 4)``, ``-(3, 4)``, but neither ``**(3, 4)**`` nor ``- (3, 4)``."""
_DIGITS_OF_FLOAT: Final = 16
_SHARE: Final = re.compile(r"(\d+) ?/ ?(3|4|5|7|10|100)")
"""Points of a scale, or a fraction."""


def shown_number(number: Number) -> str:
    """Return a number as written, and its value if that looks different."""
    value = format_value(number.value) + ("%" if number.percent else "")
    return shown(number.text) if number.text == value else f"{shown(number.text)} ({value[:SHOWN]})"


@dataclass(frozen=True, slots=True)
class ListReference(Reference):
    """Several numbers: ``(3, 4)``, ``1, 2, 3``; two readings for the same ones in another order, where none is stated."""

    numbers: tuple[Number, ...]
    decimal: DecimalMark = "."

    @classmethod
    def of(cls, text: str, decimal: DecimalMark = ".") -> ListReference | None:
        """Return the list that a text is; None when it is none."""
        parts = _list_parts(re.sub(r"(?<=\d),(?=\d)", ".", text) if decimal == "," else text)
        known = tuple(number for part in parts if (number := only_number(part, decimal)) is not None)
        return cls(text, known, decimal) if len(parts) > 1 and len(known) == len(parts) else None

    def _compare(self, stated: Stated) -> Compared:
        if roots := _ROOTS.search(stated.text):
            stated = replace(stated, text=f"{roots[1]}, {roots[2]}")
        if UNCLEAR.search(stated.text):
            raise RewardError(f"{shown(stated.text)} denies a list, or has several")
        _refuse_relation(stated.text, self.text)
        found = next((each for each in map(self._read, parts_of(stated)) if each is not None), None)
        if found is None:
            return Compared(same_text(self.text, stated.text), shown(stated.text))
        values, wanted = ([number.value for number in each] for each in (found.numbers, self.numbers))
        if self.text.lstrip("$ \\").startswith("{"):  # a set
            return Compared(sorted(values) == sorted(wanted), shown(found.text))
        if values != wanted and sorted(values) == sorted(wanted) and "(" not in self.text and "[" not in self.text:
            raise RewardError(f"{shown(found.text)} has the numbers of the reference in another order")
        edges = [re.sub(r"[^()\[\]]", "", each) for each in (found.text, self.text)]
        interval = {*edges[1]} in ({"[", ")"}, {"(", "]"}) or ("[" in edges[0] and len(wanted) == 2)
        return Compared(values == wanted and not (interval and edges[0] != edges[1] != ""), shown(found.text))

    def _read(self, text: str) -> ListReference | None:
        text = REMARK.sub("", text)
        inside = [*re.finditer(r"[(\[{⟨][^()\[\]{}⟨⟩]*\d[^()\[\]{}⟨⟩]*[)\]}⟩]", _ANGLES.sub(r"(\1)", text))]
        lists = [each for each in inside if ListReference.of(each[0], self.decimal) is not None]
        if len(lists) > 1 or (lists and _FACTOR.search(lists[0].string[: lists[0].start()])):
            raise RewardError(f"{shown(text)} has several lists, or a multiple of one")
        spaced = re.sub(r"(?<=\d) (?=-?\d)", ", ", text) if re.fullmatch(r"-?\d+(?: -?\d+)+", text) else text
        return ListReference.of((lists[0][0] if lists else spaced), self.decimal)


def _refuse_relation(answer: str, reference: str) -> None:
    if re.match(r"\W*[(\[].*[)\]]\W*$", reference) and re.search(
        r"[<>\u2264\u2265]|\\[lg](?:eq?|t)\b", answer.lstrip("> ")
    ):
        raise RewardError(f"{shown(answer)} is an inequality, which may be the interval {shown(reference)}")


def _list_parts(text: str) -> list[str]:
    inside = LATEX_SPACE.sub(" ", text.translate(QUOTES)).strip(" .\n*`")
    inside = re.sub(r"^[-*|\u2022]\s+|\s*\|$|^(?:[A-Za-z]+\s+)*[A-Za-z]+,\s+(?=[-\d])", "", inside)
    inside = re.sub(r"^[A-Za-z\s=,']*(?:[:=\u2192>]|\b(?:is|are)\b|'s\b)\s*", "", inside.rstrip("!"))
    inside = re.sub(r"^\\?[(\[{]|\\?[)\]}]$", "", inside)
    parts = [part.strip() for part in re.split(r"[,;]\s+|;|\s+and\s+|,(?!\d{3}(?!\d))", inside)]
    return [part for part in parts if part] if all(re.search(r"\d|^$", part) for part in parts) else []


@dataclass(frozen=True, slots=True)
class JsonReference(Reference):
    """A JSON object or list, compared by value."""

    value: Any

    @classmethod
    def of(cls, text: str) -> JsonReference | None:
        """Return the JSON value that a text is, if it is an object, or a list of more than numbers."""
        value = written_value(text)
        is_list = isinstance(value, list) and any(not isinstance(each, int | float) for each in value)
        return cls(text, value) if isinstance(value, dict) or is_list else None

    def _compare(self, stated: Stated) -> Compared:
        return self.compare(stated.whole)

    def compare(self, output: str) -> Compared:
        """Compare the JSON of an output, however long it is. Raises ``RewardError`` for several different values."""
        rest = without_reasoning(output) or ""
        if not rest.strip():
            return nothing(output)
        try:
            value = self._value_in(rest)
        except ValueError as error:
            stated = stated_answer(rest) if isinstance(self.value, list) else None
            if stated is not None and TextReference(", ".join(map(str, self.value))).states(stated):
                return Compared(True, shown(stated.text))
            if stated is not None and any(TextReference(str(each)).states(stated) for each in self.value):
                raise RewardError(
                    f"{shown(stated.text)} is one of {self.shown}, of which all may be asked for"
                ) from None
            return Compared(False, f"{shown(rest.strip())} ({error})")
        places = [rest.find(sign) for sign in "{[" if sign in rest]
        if places and is_denied(rest.lower(), min(places), max(rest.rfind("}"), rest.rfind("]")) + 1):
            return Compared(False, shown(rest.strip()))
        if places and _FACTOR.search(rest[: min(places)]):
            raise RewardError(f"{shown(rest.strip())} has a multiple of a value")
        same = value == self.value and _truths(value) == _truths(self.value)
        one, other = (
            sorted(map(canonical_json, each)) if isinstance(each, list) else None for each in (value, self.value)
        )
        if not same and one is not None and one == other:
            raise RewardError(f"{shown(json.dumps(value))} has the values of the reference in another order")
        return Compared(same, shown(json.dumps(value, ensure_ascii=False)))

    def _value_in(self, rest: str) -> Any:
        """Return the value that is marked or is the last line, else the only one. Raises as ``json_in`` does."""
        stated = stated_answer(rest)
        inside = re.search(r"[{\[].*[}\]]", rest, re.DOTALL)
        value = written_value(inside[0]) if inside else None
        if value is None and stated is not None and stated.source != "object":
            with suppress(ValueError, RewardError):
                value = (json_in if stated.is_marked else load_json)(bare_reference(stated.text))
        value = value if isinstance(value, type(self.value)) else json_in(rest)
        if isinstance(value, dict) and [*value] == ["answer"] and self.value != value:
            value = value["answer"]
        return written_value(value) if isinstance(value, str) else value


def _truths(value: Any) -> int:
    """Return how many truth values a JSON value has: to Python, true is 1."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) + sum(map(_truths, inner))


@dataclass(frozen=True, slots=True)
class FormulaReference(Reference):
    r"""A formula such as ``(x+1)^2``. Equal when written the same, or by ``equal``, which knows algebra."""

    equal: Callable[[str, str], bool] | None = None
    """Whether two formulas in LaTeX are equal; None when no library for it is installed."""

    def _compare(self, stated: Stated) -> Compared:
        answer = stated.text.strip(_AROUND_FORMULA) if stated.is_marked else _formula_in(stated)
        answer = _RAISED.sub(_in_latex, answer).replace("**", "^")
        for written, latex in _IN_LATEX if "\\" not in answer else ():
            answer = re.sub(written, latex, answer)
        answer = re.sub(r"\\sqrt\s*(\d+)", r"\\sqrt{\1}", re.sub(r"^\\text\{([^{}]*)\}$", r"\1", answer))
        if UNCLEAR.search(stated.text) and not UNCLEAR.search(self.text):
            raise RewardError(f"{shown(stated.text)} denies a formula, or has several")
        _refuse_relation(answer, self.text)
        same = plain(answer) == plain(self.text) and not re.search(r"[)\]]\W*$", self.text)
        if same or _formula(self.text) in (_formula(answer), _formula(stated.text)):
            return Compared(True, shown(answer))
        if not re.search(r"[\d\\^]|^\W*[A-Za-z]\W*$", answer):
            return Compared(False, f"{shown(stated.text)} (no formula)")
        if self.equal is None:
            raise RewardError(f"{shown(answer)} is written otherwise than the formula {self.shown}; {NEEDS_MATH}")
        return Compared(self.equal(answer, self.text), shown(answer))


_IN_LATEX: Final = (
    (r"\u221a(\d+|\w)|(?:\u221a|\bsqrt ?)\(([^()]*)\)", r"\\sqrt{\1\2}"),
    (r"\bpi\b|\u03c0", r"\\pi "),
    (r"\^\(([^()]*)\)", r"^{\1}"),
    (r"\b(ln|log|sin|cos|tan)\b", r"\\\1"),
)
"""Formulas as they are typed, in LaTeX."""


def _in_latex(raised: re.Match[str]) -> str:
    return f"{'_' if raised[1] else '^'}{{{unicodedata.normalize('NFKC', raised[0]).translate(QUOTES)}}}"


def _formula_in(stated: Stated) -> str:
    """Return the formula of a text without a mark: between dollars or in bold, else the last between words of a line."""
    for part in parts_of(stated):
        written = _WRITTEN.findall(part)
        if written:
            return "".join(written[-1]).strip(_AROUND_FORMULA)
        between_words = [each for each in _PROSE.split(part) if re.search(r"\d|\\[a-z]", each)]
        if between_words:
            return str(between_words[-1]).strip(_AROUND_FORMULA + "!")
    return stated.text


_WRITTEN: Final = re.compile(r"\$\$?([^$\n]+)\$|\*\*([^*\n]+)\*\*|\\\(([^\n]+?)\\\)")
_PROSE: Final = re.compile(
    r"(?:(?<![\\{A-Za-z])[A-Za-z'’]*[A-Za-z]{3,}(?![A-Za-z({])|\b(?:is|it's|it|so|be|as)\b|[:\u2192\u21d2]|=>)",
    re.IGNORECASE,
)
_RAISED: Final = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+|([\u2080-\u2089]+)")
_AROUND_FORMULA: Final = " \t\n*_`.:,;\u2705\u2713\u2714"
NEEDS_MATH: Final = 'comparing formulas needs math-verify: pip install "tfgrpo[math]"'


def _formula(text: str) -> str:
    text = re.sub(r"\\[dtc]frac", r"\\frac", LATEX_SPACE.sub("", text.translate(QUOTES)))
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"_\{?(\d+)\}?", r"\1", re.sub(r"\^\{([^{}]*)\}", r"^\1", text))
    return re.sub(r"\s+|\\text\{[^{}]*\}$|\.$", "", re.sub(r"^[A-Za-z]'?(?:\([a-z]\))?=", "", text.replace(" ", "")))


def is_formula(text: str) -> bool:
    r"""Return whether a reference is a formula: LaTeX, or an expression of variables, operators and digits."""
    bare = bare_reference(text).strip(" $.")
    return not re.match(r"\^|[A-Za-z]:\\", bare) and bool(
        re.search(r"\\[a-zA-Z]{2,}|\^|_\{", bare)
        or (
            re.fullmatch(r"[\w\s()+*/=.-]*[\w)]\s*[+*=<>]\s*[\w(][\w\s()+*/=.-]*", bare)
            and not re.search(r"[A-Za-z]{3}", bare)
        )
    )


_MONTHS: Final = {name: at for at, names in enumerate(VOCABULARY["months"], start=1) for name in names.split()}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})(?![^\W\d_])\.?"
_MONTH2: Final = _MONTH.replace("month", "month2")
_DAY: Final = r"(?:st|nd|rd|th|er|\.|º)?(?:\s+(?:of|de))?[\s-]+"
_ISO: Final = re.compile(
    r"(?<![\d-])(?P<y>\d{4})[-/.年]\s?(?P<m>\d{1,2})[-/.月]\s?(?P<d>\d{1,2})(?:日|(?![\d-]))", re.IGNORECASE
)
_NAMED: Final = re.compile(
    rf"{_MONTH}\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})|(?P<d2>\d{{1,2}}){_DAY}"
    rf"{_MONTH2}(?:,?|\s+del?)[\s-]+(?P<y2>\d{{4}})",
    re.IGNORECASE,
)
_PARTIAL: Final = re.compile(
    rf"(?<!\d[ .])(?<!\w){_MONTH}(?:,?|\s+(?:of|de))\s+(?P<y>\d{{4}})(?!\d)"
    rf"|(?<!\w){_MONTH2}\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:%])(?!,?\s+\d)"
    rf"|(?<![\d.,])(?P<d2>\d{{1,2}}){_DAY}{_MONTH.replace('month', 'month3')}(?!,?(?:\s+del?)?\s+\d)",
    re.IGNORECASE,
)
"""A month of a year, or a day of a month."""
_SLASHED: Final = re.compile(
    r"(?<![\d/])(?P<one>\d{1,2})[/.-](?P<two>\d{1,2})(?:[/.-](?P<y>\d{4})|/(?P<yy>\d\d))(?![\d/])"
)
_MONTH_OF_YEAR: Final = re.compile(r"(?<![\d/.-])(?:(\d{4})-(\d\d)|(\d\d?)/(\d{4}))(?![\d/-])")
_CLOCK: Final = re.compile(
    r"(?<![\d:.])(?P<h>\d{1,2})(?:[:.h](?P<m>\d\d)(?::(?P<s>\d\d))?(?![\dm]|:\d)|(?=\s*[ap]\.?m\b))\s*(?P<half>[ap]\.?m\b)?",
    re.IGNORECASE,
)
_ZONES: Final = {name: offset for names, offset in VOCABULARY["zones"].items() for name in names.split()}
_ZONED: Final = re.compile(rf"{_CLOCK.pattern}\.?\s*\(?(?P<zone>{'|'.join(_ZONES)})(?!\w)\)?", re.IGNORECASE)
_NOON: Final = re.compile(r"\b(?:12 )?noon\b")
_TIME_UNITS: Final = "|".join(name for name, unit in UNITS.items() if unit in TO_BASE and TO_BASE[unit][0] == "second")
_TIME: Final = rf"(\d+(?:\.\d+)?)\s*({_TIME_UNITS}|m)(?![^\W\d_])"
_NO_BOUND: Final = (
    r"(?<![\d.])(?<!\d-)(?<!\d to )(?<!\d or )(?<!\d and )(?<!over )(?<!under )(?<!than )(?<!least )(?<!most )"
)
_DURATION: Final = re.compile(rf"{_NO_BOUND}{_TIME}(?:[,\s]*(?:and\s+)?{_TIME})*")
DateOrder: TypeAlias = Literal["", "day", "month"]
_Readings: TypeAlias = set[tuple[Fraction | int, ...]]


@dataclass(frozen=True, slots=True)
class MomentReference(TextReference):
    """A date such as ``2024-01-03``, a time of day such as ``12:05``, or a duration such as ``1 h 5 min``.

    Two readings where day and month, or morning and evening, may be either.
    """

    moments: frozenset[tuple[Fraction | int, ...]]
    read: Callable[[str], list[_Readings]]
    """What finds the moments of this kind in a text: sets of readings."""

    @classmethod
    def of(cls, text: str, order: DateOrder = "") -> MomentReference | None:
        """Return the date or time that a text is as a whole; ``order`` says what comes first in ``03/04/2024``."""
        bare = _NOON.sub("12:00", plain(text))
        for read, patterns in (
            (partial(_dates, order=order), (_ISO, _NAMED, _SLASHED)),
            (_partial_dates, (_PARTIAL,)),
            (_times, (_CLOCK,)),
            (_zoned_times, (_ZONED,)),
            (_durations, (_DURATION,)),
        ):
            if any(pattern.fullmatch(bare) for pattern in patterns) and (moments := read(bare)):
                return cls(text, frozenset(moments[0]), read)
        return None

    def _compare(self, stated: Stated) -> Compared:
        for part in () if UNCLEAR.search(stated.text) else parts_of(stated, MomentReference._whole):
            readings = self.read(plain(part))
            if len(readings) == 1:
                (found,) = readings
                before = re.split(r"\d", plain(part))[0]
                if self.read is not _durations and RELATED.search(re.sub(rf"{_MONTH} ", "", before)):
                    raise RewardError(f"{shown(part)} is related to a moment")
                if found != self.moments and (found & self.moments or self._is_half_a_day_apart(part, found)):
                    raise RewardError(f"{shown(part)} may be {self.shown} or another moment")
                return Compared(found == self.moments, shown(part))
            spans, wanted = ([] if readings else _spans(each) for each in (part, self.text))
            if spans and spans == wanted and len({*spans[0]}) == 1:
                return Compared(True, shown(part))
            if any(one & other for one in spans for other in wanted) or (spans and self.read is _zoned_times):
                raise RewardError(f"{shown(part)} may be {self.shown} or another moment")
            if self.moments in readings and not self.equals(part):
                raise RewardError(f"{shown(part)} has {len(readings)} moments, one of which is {self.shown}")
        return Compared(self.states(stated), shown(stated.text))

    @staticmethod
    def _whole(line: str) -> object:
        moment = MomentReference.of(line)
        return None if moment is None else moment.moments

    def _is_half_a_day_apart(self, part: str, found: _Readings) -> bool:
        """Return whether of two times only one says whether it is in the morning, and they differ in nothing else."""
        folded = ({(each[0] % 12, *each[1:]) for each in readings} for readings in (found, self.moments))
        halves = {
            match["half"] is None and int(match["h"]) <= 12
            for text in (part, self.text)
            for match in _CLOCK.finditer(plain(text))
        }
        return self.read is _times and len(halves) > 1 and next(folded) == next(folded)


def _distinct(found: list[_Readings]) -> list[_Readings]:
    return [each for number, each in enumerate(found) if each not in found[:number]]


def _dates(text: str, order: DateOrder = "") -> list[_Readings]:
    found: list[_Readings] = [{(int(each["y"]), int(each["m"]), int(each["d"]))} for each in _ISO.finditer(text)]
    for each in _NAMED.finditer(text):
        month = _MONTHS[(each["month"] or each["month2"]).lower()]
        found.append({(int(each["y"] or each["y2"]), month, int(each["d"] or each["d2"]))})
    for each in _SLASHED.finditer(text):
        one, two = int(each["one"]), int(each["two"])
        years = [int(each["y"])] if each["y"] else [1900 + int(each["yy"]), 2000 + int(each["yy"])]
        day_first = "." in each[0] or order == "day"  # with points it is
        orders = ((two, one),) if day_first else ((one, two), (two, one))[: 1 if order else 2]
        found.append({(year, month, day) for year in years for month, day in orders if 1 <= month <= 12 and day <= 31})
    return _distinct(found)


def _partial_dates(text: str) -> list[_Readings]:
    found: list[_Readings] = []
    for each in _PARTIAL.finditer(text):
        month = _MONTHS[(each["month"] or each["month2"] or each["month3"]).lower()]
        found.append({(int(each["y"]), month) if each["y"] else (0, month, int(each["d"] or each["d2"]))})
    found += [
        {(int(year or year2), int(month or month2))} for year, month, month2, year2 in _MONTH_OF_YEAR.findall(text)
    ]
    return _distinct(found)


def _times(text: str) -> list[_Readings]:
    found: list[_Readings] = []
    for each in _CLOCK.finditer(_NOON.sub("12:00", text)):
        hour, minute, second = int(each["h"]), int(each["m"] or 0), int(each["s"] or 0)
        if each["half"]:
            hour = hour % 12 + 12 * (each["half"][0] in "pP")
        if hour < 25 and minute < 60:
            found.append({(hour, minute, second)})
    return _distinct(found)


def _zoned_times(text: str) -> list[_Readings]:
    """Return the times that name their zone, in minutes of a day of UTC."""
    zoned = [(each, moment) for each in _ZONED.finditer(text) for readings in _times(each[0]) for moment in readings]
    return _distinct(
        [
            {((60 * hour + minute - _ZONES[each["zone"].lower()]) % 1440, second)}
            for each, (hour, minute, second) in zoned
        ]
    )


def _spans(text: str) -> list[_Readings]:
    """Return durations in seconds, also those with colons: ``2:03:59``, and ``1:45`` with two readings."""
    bare = plain(text)
    clocks: list[_Readings] = []
    for each in () if (found := _durations(bare)) else _CLOCK.finditer(bare):
        hour, minute, second = int(each["h"]), int(each["m"] or 0), int(each["s"] or 0)
        clocks.append({(3600 * hour + 60 * minute + second,)} | (set() if each["s"] else {(60 * hour + minute,)}))
    return found or clocks


def _durations(text: str) -> list[_Readings]:
    spans = (re.findall(_TIME, each[0]) for each in _DURATION.finditer(text))
    return [
        {(sum(Fraction(number) * TO_BASE[UNITS["min" if unit == "m" else unit]][1] for number, unit in each),)}
        for each in spans
    ]


def read_reference(
    text: str,
    decimal: DecimalMark,
    tolerance: Fraction,
    options: Mapping[str, str],
    equal: Callable[[str, str], bool] | None,
    order: DateOrder = "",
) -> Reference:
    """Return a reference by its own form: a number, a letter with options, a truth value, a list, JSON, a formula, text."""
    number = reference_number(text, decimal)
    if number is not None:
        return NumberReference(text, number, decimal, tolerance)
    bare = bare_reference(text)
    begins = [reference_number(each, decimal) for each in _list_parts(bare)[:1]]
    return (
        label_reference(bare, options)
        or MomentReference.of(bare, order)
        or JsonReference.of(bare)
        or (ListReference.of(bare, decimal) if None not in begins else None)
        or (FormulaReference(bare, equal) if is_formula(bare) else TextReference(bare))
    )


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


def read_column(references: Sequence[str]) -> ColumnReading:
    """Return how references are to be read.

    A kind is chosen only if every reference has it. ``codes`` are digits with leading zeros, which are no numbers; ``mixed``
    ones are read each by its form.
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
    few = len(frequent) <= _MOST_LABELS and len(frequent) * _EACH <= total
    if texts and short and (few or truth):
        return ColumnReading("labels", total, labels=tuple(frequent))
    return ColumnReading(_kind(texts), total, decimal, dates=_order_of_dates(texts))


def _order_of_dates(texts: Sequence[str]) -> DateOrder:
    """Return what comes first in the slashed dates of a column: the month, where some other part can only be a day."""
    dates = [each for each in map(_SLASHED.fullmatch, texts) if each and "." not in each[0]]
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
