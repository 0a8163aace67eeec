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
from tfgrpo.rewarders.text.numbers import MEANINGS, number_of, numbers_agree, ordinal
from tfgrpo.rewarders.text.rules import NEGATION, RELATED, SHOWN, Compared, ReadAnswer, denies, shown, verdict_by
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
        question = last_question(self.reference.prompt).partition("?")[0]
        prompt = self.reference.prompt
        is_in = rf"(?<![\d.,]){re.escape(self.wanted.text)}(?!\d|[.,]\d)"
        if _EXTRACTED.search(prompt) and re.search(is_in, question):  # it is to be read, not worked out
            question, prompt = (each.replace(self.wanted.text, " ") for each in (question, prompt))
        try:
            number = number_of(self.stated, self.reference.decimal, question, prompt)
        except RewardError:
            number = self._only_of_its_kind() if _kind_of(self.wanted) else None
            if number is None:
                raise
        else:
            number = (self._only_of_its_kind() if self._is_of_other_kind(number) else None) or number
        if number is not None and _FALL.search(self.reference.text) and number.value < 0 < self.wanted.value:
            return replace(number, value=-number.value)  # a decrease of 3%
        return replace(number, value=-abs(number.value)) if number is not None and self._falls(number) else number

    def _is_of_other_kind(self, number: Number | None) -> bool:
        if number is None:
            return False
        ours = _kind_of(number)
        if _kind_of(self.wanted):
            counts = re.search(rf"(?<![\d.,]){re.escape(number.text)} [a-z]{{3,}}s\b", self.stated.whole)
            return ours != _kind_of(self.wanted) if ours else counts is not None and not self.wanted.percent
        return ours in ("$", "%") and numbers.counts(self.reference.prompt)

    def _only_of_its_kind(self) -> Number | None:
        """Return the only number of the kind of the reference, as ``500 mg every 8 hours`` has one; none of the question."""
        text = plain_digits(self.text if self.stated.is_marked else self.stated.whole, self.reference.decimal)
        line = NumberLine.of(text)
        ours = [each.number for each in line.tokens if _kind_of(each.number) == _kind_of(self.wanted)]
        is_part = any(each.part or line.relation(each) for each in line.tokens)  # of a range, or a bound
        # What something is said to be behind it: it was 5 g, now it is 12 units.
        others = [each for each in line.tokens if ours and each.number not in ours and each.start > text.rfind(ours[-1].text)]
        is_part |= any(re.search(r"\b(?:is|are) (?:now |only )?$", line.text[: each.start]) for each in others)
        if len({each.value for each in ours}) != 1 or is_part or _RANGE.search(text):
            return None
        return ours[0] if self.equals(ours[0]) or ours[0].text not in self.reference.prompt else None

    def _falls(self, number: Number) -> bool:
        at, _, behind = self.text.partition(number.text)
        close, prompt = f"{at.rpartition(',')[2][-12:]}{behind[:12]}", self.reference.prompt
        falls_as_asked = _CHANGE.search(prompt) and not _FALL.search(prompt + self.reference.text) and _FALL.search(close)
        in_books = re.search(r"\([$€£]?[\d.,]+ ?%?\)\W*$", self.text) and self.wanted.value < 0  # brackets for a minus
        falls = in_books or _FALL.search(self.text) if re.match(r"[-+\u2212(]", self.reference.text) else falls_as_asked
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
        days = dates(plain(self.text)) if _YEAR.fullmatch(self.reference.text) else []
        return len(days) == 1 and {each[0] for each in days[0]} == {self.wanted.value}

    @cached_property
    def is_sum_of_times(self) -> bool | None:
        """Whether the only time of the text, such as ``1 h 45 min``, is the reference; None where it has no such time."""
        base, factor = lexer.TO_BASE.get(self.wanted.unit, ("", Fraction(1)))
        spans = durations(plain(self.text)) if base == "second" and len(re.findall(r"\d+", self.text)) > 1 else []
        units = {each.number.unit for each in NumberLine.of(self.text).tokens if _kind_of(each.number) == "second"}
        return spans == [{(self.wanted.value * factor,)}] or (False if len(spans) == 1 and len(units) > 1 else None)

    def is_related_to_year(self) -> bool:
        at = len(self.text.casefold().partition(self.reference.text)[0])
        return bool(_YEAR.fullmatch(self.reference.text) and RELATED.of(self.text.casefold(), at, at))

    def has_magnitude_asked(self) -> bool:
        magnitude = re.search(r"\b(?:in|how many) (thousand|million|billion|dozen)s?\b", self.reference.prompt, re.IGNORECASE)
        number, size = self.number, lexer.MAGNITUDES[magnitude[1].lower()] if magnitude and self.wanted.scale == 1 else 0
        if not size or number is None or not (number.unit in lexer.MONEY or (number.scale > 1 and not number.unit)):
            return False
        return self.equals(replace(number, value=number.value / size))

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
        (ours, things), (theirs, wanted) = _unit_and_things(text, number), _unit_and_things(bare, self.wanted)
        things = [each for each in things if (not _NO_COUNT.fullmatch(each) if len(each) > 1 else not each.islower())]
        if not things or not wanted:
            names = things and not unit_of(things[0]) and len(things[0]) > 1 and (len(things[0]) > 2 or not things[0].islower())
            return bool((names and theirs and not ours) or (wanted and ours and not theirs))
        among = [re.findall(r"[^\W\d_]+", each) for each in (bare, text)]
        others = (pair for pair in zip(things, wanted, strict=False) if not _is_form(*pair))
        return any(
            not any(_is_form(word, each) for word, words in zip(pair, among, strict=True) for each in words) for pair in others
        )

    def goes_other_way(self) -> bool:
        sides = [[bool(way.search(each)) for way in (_FALL, _RISE)] for each in (self.text, self.reference.text)]
        return sides in ([[True, False], [False, True]], [[False, True], [True, False]]) and self.agrees()

    def has_unit_not_asked(self) -> bool:
        number, prompt = self.number, last_question(self.reference.prompt).replace("percent", "%")
        unit = number and ("%" if number.percent else re.split("[/23]", number.unit)[0])
        if number is None or not unit or self.wanted.unit or self.wanted.percent:
            return False
        phrases = [(each[1] or each[2]).split() for each in _ASKED.finditer(prompt) if each[1] or unit_of(each[2])]
        units = {unit_of(word) for words in phrases for word in words} - {""}
        named = {unit_of(word) or word for word in _WORD.findall(prompt)}
        possible = {each for name in units or named for each in MEANINGS.get(name, (name,))}
        like = phrases or any(_dimension(each) == _dimension(unit) for each in possible)
        return bool(like and possible.isdisjoint((*MEANINGS.get(unit, (unit,)), number.unit)) and self.agrees())

    def is_other_version(self) -> bool:
        is_version, written = re.search(r"\bversion\b", self.reference.prompt), self.number and self.number.text
        return bool(is_version and written and re.fullmatch(r"\d+\.\d+", self.wanted.text) and written != self.wanted.text)

    @cached_property
    def formula(self) -> str:
        formula = re.split(r"\b(?:is|equals)\b", self.stated.text)[-1].strip(AROUND_FORMULA + "$")
        constant = _CONSTANT if "." in self.wanted.text else _FUNCTION  # what is rounded may be a multiple of π
        left = self.number is None and (_WORKED.search(formula) or constant.match(formula)) and not _POWER.fullmatch(formula)
        left = left and not is_in_prompt(formula, self.reference.prompt)
        return formula if left and not PROSE.search(re.sub(rf"\\[a-z]+|choose|{FUNCTION}", "", formula)) else ""

    def needs_algebra(self) -> bool:
        return self.formula != "" and self.reference.equal is None

    def has_formula_for_it(self) -> bool:
        equal = self.reference.equal if self.formula else None
        return equal is not None and equal(in_latex(self.formula), self.wanted.text)

    def may_number(self) -> bool:
        number = re.escape(self.number.text) if self.number is not None else "(?!)"
        word = re.search(_NUMBERED, self.text, re.IGNORECASE)  # most replies have none, and a pattern for each is slow
        word = word and re.search(rf"{_NUMBERED}[\"']?:? (?:no\.? )?{number}(?!\w)", self.text, re.IGNORECASE)
        failed = re.search(_FAILED, self.text if self.stated.is_marked else self.stated.whole, re.IGNORECASE)
        by_number = word and word[1] and re.search(rf"{word[1]}|where|which", self.reference.prompt, re.IGNORECASE)
        return bool((failed or (word and not by_number)) and self.agrees())

    def is_of_another_variable(self) -> bool:
        ours, theirs = (NAMED_VALUE.search(each) for each in (self.text, self.reference.text))
        return bool(ours and theirs and ours.groups() != theirs.groups())

    def is_beside_none(self) -> bool:
        behind = self.text.rpartition(self.number.text)[2] if self.number is not None else ""
        return self.agrees() and re.search(rf"\b(?:or|but)\b[^.;\n]*(?:{NEGATION.pattern})\W*$", behind) is not None

    def may_be_compared(self) -> bool:
        before, compared = _COMPARISON.subn("", plain_digits(self.text, self.reference.decimal))
        return compared > 0 and any(self.equals(each.number) for each in NumberLine.of(before).tokens)

    def is_beside(self) -> bool:
        # An earlier line may say what is asked for: "The total is $9.", above "The tax is $2.".
        name = None if self.stated.is_marked else _NAME_ASKED.search(self.reference.prompt)
        if name is None or self.number is None:
            return False
        is_it = rf"(?i)\b{re.escape(name[1])} (?:is|was|are|were|=|:) ([^\s*]*\d[\d,.]*)(?=.*\n)"
        match = re.search(is_it, self.stated.whole)
        other = numbers.only_number(match[1].rstrip(".,"), self.reference.decimal) if match else None
        return other is not None and not numbers_agree(other, self.number) and (self.agrees() or self.equals(other))

    def is_same_ordinal(self) -> bool:
        text = re.sub(r"\b\w+[ -](?:from|to)[ -](?:the )?(?:last|end)\b", "", plain(self.text))
        is_asked = re.search(r"\b(?:place|position|rank|which)\b", last_question(self.reference.prompt), re.IGNORECASE)
        is_alone = is_asked and not re.search(r"\d|\b(?:no|none|nobody|never)\b", text)
        wanted = {ordinal(self.reference.text)} | ({self.wanted.value} if is_alone else set())
        ordinals = {ordinal(each) for each in ORDINAL.findall(text)} - {None}
        return len(ordinals) == 1 and ordinals <= wanted and not denies(self.text)

    def is_hundredfold(self) -> bool:
        is_share = self.wanted.percent or abs(self.wanted.value) <= 1  # 0.5 may be 50%
        number = self.number if _PERCENT_ASKED.search(self.reference.prompt) and not is_share else None
        return number is not None and number.percent and number.value == 100 * self.wanted.value

    def says_none(self) -> bool:
        prompt = self.reference.prompt.lower()
        none = _NONE.match(plain(self.text)) if self.wanted.value == 0 and "how many " in prompt else None
        return bool(none and (none[1] is None or re.search(rf"how many (?:\w+ ){{0,2}}{none[1][:4]}", prompt)))

    def is_bound_asked(self) -> bool:
        question, text = last_question(self.reference.prompt), numbers.in_digits(self.stated.whole, self.reference.prompt)
        bare = next((bound.sub("", text) for extreme, bound in _BOUNDS if extreme.search(question)), text)
        with suppress(RewardError):
            number = numbers.answered_number(bare, self.reference.decimal) if bare != text else None
            return number is not None and self.equals(number)
        return False

    def is_in_base(self) -> bool:
        return is_same_in_base(self.reference.prompt, self.text, self.reference.text)

    def is_same_text(self) -> bool:
        return self.number is None and any(same_text(each, self.reference.text) for each in self.stated.candidates)

    def is_exact_before_rounding(self) -> bool:
        exact, sign, _ = re.sub(r"\\(?:approx|simeq)\b", "\u2248", self.text).partition("\u2248")
        number = numbers.answered_number(f"Answer: {exact}", self.reference.decimal) if sign else None
        return number is not None and self.equals(number)

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
        Rule("right", "is a sum of times", "65 min", "1 h 5 min", lambda it: it.is_sum_of_times),
        Rule("wrong", "is another sum of times", "45 min", "1 h 45 min", lambda it: it.is_sum_of_times is False),
        Rule("unclear", "is related to a year", "1984", "before 1984", _Numeric.is_related_to_year),
        Rule("right", "has the magnitude asked for", "5", "$5 million", _Numeric.has_magnitude_asked, "How much, in millions?"),
        Rule("unclear", "may be of another era", "44 BC", "44", _Numeric.has_no_era),
        Rule("wrong", "goes the other way", "3% decrease", "It rose by 3%.", _Numeric.goes_other_way),
        Rule("unclear", "may count something else", "5%", "5 apples", _Numeric.counts_otherwise),
        Rule("wrong", "is of another variable", "x = 5", "2x = 5", _Numeric.is_of_another_variable),
        Rule("unclear", "has a unit not asked for", "5", "5 km", _Numeric.has_unit_not_asked, "How many meters is it?"),
        Rule("unclear", "may be that of a page or an error", "42", "See page 42.", _Numeric.may_number),
        Rule("wrong", "is another version", "3.10", "3.1", _Numeric.is_other_version, "Which version has it?"),
        Rule("wrong", "is a hundred times as much", "3", "300%", _Numeric.is_hundredfold, "By how many percent?"),
        Rule("unclear", "is beside what is asked", "$9", "The sum is $9.\nTax is $2.", _Numeric.is_beside, "What is the sum?"),
        Rule("unclear", "may be that there is none", "42", "42 or unknown", _Numeric.is_beside_none),
        Rule("right", "has this value", "1/2", "Answer: 50 %", _Numeric.agrees),
        Rule("right", "is the bound asked for", "4", "At least 4.", _Numeric.is_bound_asked, "What is the smallest number?"),
        Rule("unclear", "may be a comparison", "5", "He pays $5 for it, which is $1 less than I.", _Numeric.may_be_compared),
        Rule("right", "is the same ordinal", "3", "She was third.", _Numeric.is_same_ordinal, "Which place was it?"),
        Rule("right", "is the same text", "42", "__42__", _Numeric.is_same_text),
        Rule(
            "unclear", f"is a formula, which match: auto works out; {NEEDS_MATH}", "120", r"\boxed{5!}", _Numeric.needs_algebra
        ),
        Rule("right", "is a formula for it", "120", r"\boxed{5!}", _Numeric.has_formula_for_it),
        Rule("right", "is exact before it is rounded", "2/9", "Answer: 2/9 ≈ 0.22", _Numeric.is_exact_before_rounding),
        Rule("unclear", "has a mark with two readings", "3.14", "Answer: 3,14", _Numeric.agrees_in_other_notation),
        Rule("unclear", "is the reference in another notation", "1.234", "1234", _Numeric.agrees_with_other_notation),
        Rule("right", "has the points of the scale", "4", "4/5", _Numeric.has_points, "Rate it from 1 to 5."),
        Rule("unclear", "may be points of a scale", "4", "4/5", lambda answer: answer.points),
        Rule("unclear", "may be of another magnitude", "5", "5 million", _Numeric.has_other_magnitude),
        Rule("wrong", "is another number", "42", "43", lambda answer: answer.number is not None),
        Rule("right", "says that there are none", "0", "No errors.", _Numeric.says_none, "How many errors are there?"),
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


def _unit_and_things(text: str, number: Number) -> tuple[str, list[str]]:
    """Return the unit of a number in a text, and the words behind both in the same clause, which may say what it counts."""
    unit = number.unit or "%" * number.percent
    behind = _BEHIND.match(text.translate(QUOTES).rpartition(number.text)[2]) if number.text in text else None
    if behind is None or re.search("[/23]|°.", unit):  # a unit of several words: per hour, square metres, degrees Celsius
        return unit, []
    words = re.findall(r"[^\W\d_]+", behind[0])[:4]
    return unit, [*dropwhile(lambda each: unit_of(each) == unit != "" or each.lower() in lexer.MAGNITUDES, words)]


def _is_form(one: str, other: str) -> bool:
    """Return whether two words begin alike, as forms of one do; in a script without spaces, where one is in two signs."""
    one, other = (re.sub("^[个個](?=.)", "", each.casefold()) for each in (one, other))
    if re.match(f"[{UNSPACED}]", one):
        return one[:2].startswith(other[:2]) or other[:2].startswith(one[:2])
    return one[:3] == other[:3]


def _dimension(unit: str) -> str:
    base = lexer.TO_BASE.get(unit, (unit, 1))[0]
    return "$" if {unit, base} & lexer.MONEY else base


def _kind_of(number: Number) -> str:
    """Return what the unit of a number is a multiple of; ``%`` for a percentage, ``$`` for any money."""
    unit = number.unit.partition("/")[0] if number.unit.partition("/")[0] in lexer.MONEY else number.unit
    return "%" if number.percent else _dimension(unit)


_NAME_ASKED: Final = re.compile(r"\b[Ww]hat (?:is|was|are|were) (?:the )?([a-z][a-z ]{2,40}?)(?: (?:of|in|for|on|at)\b.*)?\?")
# What a question asks for, and how an answer says it: the smallest number is "at least 42".
_BOUNDS: Final = tuple(
    (re.compile(rf"(?i)\b(?:{extreme})\b"), re.compile(rf"(?i)\b(?:{bound}) (?=\d)"))
    for extreme, bound in (
        (r"minim\w+|fewest|least|\w*(?:small|low|short)est", "at least|no (?:fewer|less) than"),
        (r"maxim\w+|most|\w*(?:larg|great|high|long)est", "at most|up to|no more than"),
    )
)
_EXTRACTED: Final = re.compile(
    r"\A\W*(?:please )?(?:extract|identify|retrieve|parse|read)\b(?!.*\?)", re.IGNORECASE | re.DOTALL
)
_RANGE: Final = re.compile(r"\d (?:to|through|until|or) \d")
# Sums and products are none: they may be those of the question.
_WORKED: Final = re.compile(r"\d!|\^|\\(?:binom|sqrt|log|ln)|\d\s*\*\*")
_NO_VARIABLE: Final = r"(?!.*(?<![\\A-Za-z])[a-df-hj-z](?![A-Za-z])).*"
_FUNCTION: Final = re.compile(rf"{_NO_VARIABLE}(?:{FUNCTION}|\d choose \d)")
# What can only be rounded: 2π.
_CONSTANT: Final = re.compile(rf"{_FUNCTION.pattern}|{_NO_VARIABLE}(?:{CONSTANT}|\d[ ]?[*/]?[ ]?e\b)")
# A power is read as a number, unless it is too large.
_POWER: Final = re.compile(r"[\d.]+(?:/[\d.]+)?\^[-+]?\d+")
_NONE: Final = re.compile(
    r"(?:none|nothing|zero)$|(?:(?:there|it|they|we) (?:is|are|was|were|has|have|had) )?"
    r"no (?:[a-z]+ )?([a-z]+)(?: (?:is|are|was|were|has|have|in|on|at) [a-z ]+)?$"
)
_PERCENT_ASKED: Final = re.compile(r"(?i)\bhow many per ?cent\b|\bwhat percentage\b")
_WORD: Final = re.compile(r"[^\W\d_]+|[$€£%]")
_YEAR: Final = re.compile(r"\s*\d{4}\s*")
_BEHIND: Final = re.compile(r"[^\w.,;:!?\n()\\]{0,4}(?![²³])[^.,;:!?\n()\d\\]{0,60}")
_NO_COUNT: Final = re.compile(
    "|".join(any_of(each) for each in ("beside numbers", "auxiliaries", "before values", "article", "or", "but")), re.IGNORECASE
)
_FALL: Final = re.compile(r"(?i)\b(?:down|fell|fall\w*|drop\w*|de(?:creas|clin)\w*|los[est]\w*|shr[au]nk)\b")
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
_POINTS: Final = re.compile(r"(\d+) ?/ ?(3|4|5|7|10|100)")


def shown_number(number: Number) -> str:
    """Return a number as written, and its value if that looks different."""
    value = numbers.format_value(number.value) + ("%" if number.percent else "")
    return shown(number.text) if number.text == value else f"{shown(number.text)} ({value[:SHOWN]})"
