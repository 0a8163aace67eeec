"""Compare an output with a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import dropwhile
from typing import ClassVar, Final

from tfgrpo.rewarders.text import lexer, numbers
from tfgrpo.rewarders.text.answers import UNSPACED, Stated, any_of, bare_reference, last_question
from tfgrpo.rewarders.text.base import Reference
from tfgrpo.rewarders.text.formulas import AROUND_FORMULA, NEEDS_MATH, PROSE, in_latex, is_in_prompt
from tfgrpo.rewarders.text.lexer import CONSTANT, FUNCTION, DecimalMark, Number, NumberLine, plain_digits, unit_of
from tfgrpo.rewarders.text.moments import dates, durations
from tfgrpo.rewarders.text.numbers import MEANINGS, REFUSAL, answered_number, number_of, numbers_agree, ordinal
from tfgrpo.rewarders.text.rules import RELATED, SHOWN, Compared, ReadAnswer, denies, shown, verdict_by
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.spelling import ORDINAL, QUOTES, is_same_in_base, plain, same_text
from tfgrpo.stores.errors import RewardError


@dataclass(frozen=True)
class _Numeric(ReadAnswer["NumberReference"]):
    stated: Stated

    @property
    def wanted(self) -> Number:
        return self.reference.number

    @cached_property
    def number(self) -> Number | None:
        """The number that is stated, negative where something falls and the reference has a sign."""
        question = last_question(self.reference.prompt).partition("?")[0]
        question = question if _YEAR.fullmatch(self.wanted.text) else numbers.WHEN.sub(" ", question)
        prompt = self.reference.prompt
        given = re.search(rf"(?<![\d.,]){re.escape(self.wanted.text)}(?!\d|[.,]\d)", question)
        if given and _EXTRACTED.search(prompt):  # it is to be read, not worked out
            question, prompt = (each.replace(self.wanted.text, " ") for each in (question, prompt))
        try:
            number = number_of(self.stated, self.reference.decimal, question, prompt)
        except RewardError:
            number = self._only_of_its_kind() if self.kind else None
            if number is None:
                raise
        else:
            number = (self._only_of_its_kind() if self._is_of_other_kind(number) else None) or number
        if number is not None and _FALL.search(self.reference.text) and number.value < 0 < self.wanted.value:
            return replace(number, value=-number.value)  # a decrease of 3%
        return replace(number, value=-abs(number.value)) if number is not None and self._falls(number) else number

    @property
    def kind(self) -> str:
        """The unit of the reference, or what its multiples have in common; empty without a unit."""
        return _kind_of(self.wanted)

    def _is_of_other_kind(self, number: Number | None) -> bool:
        """Return whether a number has a unit of another kind, or counts things where the reference does not."""
        if number is None:
            return False
        ours = _kind_of(number)
        if self.kind:
            counts = re.search(rf"(?<![\d.,]){re.escape(number.text)} [a-z]{{3,}}s\b", self.stated.whole)
            return ours != self.kind if ours else counts is not None and not self.wanted.percent
        return ours in ("$", "%") and numbers.counts(self.reference.prompt)

    def _only_of_its_kind(self) -> Number | None:
        """Return the only number of the kind of the reference, as ``500 mg every 8 hours`` has one; none of the question."""
        text = plain_digits(self.text if self.stated.is_marked else self.stated.whole, self.reference.decimal)
        line = NumberLine.of(text)
        tokens = [each for each in line.tokens if not self._is_of_other_kind(each.number)]
        ours = [each for each in tokens if _kind_of(each.number) == self.kind]
        number = ours[0].number if len({each.number.value for each in ours}) == 1 else None
        if number is None or any(each.part or line.relation(each) for each in line.tokens) or _RANGE.search(text):
            return None
        return number if self.equals(number) or number.text not in self.reference.prompt else None

    def _falls(self, number: Number) -> bool:
        """Return whether something falls by a number, where the reference has a sign or the question is for a change."""
        at, _, behind = self.text.partition(number.text)
        close, prompt = f"{at.rpartition(',')[2][-12:]}{behind[:12]}", self.reference.prompt
        asked = _CHANGE.search(prompt) and not _FALL.search(prompt + self.reference.text) and _FALL.search(close)
        in_books = re.search(r"\([$€£]?[\d.,]+ ?%?\)\W*$", self.text) and self.wanted.value < 0  # brackets for a minus
        falls = in_books or _FALL.search(self.text) if re.match(r"[-+\u2212]", self.reference.text) else asked
        return bool(falls and not re.search(r"\bto\W*$|(?:\bnot|n['’]t)\b[^,.;:]*$", at))

    @property
    def answered(self) -> str:
        with suppress(RewardError):  # a date or a time has several numbers
            return f"{shown(self.text)} (no number)" if self.number is None else shown_number(self.number)
        return shown(self.text)

    def agrees(self) -> bool:
        return self.number is not None and self.equals(self.number)

    def equals(self, number: Number) -> bool:
        # 0.1 + 0.2 is 0.30000000000000004 where a program wrote it.
        written = max((number.text, self.wanted.text), key=len)
        noise = abs(self.wanted.value) / 10**14 if len(written) > 16 and "." in written else 0
        return numbers_agree(number, self.wanted, self.reference.tolerance + noise)

    def is_year_of_date(self) -> bool:
        found = dates(plain(self.text)) if _YEAR.fullmatch(self.reference.text) else []
        return len(found) == 1 and {each[0] for each in found[0]} == {self.wanted.value}

    def is_sum_of_times(self) -> bool:
        base, factor = lexer.TO_BASE.get(self.wanted.unit, ("", Fraction(1)))
        several = base == "second" and len(re.findall(r"\d+", self.text)) > 1
        return several and durations(plain(self.text)) == [{(self.wanted.value * factor,)}]

    def is_related_to_year(self) -> bool:
        at = len(self.text.casefold().partition(self.reference.text)[0])
        return bool(_YEAR.fullmatch(self.reference.text) and RELATED.of(self.text.casefold(), at, at))

    def has_magnitude_asked(self) -> bool:
        number = self.number
        asked = re.search(r"\b(?:in|how many) (thousand|million|billion|dozen)s?\b", self.reference.prompt, re.IGNORECASE)
        size = lexer.MAGNITUDES[asked[1].lower()] if asked and self.wanted.scale == 1 else 0
        if not size or number is None or number.value < size or number.unit not in ("", *lexer.MONEY):
            return False
        return bool(number.scale > 1 or number.unit) and self.equals(replace(number, value=number.value / size, scale=1))

    def has_no_era(self) -> bool:
        number = self.number
        return number is not None and {number.unit, self.wanted.unit} == {"", "bc"} and number.value == self.wanted.value

    def counts_otherwise(self) -> bool:
        """Return whether the answer counts something else, by words behind the numbers: ``5 %``, ``5 apples``, ``3 años``."""
        number, text = self.number, self.text
        if number is None or not self.agrees():
            return False
        text = text if number.text in text else self.stated.whole
        bare = bare_reference(self.reference.text)
        (ours, said), (theirs, wanted) = _counted(text, number), _counted(bare, self.wanted)
        said = [each for each in said if (not _NO_COUNT.fullmatch(each) if len(each) > 1 else not each.islower())]
        if not said or not wanted:
            names = said and not unit_of(said[0]) and len(said[0]) > 1 and (len(said[0]) > 2 or not said[0].islower())
            return bool((names and theirs and not ours) or (wanted and ours and not theirs))
        among = [re.findall(r"[^\W\d_]+", each) for each in (bare, text)]
        others = (pair for pair in zip(said, wanted, strict=False) if not _is_form(*pair))
        return any(
            not any(_is_form(word, each) for word, words in zip(pair, among, strict=True) for each in words) for pair in others
        )

    def goes_other_way(self) -> bool:
        """Return whether one side says that something falls by this number, and the other that it rises."""
        sides = [[bool(way.search(each)) for way in (_FALL, _RISE)] for each in (self.text, self.reference.text)]
        return sides in ([[True, False], [False, True]], [[False, True], [True, False]]) and self.agrees()

    def has_unit_not_asked(self) -> bool:
        """Return whether the prompt asks how many of something else there are, or for another unit."""
        number, prompt = self.number, last_question(self.reference.prompt).replace("percent", "%")
        unit = number and ("%" if number.percent else re.split("[/23]", number.unit)[0])
        if number is None or not unit or self.wanted.unit or self.wanted.percent:
            return False
        counted = [(each[1] or each[2]).split() for each in _ASKED.finditer(prompt) if each[1] or unit_of(each[2])]
        asked = {unit_of(word) for words in counted for word in words} - {""}
        named = {unit_of(word) or word for word in _WORD.findall(prompt)}
        known = {each for name in asked or named for each in MEANINGS.get(name, (name,))}
        like = counted or any(_dimension(each) == _dimension(unit) for each in known)
        return bool(like and known.isdisjoint((*MEANINGS.get(unit, (unit,)), number.unit)) and self.agrees())

    def is_other_version(self) -> bool:
        asked, written = re.search(r"\bversion\b", self.reference.prompt), self.number and self.number.text
        return bool(asked and written and re.fullmatch(r"\d+\.\d+", self.wanted.text) and written != self.wanted.text)

    def is_bound_asked(self) -> bool:
        asked = next((bound for extreme, bound in _BOUNDS if extreme.search(last_question(self.reference.prompt))), None)
        whole = numbers.in_digits(self.stated.whole, self.reference.prompt)
        without = asked.sub("", whole) if asked is not None else ""
        with suppress(RewardError):
            number = answered_number(without, self.reference.decimal) if without not in ("", whole) else None
            return number is not None and self.equals(number)
        return False

    @cached_property
    def formula(self) -> str:
        """A formula that is left to be worked out, such as a factorial; empty for none."""
        formula = re.split(r"\b(?:is|equals)\b", self.stated.text)[-1].strip(AROUND_FORMULA + "$")
        constant = _CONSTANT if "." in self.wanted.text else _FUNCTION  # what is rounded may be a multiple of π
        left = self.number is None and (_WORKED.search(formula) or constant.match(formula)) and not _POWER.fullmatch(formula)
        left = left and not self.wanted.unit and not is_in_prompt(formula, self.reference.prompt)
        return formula if left and not PROSE.search(re.sub(rf"\\[a-z]+|choose|{FUNCTION}", "", formula)) else ""

    def needs_algebra(self) -> bool:
        return self.formula != "" and self.reference.equal is None

    def has_formula_for_it(self) -> bool:
        equal = self.reference.equal if self.formula else None
        return equal is not None and equal(in_latex(self.formula), self.wanted.text)

    def may_number(self) -> bool:
        number = re.escape(self.number.text) if self.number is not None else "(?!)"
        word = re.search(rf"{_NUMBERED}[\"']?:? (?:no\.? )?{number}(?!\w)", self.text, re.IGNORECASE)
        failed = re.search(_FAILED, self.text if self.stated.is_marked else self.stated.whole, re.IGNORECASE)
        place = word and word[1] and re.search(rf"{word[1]}|where|which", self.reference.prompt, re.IGNORECASE)
        return bool((failed or (word and not place)) and self.agrees())

    def is_one_of_several(self) -> bool:
        """Return whether nothing but several things are stated of which one is this: ``80 girls and 16 boys``."""
        text = plain_digits(self.text, self.reference.decimal)
        several = self.number is None and _SEVERAL.search(text)
        return bool(several and any(self.equals(each.number) for each in NumberLine.of(text).tokens))

    def is_stated_all_the_same(self) -> bool:
        """Return whether a sentence that begins with "However" has the number, and one before it refuses to answer."""
        refused, _, told = self.stated.whole.partition("However")
        is_refused = self.number is None and REFUSAL.search(refused) and not REFUSAL.search(told)
        tokens = NumberLine.of(plain_digits(told, self.reference.decimal)).tokens if is_refused else []
        return any(self.equals(each.number) for each in tokens)

    def is_of_another_variable(self) -> bool:
        ours, theirs = (NAMED_VALUE.search(each) for each in (self.text, self.reference.text))
        return bool(ours and theirs and ours.groups() != theirs.groups())

    def may_be_compared(self) -> bool:
        before, compares = _COMPARISON.subn("", plain_digits(self.text, self.reference.decimal))
        return compares > 0 and any(self.equals(each.number) for each in NumberLine.of(before).tokens)

    def is_beside_what_is_asked(self) -> bool:
        """Return whether an earlier line calls another number what is asked for, of which one is the reference."""
        asked = None if self.stated.is_marked else _NAME_ASKED.search(self.reference.prompt)
        if asked is None or self.number is None or "\n" not in self.stated.whole:
            return False
        is_it = rf"\b{re.escape(asked[1])} (?:is|was|are|were|=|:) ([^\s*]*\d[^\s*]*)[*.,;]*(?=\s*\n| *[.;,])"
        called = {
            numbers.only_number(each[1], self.reference.decimal)
            for each in re.finditer(is_it, self.stated.whole, re.IGNORECASE)
        }
        others = [each for each in called if each is not None and not numbers_agree(each, self.number)]
        return len(called) == len(others) == 1 and (self.agrees() or self.equals(others[0]))

    def is_share_of_another(self) -> bool:
        of = {found[1] for each in (self.text, self.reference.text) if (found := _SHARE_OF.fullmatch(plain(each)))}
        return len(of) > 1 and self.agrees()

    @cached_property
    def ordinals(self) -> set[int | None]:
        """The ordinals that are stated, but those from the end."""
        return {ordinal(each) for each in ORDINAL.findall(_FROM_LAST.sub("", plain(self.text)))} - {None}

    def is_same_ordinal(self) -> bool:
        return self.ordinals == {ordinal(self.reference.text)} and not denies(self.text)

    def is_ordinal_asked(self) -> bool:
        asked = re.search(r"\b(?:place|position|rank|which)\b", last_question(self.reference.prompt), re.IGNORECASE)
        others = re.search(r"\d|\b(?:no|none|nobody|never)\b", plain(self.text))
        return bool(asked) and self.ordinals == {self.wanted.value} and not others and not denies(self.text)

    def is_hundredfold(self) -> bool:
        percents = self.number is not None and self.number.percent and not self.wanted.percent and abs(self.wanted.value) > 1
        asked = percents and _PERCENT_ASKED.search(self.reference.prompt)
        return bool(asked and self.number is not None and self.number.value == 100 * self.wanted.value)

    def says_none(self) -> bool:
        prompt = self.reference.prompt.lower()
        none = _NONE.match(plain(self.text)) if self.wanted.value == 0 and re.search(r"\bhow many\b", prompt) else None
        return bool(none and (none[1] is None or re.search(rf"how many (?:\w+ ){{0,2}}{none[1][:4]}", prompt)))

    def is_in_base(self) -> bool:
        return is_same_in_base(self.reference.prompt, self.text, self.reference.text)

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
        other = numbers.reference_number(self.reference.text, "," if self.reference.decimal == "." else ".")
        number = self.number
        return number is not None and other is not None and numbers_agree(number, other, self.reference.tolerance)

    @property
    def points(self) -> re.Match[str] | None:
        """The points of a scale that the number may be, of which the reference is the first part."""
        share = _POINTS.fullmatch(self.number.text) if self.number is not None else None
        return share if share is not None and int(share[1]) == self.wanted.value else None

    def has_points(self) -> bool:
        most = self.points[2] if self.points is not None else "(?!)"
        return re.search(rf"\b(?:to|out of)[ ]{most}\b|[0-9][-\u2013]{most}\b", self.reference.prompt) is not None

    def has_other_magnitude(self) -> bool:
        pair = (self.number, self.wanted) if self.number is not None else ()
        return any(one.scale > 1 and one.value / one.scale == other.value for one in pair for other in pair)


@dataclass(frozen=True, slots=True)
class NumberReference(Reference):
    """A number, compared by value; two readings where another notation would make an answer the reference."""

    number: Number
    decimal: DecimalMark = "."
    tolerance: Fraction = Fraction(0)
    equal: Callable[[str, str], bool] | None = None
    """As in ``FormulaReference``."""
    rules: ClassVar[tuple[Rule[_Numeric], ...]] = (
        Rule("right", "is the number in the base asked for", "1010", "0b1010", _Numeric.is_in_base, "What is 10 in binary?"),
        Rule("right", "is the year of a date", "1984", "It was on 3 May 1984.", _Numeric.is_year_of_date),
        Rule("right", "is a sum of times", "65 min", "1 h 5 min", _Numeric.is_sum_of_times),
        Rule("unclear", "is related to a year", "1984", "before 1984", _Numeric.is_related_to_year),
        Rule("right", "has the magnitude asked for", "5", "$5 million", _Numeric.has_magnitude_asked, "How much, in millions?"),
        Rule("unclear", "may be of another era", "44 BC", "44", _Numeric.has_no_era),
        Rule("wrong", "goes the other way", "3% decrease", "It rose by 3%.", _Numeric.goes_other_way),
        Rule("wrong", "is a share of something else", "5% zinc", "5% copper", _Numeric.is_share_of_another),
        Rule("unclear", "may count something else", "5%", "5 apples", _Numeric.counts_otherwise),
        Rule("wrong", "is of another variable", "x = 5", "2x = 5", _Numeric.is_of_another_variable),
        Rule("unclear", "has a unit not asked for", "5", "5 km", _Numeric.has_unit_not_asked, "How many meters is it?"),
        Rule("unclear", "may be that of a page or an error", "42", "See page 42.", _Numeric.may_number),
        Rule("wrong", "is another version", "3.10", "3.1", _Numeric.is_other_version, "Which version has it?"),
        Rule("right", "is the ordinal asked for", "3", "She was third.", _Numeric.is_ordinal_asked, "Which place was it?"),
        Rule("wrong", "is a hundred times as much", "3", "300%", _Numeric.is_hundredfold, "By how many percent?"),
        Rule("right", "says that there are none", "0", "None", _Numeric.says_none, "How many errors are there?"),
        Rule(
            "unclear",
            "is not what has the name asked for",
            "$9",
            "The total is $9.\nThe tax is $2.",
            _Numeric.is_beside_what_is_asked,
            "What is the total?",
        ),
        Rule("right", "has this value", "1/2", "Answer: 50 %", _Numeric.agrees),
        Rule("right", "is the bound asked for", "4", "At least 4.", _Numeric.is_bound_asked, "What is the smallest number?"),
        Rule("unclear", "may be a comparison", "5", "He pays $5 for it, which is $1 less than I.", _Numeric.may_be_compared),
        Rule("right", "is the same ordinal", "3rd", "the third", _Numeric.is_same_ordinal),
        Rule("right", "is the same text", "42", "__42__", _Numeric.is_same_text),
        Rule(
            "unclear", f"is a formula, which match: auto works out; {NEEDS_MATH}", "120", r"\boxed{5!}", _Numeric.needs_algebra
        ),
        Rule("right", "is a formula for it", "120", r"\boxed{5!}", _Numeric.has_formula_for_it),
        Rule("right", "is exact before it is rounded", "2/9", "Answer: 2/9 ≈ 0.22", _Numeric.is_exact_before_rounding),
        Rule("unclear", "has a mark with two readings", "3.14", "Answer: 3,14", _Numeric.agrees_in_other_notation),
        Rule("unclear", "is the reference in another notation", "1.234", "1234", _Numeric.agrees_with_other_notation),
        Rule("right", "has the points of the scale", "4", "4/5", _Numeric.has_points, "Rate it from 1 to 5."),
        Rule("unclear", "may be points of a scale", "4", "4/5", lambda said: said.points),
        Rule("unclear", "may be of another magnitude", "5", "5 million", _Numeric.has_other_magnitude),
        Rule("wrong", "is another number", "42", "43", lambda said: said.number is not None),
        Rule("unclear", "is one of several", "80", r"\boxed{80 \text{ hens and } 16 \text{ pigs}}", _Numeric.is_one_of_several),
        Rule("unclear", "may be stated all the same", "4", "I do not know. However, it is 4.", _Numeric.is_stated_all_the_same),
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


def _counted(text: str, number: Number) -> tuple[str, list[str]]:
    """Return the unit of a number in a text, and the words behind both in the same clause, which may say what it counts."""
    known = number.unit or "%" * number.percent
    behind = _BEHIND.match(text.translate(QUOTES).rpartition(number.text)[2]) if number.text in text else None
    if behind is None or re.search("[/23]|°.", known):  # a unit of several words: per hour, square metres, degrees Celsius
        return known, []
    words = re.findall(r"[^\W\d_]+", behind[0])[:_MOST_COUNTED]
    return known, [*dropwhile(lambda each: unit_of(each) == known != "" or each.lower() in lexer.MAGNITUDES, words)]


def _is_form(one: str, other: str) -> bool:
    """Return whether two words begin alike, as forms of one do; in a script without spaces, where one is in two signs."""
    one, other = (re.sub("^[个個](?=.)", "", each.casefold()) for each in (one, other))
    if re.match(f"[{UNSPACED}]", one):
        return one[:2].startswith(other[:2]) or other[:2].startswith(one[:2])
    return one[:3] == other[:3]


def _dimension(unit: str) -> str:
    """Return what a unit measures, as the unit that others are multiples of; ``$`` for any money."""
    base = lexer.TO_BASE.get(unit, (unit, 1))[0]
    return "$" if {unit, base} & lexer.MONEY else base


def _kind_of(number: Number) -> str:
    """Return what the unit of a number is a multiple of; ``%`` for a percentage, ``$`` for any money."""
    unit = number.unit.partition("/")[0] if number.unit.partition("/")[0] in lexer.MONEY else number.unit
    return "%" if number.percent else _dimension(unit)


_BOUNDS: Final = tuple(
    (re.compile(rf"\b(?:{extreme})\b", re.IGNORECASE), re.compile(rf"\b(?:{bound}) (?=\d)", re.IGNORECASE))
    for extreme, bound in (
        (r"minim\w+|fewest|least|smallest|lowest|shortest", "at least|no (?:fewer|less) than"),
        (r"maxim\w+|most|largest|greatest|highest|longest", "at most|up to|no more than"),
    )
)
"""What a question asks for, and how an answer says it."""
_NAME_ASKED: Final = re.compile(
    r"\b[Ww]hat (?:is|was|are|were) (?:the |its |their )([a-z][a-z ]{2,40}?)(?: (?:of|in|for|on|at)\b.*)?\?"
)
"""A question for something by its name: ``What is the total?``."""
_EXTRACTED: Final = re.compile(
    r"\A\W*(?:please )?(?:extract|identify|retrieve|parse|read)\b(?!.*\?)", re.IGNORECASE | re.DOTALL
)
_RANGE: Final = re.compile(r"\d (?:to|through|until|or) \d")
_WORKED: Final = re.compile(r"\d!|\^|\\(?:binom|sqrt|log|ln)|\d\s*\*\*")
"""What a formula has that is left for the reader to work out; sums and products may be those of the question."""
_NO_VARIABLE: Final = r"(?!.*(?<![\\A-Za-z])[a-df-hj-z](?![A-Za-z])).*"
_FUNCTION: Final = re.compile(rf"{_NO_VARIABLE}(?:{FUNCTION}|\d choose \d)")
_CONSTANT: Final = re.compile(rf"{_FUNCTION.pattern}|{_NO_VARIABLE}(?:{CONSTANT}|\d[ ]?[*/]?[ ]?e\b)")
"""A formula without variables that is left to be worked out: ``2*sqrt(3)``; and one that can only be rounded: ``2π``."""
_POWER: Final = re.compile(r"[\d.]+(?:/[\d.]+)?\^[-+]?\d+")
"""What is read as a number, unless it is too large or has no value."""
_NONE: Final = re.compile(
    r"(?:none|nothing|zero)$|(?:(?:there|it|they|we) (?:is|are|was|were|has|have|had) )?"
    r"no (?:[a-z]+ )?([a-z]+)(?: (?:is|are|was|were|has|have|in|on|at) [a-z ]+)?$"
)
_PERCENT_ASKED: Final = re.compile(r"(?i)\bhow many per ?cent\b|\bwhat percentage\b")
_WORD: Final = re.compile(r"[^\W\d_]+|[$€£%]")
_YEAR: Final = re.compile(r"\s*\d{4}\s*")
_BEHIND: Final = re.compile(r"[^\w.,;:!?\n()\\]{0,4}(?![²³])[^.,;:!?\n()\d\\]{0,60}")
_MOST_COUNTED: Final = 4
"""Words behind a number that are looked at."""
_NO_COUNT: Final = re.compile(
    "|".join(any_of(each) for each in ("beside numbers", "auxiliaries", "before values", "article", "or", "but")), re.IGNORECASE
)
"""Words that may follow any number, and say nothing of what it counts."""
_SHARE_OF: Final = re.compile(r"[\d.,]+ ?% (?:of )?([a-z]{3,})")
_FALL: Final = re.compile(r"(?i)\b(?:down|fell|fall\w*|drop\w*|de(?:creas|clin)\w*|los[est]\w*|shr[au]nk)\b")
"""What makes a number negative next to a reference with a sign, or close to it where a change is asked for."""
_RISE: Final = re.compile(r"(?i)\b(?:up(?! to)|gr[eo]w\w*|ris(?:e|en|es|ing)|rose|increas\w*|gain\w*|climb\w*|profits?)\b")
_CHANGE: Final = re.compile(r"(?i)\b(?:chang|gr[eo]w|ris|rose|increas|gain|profit)\w*")
_ASKED: Final = re.compile(r"(?i)\bhow many ((?:[\w'-]+ ){0,4}[\w-]+)|\bin (?:US )?([a-z]+)")
_NUMBERED: Final = r"\b(page|section|question(?!:)|chapter|line|figure|table|error|attempt|port|version|ticket|note)"
_FAILED: Final = (
    r"^traceback \(|^\W*(?:(?:error|exception): (?=[a-z])|(?:n/a|unknown) ?[.,;:(])|(?:request|query|call)s? failed"
    r"|: \W?error\b"
)
NAMED_VALUE: Final = re.compile(r"(?:^|[\s$(])(\d*)([A-Za-z])\s*=[^=]*$")
_COMPARISON: Final = re.compile(r",\s(?:which (?:is|was) )?\W{0,3}\d[^,;]*? (?:less|more|fewer|\w+er) than [^;]*$")
_FROM_LAST: Final = re.compile(r"\b\w+[ -](?:from|to)[ -](?:the )?(?:last|end)\b")
_SEVERAL: Final = re.compile(r"\d[ ]*[a-z]{3,}[ ]+and[ ]+\d|\d (?:to|until|through) [A-Z][a-z/A-Z]+ \d")
"""Things with their numbers, or a span of time: ``80 girls and 16 boys``, ``1988 to June 1990``."""
_POINTS: Final = re.compile(r"(\d+) ?/ ?(3|4|5|7|10|100)")
"""Points of a scale, or a fraction."""


def shown_number(number: Number) -> str:
    """Return a number as written, and its value if that looks different."""
    value = numbers.format_value(number.value) + ("%" if number.percent else "")
    return shown(number.text) if number.text == value else f"{shown(number.text)} ({value[:SHOWN]})"
