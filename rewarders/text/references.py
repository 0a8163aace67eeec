"""Compare an output with one reference of a form: a number, a list, JSON or a formula, and read any reference.

What has two readings is no score: ``compare`` raises ``RewardError``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

from tfgrpo.rewarders.text.answers import (
    Stated,
    bare_reference,
    conclusion_of,
    json_in,
    last_question,
    stated_answer,
    without_reasoning,
    written_value,
)
from tfgrpo.rewarders.text.choices import label_reference
from tfgrpo.rewarders.text.lexer import MAGNITUDES, TO_BASE, DecimalMark, Number, NumberLine, plain_digits, unit_of, written
from tfgrpo.rewarders.text.moments import DateOrder, MomentReference, dates, durations
from tfgrpo.rewarders.text.numbers import (
    MEANINGS,
    REMARK,
    answered_number,
    format_value,
    number_of,
    numbers_agree,
    only_number,
    ordinal,
    reference_number,
)
from tfgrpo.rewarders.text.rules import RELATED, SHOWN, Compared, ReadAnswer, denies, is_denied, says_absent, shown, verdict_by
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import AnswerRules as Rules
from tfgrpo.rewarders.text.spelling import LATEX_SPACE, ORDINAL, QUOTES, plain, same_text
from tfgrpo.rewarders.text.words import Reference, TextReference, nothing, parts_of
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.json_values import canonical_json, load_json

NEEDS_MATH: Final = 'comparing formulas needs math-verify: pip install "tfgrpo[math]"'


@dataclass(frozen=True, slots=True)
class ExactReference(Reference):
    """Text that is equal in every character, except outer white space."""

    normalized: bool = False
    """Compare the ``plain`` forms instead."""

    def _compare(self, stated: Stated) -> Compared:
        read: Callable[[str], str] = plain if self.normalized else str.strip
        return Compared(any(read(each) == read(self.text) for each in stated.candidates), shown(stated.text))


@dataclass(frozen=True)
class _Numeric(ReadAnswer["NumberReference"]):
    stated: Stated

    @property
    def wanted(self) -> Number:
        return self.reference.number

    @cached_property
    def number(self) -> Number | None:
        """The number that is stated, negative where something falls and the reference has a sign."""
        number = number_of(self.stated, self.reference.decimal, last_question(self.reference.prompt))
        return replace(number, value=-abs(number.value)) if number is not None and self._falls(number) else number

    def _falls(self, number: Number) -> bool:
        """Return whether something falls by a number, where the reference has a sign or the question is for a change."""
        at, _, behind = self.text.partition(number.text)
        close, prompt = f"{at.rpartition(',')[2][-_CLOSE:]}{behind[:_CLOSE]}", self.reference.prompt
        asked = _CHANGE.search(prompt) and not _FALL.search(prompt) and _FALL.search(close)
        falls = _FALL.search(self.text) if re.match(r"[-+\u2212]", self.reference.text) else asked
        return bool(falls and not re.search(r"\bto\W*$|(?:\bnot|n['’]t)\b[^,.;:]*$", at))

    @property
    def answered(self) -> str:
        with suppress(RewardError):  # a date or a time has several numbers
            return f"{shown(self.text)} (no number)" if self.number is None else shown_number(self.number)
        return shown(self.text)

    def agrees(self) -> bool:
        return self.number is not None and self.equals(self.number)

    def equals(self, number: Number) -> bool:
        # 0.1 + 0.2 is 0.30000000000000004 in a file that a program wrote.
        noise = abs(self.wanted.value) / 10**14 if len(self.wanted.text) > _DIGITS_OF_FLOAT else 0
        return numbers_agree(number, self.wanted, self.reference.tolerance + noise)

    def is_year_of_date(self) -> bool:
        found = dates(plain(self.text)) if _YEAR.fullmatch(self.reference.text) else []
        return len(found) == 1 and {each[0] for each in found[0]} == {self.wanted.value}

    def is_sum_of_times(self) -> bool:
        base, factor = TO_BASE.get(self.wanted.unit, ("", Fraction(1)))
        spans = durations(plain(self.text)) if base == "second" and len(re.findall(r"\d+", self.text)) > 1 else []
        return len(spans) == 1 and spans[0] == {(self.wanted.value * factor,)}

    def is_related_to_year(self) -> bool:
        at = len(self.text.casefold().partition(self.reference.text)[0])
        return bool(_YEAR.fullmatch(self.reference.text) and RELATED.of(self.text.casefold(), at, at))

    def has_magnitude_asked(self) -> bool:
        asked = re.search(r"\bin (thousand|million|billion)s?\b", self.reference.prompt, re.IGNORECASE)
        if asked is None or self.wanted.scale > 1 or self.number is None or self.number.scale != MAGNITUDES[asked[1].lower()]:
            return False
        return self.equals(replace(self.number, value=self.number.value / self.number.scale, scale=1))

    def has_no_era(self) -> bool:
        number = self.number
        return number is not None and {number.unit, self.wanted.unit} == {"", "bc"} and number.value == self.wanted.value

    def counts_otherwise(self) -> bool:
        """Return whether one side has a unit, and the other counts things: ``5 %``, ``5 apples``."""
        ours, theirs = (each and bool(each.unit or each.percent) for each in (self.number, self.wanted))
        counted = _COUNTED.fullmatch(self.reference.text if ours else self.text)
        return bool(ours is not theirs and counted and self.agrees())

    def has_unit_not_asked(self) -> bool:
        """Return whether the prompt asks how many of something else there are, or for another unit."""
        number, prompt = self.number, self.reference.prompt.replace("percent", "%")
        unit = number and ("%" if number.percent else re.split("[/23]", number.unit)[0])
        if not unit or self.wanted.unit or self.wanted.percent or _DOLLARS.search(self.text):
            return False
        counted = [(each[1] or each[2]).split() for each in _ASKED.finditer(prompt) if each[1] or unit_of(each[2])]
        asked = {unit_of(word) for words in counted for word in words} - {""}
        named = {unit_of(word) or word for word in re.findall(r"[^\W\d_]+|[$€£%]", prompt)}
        known = {each for name in asked or named for each in MEANINGS.get(name, (name,))}
        return bool(counted and known.isdisjoint(MEANINGS.get(unit, (unit,))) and self.agrees())

    def may_number(self) -> bool:
        number = re.escape(self.number.text) if self.number is not None else "(?!)"
        word = re.search(rf"{_NUMBERED}[\"']?:? (?:no\.? )?{number}(?!\w)|{_FAILED}", self.text, re.IGNORECASE)
        place = word and word[1] and re.search(rf"{word[1]}|where|which", self.reference.prompt, re.IGNORECASE)
        return bool(word and not place and self.agrees())

    def is_of_another_variable(self) -> bool:
        ours, theirs = (_VARIABLE.search(each) for each in (self.text, self.reference.text))
        return bool(ours and theirs and ours.groups() != theirs.groups())

    def is_in_another_unit(self) -> bool:
        ours, remark = self.number, re.search(r"\(([^() ]+ ?[^() ]+)\)", self.text)
        number = only_number(remark[1], self.reference.decimal) if remark and ours is not None and ours.unit else None
        return number is not None and "" != number.unit == self.wanted.unit and self.equals(number)

    def may_be_compared(self) -> bool:
        before, compares = _COMPARISON.subn("", plain_digits(self.text, self.reference.decimal))
        return compares > 0 and any(self.equals(each.number) for each in NumberLine.of(before).tokens)

    def is_share_of_another(self) -> bool:
        of = {found[1] for each in (self.text, self.reference.text) if (found := _SHARE_OF.fullmatch(plain(each)))}
        return len(of) > 1 and self.agrees()

    def is_same_ordinal(self) -> bool:
        ordinals = {ordinal(each) for each in ORDINAL.findall(_FROM_LAST.sub("", plain(self.text)))} - {None}
        return ordinals == {ordinal(self.reference.text)} and not denies(self.text)

    def is_same_text(self) -> bool:
        return self.number is None and any(same_text(each, self.reference.text) for each in self.stated.candidates)

    def is_exact_before_rounding(self) -> bool:
        before, sign, _ = self.text.replace(r"\approx", "\u2248").rpartition("\u2248")
        exact = answered_number(f"Answer: {before}", self.reference.decimal) if sign else None
        return exact is not None and self.equals(exact)

    def agrees_in_other_notation(self) -> bool:
        decimal, other = self.reference.decimal, None
        if re.search(r",|\d\.\d{3}(?!\d)", self.stated.whole) or (decimal == "," and "." in self.stated.whole):
            with suppress(RewardError):  # in the other notation the answer may be several numbers
                other = number_of(self.stated, "." if decimal == "," else ",")
        differs = other is not None and (self.number is None or other.value != self.number.value)
        return other is not None and differs and self.equals(other)

    def agrees_with_other_notation(self) -> bool:
        other = reference_number(self.reference.text, "," if self.reference.decimal == "." else ".")
        number = self.number
        return number is not None and other is not None and numbers_agree(number, other, self.reference.tolerance)

    def may_be_points(self) -> bool:
        share = _POINTS.fullmatch(self.number.text) if self.number is not None else None
        return share is not None and int(share[1]) == self.wanted.value

    def has_other_magnitude(self) -> bool:
        pair = (self.number, self.wanted) if self.number is not None else ()
        return any(one.scale > 1 and one.value / one.scale == other.value for one in pair for other in pair)


@dataclass(frozen=True, slots=True)
class NumberReference(Reference):
    """A number, compared by value; two readings where another notation would make an answer the reference."""

    number: Number
    decimal: DecimalMark = "."
    tolerance: Fraction = Fraction(0)
    rules: ClassVar[Rules[_Numeric]] = (
        Rule("right", "is the year of a date", "1984", "It was on 3 May 1984.", _Numeric.is_year_of_date),
        Rule("right", "is a sum of times", "65 min", "1 h 5 min", _Numeric.is_sum_of_times),
        Rule("unclear", "is related to a year", "1984", "before 1984", _Numeric.is_related_to_year),
        Rule("right", "has the magnitude asked for", "5", "$5 million", _Numeric.has_magnitude_asked, "How much, in millions?"),
        Rule("unclear", "may be of another era", "44 BC", "44", _Numeric.has_no_era),
        Rule("unclear", "may count something else", "5%", "5 apples", _Numeric.counts_otherwise),
        Rule("wrong", "is a share of something else", "5% zinc", "5% copper", _Numeric.is_share_of_another),
        Rule("wrong", "is of another variable", "x = 5", "2x = 5", _Numeric.is_of_another_variable),
        Rule("unclear", "has a unit not asked for", "5", "5 km", _Numeric.has_unit_not_asked, "How many meters is it?"),
        Rule("unclear", "may be that of a page or an error", "42", "See page 42.", _Numeric.may_number),
        Rule("right", "has this value", "1/2", "Answer: 50 %", _Numeric.agrees),
        Rule("right", "is given in another unit, too", "68 °F", "20 °C (68 °F)", _Numeric.is_in_another_unit),
        Rule("unclear", "may be a comparison", "5", "He pays $5 for it, which is $1 less than I.", _Numeric.may_be_compared),
        Rule("right", "is the same ordinal", "3rd", "the third", _Numeric.is_same_ordinal),
        Rule("right", "is the same text", "42", "__42__", _Numeric.is_same_text),
        Rule("right", "is exact before it is rounded", "2/9", "Answer: 2/9 ≈ 0.22", _Numeric.is_exact_before_rounding),
        Rule("unclear", "has a mark with two readings", "3.14", "Answer: 3,14", _Numeric.agrees_in_other_notation),
        Rule("unclear", "is the reference in another notation", "1.234", "1234", _Numeric.agrees_with_other_notation),
        Rule("unclear", "may be points of a scale", "4", "4/5", _Numeric.may_be_points),
        Rule("unclear", "may be of another magnitude", "5", "5 million", _Numeric.has_other_magnitude),
        Rule("wrong", "is another number", "42", "43", lambda said: said.number is not None),
        Rule("none", "is no number", "42", "Paris", lambda _: True),
    )

    @property
    def shown(self) -> str:
        """The number as written, and its value if that looks different."""
        return shown_number(self.number)

    def _compare(self, stated: Stated) -> Compared:
        return verdict_by(self.rules, _Numeric(self, stated.text, stated))

    def is_alone(self, _text: str, /) -> bool:
        """Return True: a number next to others is none."""
        return True


_YEAR: Final = re.compile(r"\s*\d{4}\s*")
_COUNTED: Final = re.compile(r"\W*[\d.,]+ (?!dollar|buck|percent|degree|thousand|[mb]illion)[A-Za-z]{3,}\W*")
_SHARE_OF: Final = re.compile(r"[\d.,]+ ?% (?:of )?([a-z]{3,})")
_FALL: Final = re.compile(r"\b(?:down|fell|fall\w*|drop\w*|de(?:creas|clin)\w*|los[est]\w*|shr[au]nk)\b", re.IGNORECASE)
"""What makes a number negative next to a reference with a sign, or close to it where a change is asked for."""
_CLOSE: Final = 12
_CHANGE: Final = re.compile(r"\b(?:chang|gr[eo]w|ris|rose|increas|gain|profit)\w*", re.IGNORECASE)
_ASKED: Final = re.compile(r"\bhow many ((?:[\w'-]+ ){0,4}[\w-]+)|\bin (?:US )?([a-z]+)", re.IGNORECASE)
_DOLLARS: Final = re.compile(r"\$[^$\n]+\$")
_NUMBERED: Final = r"\b(page|section|question|chapter|line|figure|table|error|attempt|port|version|ticket|note)"
_FAILED: Final = r"^\W*(?:(?:error|exception): (?=[a-z])|(?:n/a|unknown) ?[.,;:(])|(?:request|query|call)s? failed|: \W?error\b"
_VARIABLE: Final = re.compile(r"(?:^|[\s$(])(\d*)([A-Za-z])\s*=[^=]*$")
_COMPARISON: Final = re.compile(r",\s(?:which (?:is|was) )?\W{0,3}\d[^,;]*? (?:less|more|fewer|\w+er) than [^;]*$")
_FROM_LAST: Final = re.compile(r"\b\w+[ -](?:from|to)[ -](?:the )?(?:last|end)\b")
_DIGITS_OF_FLOAT: Final = 16
_POINTS: Final = re.compile(r"(\d+) ?/ ?(3|4|5|7|10|100)")
"""Points of a scale, or a fraction."""


def shown_number(number: Number) -> str:
    """Return a number as written, and its value if that looks different."""
    value = format_value(number.value) + ("%" if number.percent else "")
    return shown(number.text) if number.text == value else f"{shown(number.text)} ({value[:SHOWN]})"


@dataclass(frozen=True)
class _Series(ReadAnswer["ListReference"]):
    stated: Stated

    @cached_property
    def read(self) -> ListReference | None:
        return next((each for each in map(self.reference.read, parts_of(self.stated)) if each is not None), None)

    @cached_property
    def pair(self) -> tuple[list[Fraction], list[Fraction]]:
        ours, theirs = ([number.value for number in each.numbers] if each else [] for each in (self.read, self.reference))
        return ours, theirs

    def is_equal(self) -> bool:
        return self.pair[0] == self.pair[1]

    def is_relation(self) -> bool:
        return is_relation(self.stated.text, self.reference.text)

    def has_same(self) -> bool:
        return self.read is not None and sorted(self.pair[0]) == sorted(self.pair[1])

    @property
    def edges(self) -> list[str]:
        return [re.sub(r"[^()\[\]]", "", each.text) for each in (self.read, self.reference) if each is not None]

    def may_be_open(self) -> bool:
        """Return whether round brackets are an interval without its ends, or another notation of a pair."""
        ours = self.pair[0]
        return self.is_equal() and len(ours) == 2 and ours[0] < ours[1] and self.edges == ["()", "[]"]

    def has_other_edges(self) -> bool:
        """Return whether an interval is open where the reference is closed, or the other way round."""
        edges = self.edges
        closed = "[" in edges[0] and len(self.pair[1]) == 2
        return ({*edges[-1]} in ({"[", ")"}, {"(", "]"}) or closed) and edges[0] != edges[-1] != ""


@dataclass(frozen=True, slots=True)
class ListReference(Reference):
    """Several numbers: ``(3, 4)``, ``1, 2, 3``; two readings for the same ones in another order, where none is stated."""

    numbers: tuple[Number, ...]
    decimal: DecimalMark = "."
    rules: ClassVar[Rules[_Series]] = (
        Rule("unclear", "denies a list, or has several", "1, 2", "1, 2 or 1, 3", lambda said: denies(said.stated.text)),
        Rule("unclear", "is an inequality, and may be an interval", "(3, 4]", "3 < x ≤ 4", _Series.is_relation),
        Rule("wrong", "is no list", "1, 2", "three", lambda said: not said.read),
        Rule("right", "is the same set", "{1, 2}", "{2, 1}", lambda said: said.reference.is_set and said.has_same()),
        Rule("unclear", "may be an open interval", "[1, 2]", "(1, 2)", lambda said: said.may_be_open()),
        Rule("wrong", "has other edges", "[1, 2]", "[1, 2)", lambda said: said.is_equal() and said.has_other_edges()),
        Rule("right", "has these numbers", "1, 2, 3", "1, 2 and 3", lambda said: said.is_equal()),
        Rule("unclear", "has another order", "1, 2", "2, 1", lambda it: it.has_same() and not it.reference.is_ordered),
        Rule("wrong", "has other numbers", "1, 2", "1, 3", lambda _: True),
    )

    @classmethod
    def of(cls, text: str, decimal: DecimalMark = ".") -> ListReference | None:
        """Return the list that a text is; None when it is none."""
        parts = _list_parts(re.sub(r"(?<=\d),(?=\d)", ".", text) if decimal == "," else text)
        known = tuple(number for part in parts if (number := only_number(part, decimal)) is not None)
        return cls(text, known, decimal) if len(parts) > 1 and len(known) == len(parts) else None

    @property
    def is_set(self) -> bool:
        """Whether the reference is written as a set."""
        return self.text.lstrip("$ \\").startswith("{")

    @property
    def is_ordered(self) -> bool:
        """Whether brackets make it a point or an interval, of which the order counts, or braces a set."""
        return self.is_set or "(" in self.text or "[" in self.text

    def _compare(self, stated: Stated) -> Compared:
        roots = _ROOTS.search(stated.text)
        stated = replace(stated, text=f"{roots[1]}, {roots[2]}") if roots else stated
        return verdict_by(self.rules, _Series(self, stated.text, stated))

    def read(self, text: str) -> ListReference | None:
        """Return the only list of a text. Raise ``RewardError`` for several, and for a multiple of one."""
        text = conclusion_of(REMARK.sub("", text)) or REMARK.sub("", text)
        inside = [*re.finditer(r"[(\[{⟨][^()\[\]{}⟨⟩]*\d[^()\[\]{}⟨⟩]*[)\]}⟩]", _ANGLES.sub(r"(\1)", text))]
        lists = [each for each in inside if ListReference.of(each[0], self.decimal) is not None]
        if len(lists) > 1 or (lists and _FACTOR.search(lists[0].string[: lists[0].start()])):
            raise RewardError(f"{shown(text)} has several lists, or a multiple of one")
        spaced = re.sub(r"(?<=\d) (?=-?\d)", ", ", text) if re.fullmatch(r"-?\d+(?: -?\d+)+", text) else text
        return ListReference.of((lists[0][0] if lists else spaced), self.decimal)


_ROOTS: Final = re.compile(r"\b[a-z]\w{0,3} ?= ?([^=,]{1,30}?)\$?,? or \$?[a-z]\w{0,3} ?= ?(.{1,60})", re.IGNORECASE)
"""Between the solutions of an equation: ``x = 2 or x = 3``."""
_ANGLES: Final = re.compile(r"\\langle\b(.*?)\\rangle\b")
_FACTOR: Final = re.compile(r"[\d)]\s*$|[\w)]\s*[*/\u00b7\u00d7]\s*$|[-+\u2212]$")
"""Before a list that is multiplied: ``2(3, 4)``, ``-(3, 4)``, but neither ``**(3, 4)**`` nor ``- (3, 4)``."""


def is_relation(answer: str, reference: str) -> bool:
    """Return whether an answer is an inequality, where the reference may be the interval that it describes."""
    interval = re.match(r"\W*[(\[].*[)\]]\W*$", reference)
    return bool(interval and re.search(r"[<>\u2264\u2265]|\\[lg](?:eq?|t)\b", answer.lstrip("> ")))


def _list_parts(text: str) -> list[str]:
    inside = LATEX_SPACE.sub(" ", text.translate(QUOTES)).strip(" .\n*`")
    inside = re.sub(r"^[-*|\u2022]\s+|\s*\|$|^(?:[A-Za-z]+\s+)*[A-Za-z]+,\s+(?=[-\d])", "", inside)
    inside = re.sub(r"^[A-Za-z\s=,']*(?:[:=\u2192>]|\b(?:is|are)\b|'s\b)\s*|^[\w\s]* are (?=[-\d])", "", inside.rstrip("!"))
    inside = re.sub(r"^\\?[(\[{]|\\?[)\]}]$", "", inside)
    parts = [part.strip() for part in re.split(r"[,;]\s+|;|\s+and\s+|,(?!\d{3}(?!\d))", inside)]
    return [part for part in parts if part] if all(re.search(r"\d|^$", part) for part in parts) else []


@dataclass(frozen=True)
class _Json(ReadAnswer["JsonReference"]):
    @cached_property
    def value(self) -> Any:
        """The value; the error where there is none, or none that can be read."""
        try:
            return self.reference.value_in(self.text)
        except ValueError as error:
            return error

    @property
    def answered(self) -> str:
        if isinstance(self.value, ValueError):
            return f"{shown(self.text.strip())} ({self.value})"
        return shown(json.dumps(self.value, ensure_ascii=False))

    def says_empty(self) -> bool | None:
        """Return whether an output without JSON says that there is nothing, where the reference is empty; None if it may."""
        stated = stated_answer(self.text) if self.reference.value == [] and isinstance(self.value, ValueError) else None
        return stated is not None and says_absent("none", plain(stated.text))

    def states(self, *texts: object) -> bool:
        is_text = isinstance(self.value, ValueError) and isinstance(self.reference.value, list)
        stated = stated_answer(self.text) if is_text else None
        return stated is not None and any(TextReference(str(each)).states(stated) for each in texts if str(each).strip())

    @property
    def span(self) -> tuple[int, int]:
        begins = [at for sign in "{[" if (at := self.text.find(sign)) >= 0]
        return min(begins, default=0), max(self.text.rfind("}"), self.text.rfind("]")) + 1

    def is_equal(self) -> bool:
        wanted = self.reference.value
        return bool(self.value == wanted) and _truths(self.value) == _truths(wanted)

    def has_same(self) -> bool:
        both = (self.value, self.reference.value)
        return all(isinstance(each, list) for each in both) and _sorted(both[0]) == _sorted(both[1])


def _sorted(values: list[Any]) -> list[str]:
    return sorted(map(canonical_json, values))


@dataclass(frozen=True, slots=True)
class JsonReference(Reference):
    """A JSON object or list, compared by value."""

    value: Any
    rules: ClassVar[Rules[_Json]] = (
        Rule("right", "says too that it is empty", "[]", "none", lambda it: it.says_empty()),
        Rule("unclear", "may say that it is empty", "[]", "There are no labels.", lambda it: it.says_empty() is None),
        Rule("right", "lists its entries", '["a", "b"]', "a, b", lambda it: it.states(it.reference.entries)),
        Rule("unclear", "is one of several", '["a1", "b2"]', "a1", lambda it: it.states(*it.reference.value)),
        Rule("wrong", "has no JSON", '{"a": 1}', "a is 1", lambda said: isinstance(said.value, ValueError)),
        Rule("wrong", "is denied", '{"a": 1}', 'It is not {"a": 1}.', lambda it: is_denied(it.text.lower(), *it.span)),
        Rule("unclear", "is a multiple", '["a"]', '2 * ["a"]', lambda it: _FACTOR.search(it.text[: it.span[0]])),
        Rule("right", "is the same value", '{"a": 1}', '{"a": 1.0}', lambda said: said.is_equal()),
        Rule("unclear", "has the values in another order", '["a", "b"]', '["b", "a"]', lambda said: said.has_same()),
        Rule("wrong", "is another value", '{"a": 1}', '{"a": 2}', lambda _: True),
    )

    @classmethod
    def of(cls, text: str) -> JsonReference | None:
        """Return the JSON value that a text is, if it is an object, or a list of more than numbers."""
        value = written_value(text)
        is_list = isinstance(value, list) and (not value or any(not isinstance(each, int | float) for each in value))
        return cls(text, value) if isinstance(value, dict) or is_list else None

    @property
    def entries(self) -> str:
        """The entries of a list as text."""
        return ", ".join(map(str, self.value))

    def _compare(self, stated: Stated) -> Compared:
        return self.compare(stated.whole)

    def compare(self, output: str) -> Compared:
        """Compare the JSON of an output, however long it is. Raises ``RewardError`` for several different values."""
        rest = without_reasoning(output) or ""
        return verdict_by(self.rules, _Json(self, rest)) if rest.strip() else nothing(output)

    def value_in(self, rest: str) -> Any:
        """Return the value that is marked or is the last line, else the only one. Raises as ``json_in`` does."""
        stated = stated_answer(rest)
        inside = re.search(r"[{\[].*[}\]]", rest, re.DOTALL)
        value = written_value(inside[0]) if inside else None
        if value is None and stated is not None and stated.source != "object":
            with suppress(ValueError, RewardError):
                value = (json_in if stated.is_marked else load_json)(bare_reference(stated.text))
        value = value if isinstance(value, type(self.value)) else json_in(rest)
        only = [*value.values()] if isinstance(value, dict) and len(value) == 1 else []
        if only and self.value != value and ("answer" in value or (isinstance(only[0], list) and isinstance(self.value, list))):
            value = only[0]
        return written_value(value) if isinstance(value, str) else value


def _truths(value: Any) -> int:
    """Return how many truth values a JSON value has: to Python, true is 1."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) + sum(map(_truths, inner))


@dataclass(frozen=True)
class _Formula(ReadAnswer["FormulaReference"]):
    stated: Stated

    def is_denied(self) -> bool:
        return denies(self.stated.text) and not denies(self.reference.text)

    def is_relation(self) -> bool:
        return is_relation(self.text, self.reference.text)

    def is_same(self) -> bool:
        wanted = self.reference.text
        same = plain(self.text) == plain(wanted) and not re.search(r"[)\]]\W*$", wanted)
        return same or _formula(wanted) in (_formula(self.text), _formula(self.stated.text))

    def is_none(self) -> bool:
        return not re.search(r"[\d\\^]|^\W*[A-Za-z]\W*$", self.text)

    def is_equal(self) -> bool:
        return self.reference.equal is not None and self.reference.equal(self.text, self.reference.text)


@dataclass(frozen=True, slots=True)
class FormulaReference(Reference):
    r"""A formula such as ``(x+1)^2``. Equal when written the same, or by ``equal``, which knows algebra."""

    equal: Callable[[str, str], bool] | None = None
    """Whether two formulas in LaTeX are equal; None when no library for it is installed."""
    rules: ClassVar[Rules[_Formula]] = (
        Rule("unclear", "denies a formula, or has several", "x^2", "x^2 or x^3", _Formula.is_denied),
        Rule("unclear", "is an inequality, and may be an interval", r"[3, \infty)", r"x \ge 3", _Formula.is_relation),
        Rule("right", "is the same formula", r"\frac{1}{2}x", r"$\dfrac12x$", _Formula.is_same),
        Rule("wrong", "has no formula", "x^2", "a square", _Formula.is_none),
        Rule("unclear", f"is written otherwise; {NEEDS_MATH}", "x^2", "x*x*1", lambda it: it.reference.equal is None),
        Rule("right", "is equal", "x^2", "x*x*1", _Formula.is_equal),
        Rule("wrong", "is another formula", "x^2", "x*x*1", lambda _: True),
    )

    def _compare(self, stated: Stated) -> Compared:
        answer = stated.text.strip(_AROUND_FORMULA) if stated.is_marked else _formula_in(stated)
        answer = answer if "\u2248" in self.text else answer.partition("\u2248")[0].strip()
        answer = _CONDITION.split(answer)[0].strip()
        answer = answer if "=" in self.text else _last_side(answer)
        answer = _RAISED.sub(_in_latex, answer).replace("**", "^")
        answer = answer if "\\" in answer else written(answer, "formulas")
        answer = re.sub(r"\\sqrt\s*(\d+)", r"\\sqrt{\1}", re.sub(r"^\\text\{([^{}]*)\}$", r"\1", answer))
        unit = re.search(r"\s(m(?=\^)|[A-Za-z]{2,})(?:\^\{[23]\})?$", answer)
        answer = answer[: unit.start()] if unit and unit_of(unit[1]) and unit[1] not in self.text else answer
        return verdict_by(self.rules, _Formula(self, answer, stated))


def _last_side(equation: str) -> str:
    """Return what an equation says that a name, or the same in other words, is equal to; all of it for another equation."""
    sides = re.split(r"(?<![<>!])=(?!=)\s*", equation)
    first, last = sides[0], sides[-1]
    unknown, known = ({*re.findall(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", each)} for each in (first, last))
    is_name = re.fullmatch(r"\W*[A-Za-z]\w*'?\s*(?:\([a-z]\)\s*)?", first)
    return last if len(sides) > 1 and (is_name or unknown <= known) else equation


def _in_latex(raised: re.Match[str]) -> str:
    return f"{'_' if raised[1] else '^'}{{{unicodedata.normalize('NFKC', raised[0]).translate(QUOTES)}}}"


def _formula_in(stated: Stated) -> str:
    """Return the formula of a text without a mark: between dollars or in bold, else the last between words of a line."""
    for part in parts_of(stated):
        written = _WRITTEN.findall(part)
        if written:
            return "".join(written[-1]).strip(_AROUND_FORMULA)
        between_words = [each for each in _PROSE.split(part) if re.search(r"\d|\\[a-z]|[²³π√∞]", each)]
        if between_words:
            return str(between_words[-1]).strip(_AROUND_FORMULA + "!")
    return stated.text


_WRITTEN: Final = re.compile(r"\$\$?([^$\n]+)\$|\*\*([^*\n]+)\*\*|\\\(([^\n]+?)\\\)|\\\[([^\n]+?)\\\]")
_PROSE: Final = re.compile(
    r"(?:(?<![\\{A-Za-z])[A-Za-z'’]*[A-Za-z]{3,}(?![A-Za-z({])|\b(?:is|it's|it|so|be|as)\b|[:\u2192\u21d2]|=>)", re.IGNORECASE
)
_CONDITION: Final = re.compile(r"(?<=.)(?:,\s?|\s\(?|\\q?quad\s?\(?)(?:for|where|when|if|\w\s?(?:\\neq?|≠))(?![A-Za-z]).*")
"""What says for which values a formula holds: ``x + 2, for x ≠ 2``."""
_RAISED: Final = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+|([\u2080-\u2089]+)")
_AROUND_FORMULA: Final = " \t\n*_`.:,;\u2705\u2713\u2714"


def _formula(text: str) -> str:
    text = re.sub(r"\\[dtc]frac", r"\\frac", LATEX_SPACE.sub("", text.translate(QUOTES)))
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"_\{?(\d+)\}?", r"\1", re.sub(r"\^\{([^{}]*)\}", r"^\1", text))
    text = re.sub(r"(?<=[A-Za-z])\s*(?:\\cdot|\\times|[·×*])\s*(?=[A-Za-z](?![A-Za-z]))", "", text)
    return re.sub(r"\s+|\\text\{[^{}]*\}$|\.$", "", re.sub(r"^[A-Za-z]'?(?:\([a-z]\))?=", "", text.replace(" ", "")))


def is_formula(text: str) -> bool:
    r"""Return whether a reference is a formula: LaTeX, or an expression of variables, operators and digits."""
    bare = bare_reference(text).strip(" $.")
    return not re.match(r"\^|[A-Za-z]:\\", bare) and bool(
        re.search(r"\\[a-zA-Z]{2,}|\^|_\{", bare)
        or (
            re.fullmatch(r"[\w\s()+*/=.-]*[\w)]\s*(?:\*\*|[+*=<>])\s*[\w(][\w\s()+*/=.-]*", bare)
            and not re.search(r"[A-Za-z]{3}", bare)
        )
    )


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
    bare = bare_reference(text)
    if number is not None and not re.fullmatch(r"0\d+", bare):  # digits with leading zeros are a code
        return NumberReference(text, number, decimal, tolerance)
    begins = [reference_number(each, decimal) for each in _list_parts(bare)[:1]]
    return (
        label_reference(bare, options)
        or MomentReference.of(bare, order)
        or JsonReference.of(bare)
        or (ListReference.of(bare, decimal) if None not in begins else None)
        or (FormulaReference(bare.replace("**", "^"), equal) if is_formula(bare) else TextReference(bare))
    )
