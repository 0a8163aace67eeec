r"""Read which number a text states, in digits or in words, and compare numbers.

A part of something else is none: ``2\pi``, ``12:05``, ``2-5``; neither is one of several, as in ``Answer: 12 or 13``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import filterfalse, pairwise, product
from typing import Final, Self

from tfgrpo.rewarders.text.answers import BOX, VOCABULARY, Stated, any_of, conclusion_of, stated_answer, until_closing
from tfgrpo.rewarders.text.lexer import MAGNITUDES, MONEY, TO_BASE, UNITS, DecimalMark, Number, NumberLine, Token, plain_digits
from tfgrpo.rewarders.text.rules import Beside, Surroundings, Way, shown
from tfgrpo.stores.errors import RewardError

_LOOSE_SIGN: Final = re.compile(r"(?m)(^|=)[ \t]*([+-])[ \t]+")
_APPROXIMATELY: Final = re.compile(r"\u2248|\\(?:approx|simeq)(?![A-Za-z])")
_ALTERNATIVES: Final = re.compile(r"(?i),(?!\d{2,3}(?!\d))|[;&]|(?<![A-Za-z])(?:or|and)(?![A-Za-z])")
_OUT_OF: Final = re.compile(
    r"(?i)\b(?:out\s+|(?<!total |sists )(?<!sisted |verage )(?<!mainder )(?<!at the age ))of\s+"
    r"(?:(?:the|all|a\s+total\s+of)\s+)*$"
)
"""What the number behind it is the whole of: ``3 of the 12``, but not ``it consists of 12``."""
_CONCLUSION: Final = re.compile(
    r"(?i)\b(?:(?<!ained )(?<!\bor )so|thus|therefore|hence|i\.e(?=\.,? \W?\d[\d.,]*(?: \w+)?\W*$)"
    r"|(?<!\w )(?:in total|altogether)|(?:which|that) (?:is|makes|gives|leaves))\b"
)
_EXPRESSION: Final = re.compile(r"\s*(?=[\d.$€£])[\d\s.,$€£]+[-+*/×÷·][-+*/×÷·\d\s.,$€£]+")
_FRACTION: Final = re.compile(r"\s*\d+\s*/\s*\d+[\s.]*")
_BREAKDOWN: Final = re.compile(
    r"(?i)\n[ *#_]*(?:breakdown|details)[ *_]*:[ *_]*(?:\n[ \t]*(?:(?:[-*\u2022]|\d+[.)])[^\n]*)?)+\Z"
)
"""A list below an answer of the parts of a sum."""
_CLAUSE: Final = re.compile(r"[,;:]\s")
_WHERE: Final = re.compile(r"(=[^=.;]*?\d(?:[^\d=.,;]|,(?=\w))*)\b(?:that|where|when|if|satisfying)\b[^.;]*+[.;]?\s*$")
"""A clause behind a result with other equations: ``= 15 pairs that satisfy x + y = 9``."""
_IS: Final = re.compile(r"(?i)\b(?:is|are|(?:it|that|there|what|who)'s)[ ]{1,3}(?:now[ ]|only[ ]|about[ ])?$")
_REASON: Final = re.compile(r"(?i)\W*[$€£]?[\d.,]+(?: \w+)?,? (?:since|because|as)\b(?!.*\banswer\b)")
"""A number with a reason behind it."""
_MONTHS: Final = "|".join(name.title() for names in VOCABULARY["months"] for name in names.split() if len(name) > 2)
_DATE: Final = re.compile(
    rf"\b(?:(?:{_MONTHS})\.? \d{{1,2}}(?:st|nd|rd|th)?\b|\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{_MONTHS})\b)(?:,? \d{{4}}\b)?"
)
"""A day, whose numbers are no values: ``March 31, 2024``."""
_OF_YEAR: Final = re.compile(r"(?i)\b(?:in|since|by|until|of)[ ]$")
_IS_ALL: Final = re.compile(r"(?i)[^\d/*+^]{0,20}$|(?:[ ][a-z]+|(?<=[a-z%]))[ ](?:in|on|at|for|from|by|within|after|before)[ ]")
"""What may be behind a number that something is at present."""
_CONDITION: Final = re.compile(rf"(?i)\b(?:{any_of('conditions')})\b")
_BOLD: Final = re.compile(r"(?<!\*)\*\*(?!\s)([^*\n]+?)\*\*(?!\*)|(?<!_)__(?!\s)([^_\n]+?)__(?!_)")
_ENUMERATION: Final = re.compile(
    r"(?im)^[ \t>*_#|-]*(?:\(?(?P<number>\d{1,3})[.):](?=[ \t])|(?:step|part|case|option|question)[ \t]+\d+[.:)]?)"
)
"""Numbers of list items and steps, which are no values."""
_EMPHASIS: Final = re.compile(r"(?<!\w)_([^\s_][^_\n]{0,40})_(?!\w)")
REFUSAL: Final = re.compile(rf"\b(?:{any_of('refusals')})\b", re.IGNORECASE)
_FULL_STARS: Final = "\u2b50\u2605"
_STARS: Final = re.compile(f"(?=.*[{_FULL_STARS}])[{_FULL_STARS}\u2606\ufe0f ]+")
"""A rating in stars."""
_BESIDE_IT: Final = re.compile(r"(?m)(?<=\d),? (?:or (?:about|approximately|roughly) [\d.]+ ?%|of which\b)[^\n;]*$")
"""What a number is roughly, or a part of it."""
_FOOTNOTE: Final = re.compile(r"(?<=\d) ?\[\d\d?\](?!\w)")
REMARK: Final = re.compile(r"(?<=\S) \([^()\n]{0,80}[A-Za-z]{2}[^()\n]{0,80}\)")
"""Words in brackets behind an answer: ``42 (see page 7)``."""
TOTAL: Final = Surroundings(
    Beside(
        "sum",
        "total «42»",
        r"\b(?:total(?: (?!before|after|in\b)\w+){0,2}(?: of|[:,]| =)?|altogether,?|in (?:total|all)[:,])\s\W*",
    ),
    Beside("result", "which comes to «42»", r"\b(?:makes|we get|comes? to)\s\W{0,3}"),
    Beside("parts", "«42» eggs in total", "", r"(?: [^\W\d]+){0,4} (?:in (?:total|all)|altogether)\b"),
    flags=re.IGNORECASE,
)
"""Words that make a number the total of others."""
_ALONE: Final = Surroundings(
    Beside("operator", "×«3»", r"[/^<>~|×÷·⋅]|\S[ \t]*\*|[+-][ \t]+|[\w)\]][ \t]*[+-]", r"[ \t$]*[|!]"), look=9, gap=r"[ \t$]*"
)
"""What makes a number next to nothing but words and units no single number."""
_BESIDE: Final = re.compile(  # constants, functions, commands and relations that make a number a part of something else
    r"\\(?!(?:text|math|mbox|rm\b|bf\b|underline|q?quad|degree|circ|euro|pounds))[A-Za-z]"
    r"|[√∛∜⌈⌊∞±≈≠≤≥\u0391-\u03a8\u03b1-\u03bb\u03bd-\u03c9]"
    r"|(?<![A-Za-z])(?i:sqrt|log|ln|exp|sin|cos|tan|pi|inf)(?![A-Za-z])"
)
_WORD_BEFORE: Final = re.compile(r"\D*?(?P<word>[^\W\d_]+)[ \t(:,-]{0,3}(?=[+-]?\d)")
_VALUE_FOLLOWS: Final = re.compile(any_of("before values"), re.IGNORECASE)
"""Words before a number that is a value; behind any other it is a part of a name, unless a unit follows."""
_NAMED_BY_NUMBER: Final = re.compile(
    r"\b0[xX][\da-fA-F]+|\d-[A-Z]{2}|\d(?:st|nd|rd|th)[ ]\w|§|\d:[ ]|[a-z][ ](?:once|twice|\w+[ ]times[ ]|daily|weekly)"
    r"|^[A-Z]\w+(?: [A-Z]\w+)*, (?:in|who|which)\b[\w ]* \d|^[Aa]n? (?:\w+ )+circa "
    r"|[A-Za-z]\)\d|^[A-Z][a-z]*\. \d+ [A-Z]{2}|^[2-6][GD]$"
    r"|\w\W{1,3}\((?:1[5-9]|20)\d\d\)\W*$"
    r"|\d(?:-|[ \t]+)(?!(?:Euro?|Dollar|Prozent|Grad|Celsius|Mio|Mrd)s?\b)[A-Z][a-z]{2}"
)
"""Digits before a capitalized word, and others that are no value: ``12 Angry Men``, ``20th century``, ``0xff``."""
_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\[|[ ]?(?:\*\*?|//?|%)[ ]?\d)|://|^[a-z_][\w.-]+=\S+$|(?:^|[ ])--?[a-z][\w-]*[ =]\d|\d\d/\d\d [a-z]"
)
"""Digits within code, a command or an address, and two measures: ``xs[-1]``, ``timeout=30``, ``head -n 5``, ``120/80 mmHg``."""
_BOUND: Final = re.compile(rf"(?i)\b(?:{any_of('bounds')})\b|^[<>]")
_WITH_COMMAS: Final = re.compile(r"[(\[][^()\[\]]*\d,\d[^()\[\]]*[)\]]")
"""A pair, or an interval."""
_UNIT_POWER: Final = re.compile(r"(?<=[A-Za-z])[ \t]*\^[ \t]*[+-]?\d\b")
_SUBSCRIPT: Final = re.compile(r"(?<=[A-Za-z])_\w+")
_UNITS: Final[Mapping[str, int]] = VOCABULARY["numbers"]
_ORDINALS: Final[Mapping[str, int]] = {f"{re.sub('y$', 'ie', word)}th": value for word, value in _UNITS.items()} | VOCABULARY[
    "ordinals"
]
_PARTS: Final = {f"{name}s": value for name, value in _ORDINALS.items()} | {
    name: size for names, size in VOCABULARY["parts"].items() for name in names.split()
}
MEANINGS: Final[Mapping[str, list[str]]] = VOCABULARY["meanings"]
"""Units of which a word is one or another; a reference in dollars names those of the USA."""
_ABROAD: Final = {
    word: value
    for names in VOCABULARY["numbers abroad"]
    for value, word in enumerate(names.split(), start=2)
    if word not in ("due", "dos", "elf", "once", "otto", "sei", "sept", "six")  # which are words in other languages
}
_NOT_ALONE: Final = (
    rf"\b(?:{any_of('not')}|{any_of('bounds')}|mil\w*|cent\w*|cien\w*|hundert\w*|tausend\w*"
    r"|minus|moins|menos|meno|und|et|y|e|als)\b"
)
"""What makes a number in words of another language a part of something else."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_TIMES: Final = {"once": 1, "twice": 2, "thrice": 3}
_WORD_OF_NUMBER: Final = "|".join((*_UNITS, *(name for name in MAGNITUDES if len(name) > 5)))
_SPELLED: Final = re.compile(
    rf"(?i)(?<![\w-])(?:(?<!at )once(?! (?:upon|again|more|he|she|it|they)\b)|twice|thrice|(?:{_WORD_OF_NUMBER})"
    rf"(?:(?:[ -]|(?<=hundred) and |(?<=thousand) and )(?:{_WORD_OF_NUMBER}|{'|'.join(_PARTS)}))*)(?![\w-])"
)
"""A number in words within a text, but for that of ``two-digit``."""
_WORD_FIRST: Final = re.compile(
    r"\W*([A-Z][a-z]+(?:-[a-z]+)?(?: [a-z]+)?)\s*\((?!wrong|incorrect|no\b|it is|actually)[^()\n]*\d[^()\n]*\)\W*$"
)
"""A number in words with a remark: ``Eight (not nine, since 2006)``."""
_DIGITS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE: Final = re.compile(r"(?<=\w)[.!?](?=\s)|\n")
"""The end of a sentence."""
_TAKEN_BACK: Final = re.compile(rf"(?i)\b(?:not|wrong|incorrect)\b|n't\b|{REFUSAL.pattern}")
WHEN: Final = re.compile(
    r"(?i)(?:^|[.:?!\n])\W{0,9}when (?:was|were|did|do|does|is|are|will|has|had)\b|\b(?:what|which) (?:calendar )?year\b"
)
"""A question for a year: ``When was it made?``, ``In what year …``."""
_YEAR_LIKE: Final = re.compile(r"[12]\d{3}")
_THINGS: Final = re.compile(r" (?:people|men|women|(?!(?:ha|i|wa|a)s\b)[a-z]+s)\b")
_PARTS_FOLLOW: Final = re.compile(r"[^\d:.;]*(?:: (?=[^.]*\d)|, (?:including|of which)\b)")
"""What is behind the number of all: ``4 chambers: 2 atria and 2 ventricles``."""
_RATE: Final = re.compile(r"(?: [a-z]+)? (?:per|each|apiece)\b")
_HOW_MANY: Final = re.compile(
    r"(?i)\b(?:how many|number of) (?:[\w'-]+ ){0,3}?"
    r"(people|men|women|children|feet|teeth|fish|(?!(?:ha|i|wa|doe)s\b)[a-z]+s)\b"
)
"""What a question asks to count: ``episodes`` of "How many episodes are there?"."""
_MOST_WORDS: Final = 14
_NO_NUMBER: Final = frozenset({"no", "any", "every", "each", "this", "that", "which", "the", "another", "some"})
"""Words before ``one`` where it is a pronoun."""
_CHINESE: Final = re.compile(
    "(?<![\u3400-\u9fff])([〇零一二两兩三四五六七八九十百千万萬亿億]+)[个個元人年岁歲次只天本块塊]?(?![\u3400-\u9fff])"
)


def answered_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number that an output states, as ``number_of`` does; None when it states none."""
    stated = stated_answer(text)
    return None if stated is None else number_of(stated, decimal)


def number_of(stated: Stated, decimal: DecimalMark = ".", asked: str = "", prompt: str = "") -> Number | None:
    r"""Return the number of what an output states; None for none.

    Of a marked sentence it is the only number that the ``prompt`` does not have, else what the sentence concludes with.
    Without a mark it is the only number of the text, else the one that the last line concludes with, else the only one that
    is not ``asked``, in the question; numbers in words count where digits are those of the question. A part of something
    else, as in ``12\pi``, is none, and neither is one of several, as in ``Answer: 12 or 13``. Raises ``RewardError`` where
    several numbers are stated and no line concludes with one.
    """
    text, whole = (_BESIDE_IT.sub("", _FOOTNOTE.sub("", each)) for each in (stated.text, stated.whole))
    stated = replace(stated, text=text, whole=whole)
    if stars := _STARS.fullmatch(text):
        return Number(Fraction(sum(map(stars[0].count, _FULL_STARS))), percent=False, text=stars[0])
    if not stated.is_marked:
        above = _BREAKDOWN.sub("", stated.whole)
        leading = _WORD_FIRST.match(stated.text)
        stated = stated if above == stated.whole else stated_answer(above) or stated
        written = _beside_known(stated.text, decimal, asked)
        stated = replace(stated, text=written, whole=stated.whole.replace(stated.text, written))
        return (number_in_words(leading[1]) if leading else None) or _concluded_number(stated, decimal, asked, prompt)
    read = boxed_number if stated.source == "box" else stated_number
    text = REMARK.sub("", _APPROXIMATELY.sub("=", stated.text))
    is_sentence = stated.source != "box" and "=" not in text
    written = _beside_known(text, decimal, asked) if is_sentence else text
    found = _number_of_sentence(written, decimal, asked, prompt) if is_sentence else None
    found = found or read(text, decimal) or number_in_words(text) or read(stated.text, decimal)
    return found or (only_number(written, decimal) if written != text else None)


@lru_cache(maxsize=4_096)  # a plan reads each reference three times, and each attempt again
def reference_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a reference; None when it is no single number as a whole.

    The text after the last ``####``, else the part that states an answer, has to be a number with words and units.
    """
    stated = stated_answer(text.rpartition("####")[2])
    if stated is None:
        return None
    box = BOX.search(stated.whole)
    if box is None:
        statement = stated.text if stated.is_marked else stated.whole
        named = _WITH_COMMAS.search(statement) or (
            not stated.is_marked and ("\n" in statement or _is_name(statement) or _BOUND.search(statement))
        )
        found = None if named else only_number(statement, decimal) or _reference_in_words(statement)
    else:
        behind = stated.whole[box.end() :]
        inside = until_closing(behind)
        several = BOX.search(behind, len(inside)) or _WITH_COMMAS.search(inside)
        found = None if several else only_number(inside, decimal)
    return None if found is None or found.abbreviated else found


def _is_name(text: str) -> bool:
    """Return whether the digits of a text belong to a name or a structure: ``Apollo 11``, ``50 Cent``, ``{"age": 2}``."""
    hyphenated = re.search(r"\d-([a-z]+)", text)  # 2-methylpropane, but not a 2-year term
    joined = hyphenated and hyphenated[1] not in UNITS
    if joined or re.match(r"[{\[].*['\"]", text) or _NAMED_BY_NUMBER.search(text) or _CODE.search(text):
        return True
    word = _WORD_BEFORE.match(re.sub(r"\\[dtc]?frac", " ", text))
    if word is None or _VALUE_FOLLOWS.fullmatch(word["word"]):
        return False
    unit = _WORD.search(text, word.end())
    if unit is None or len(unit[0]) < 2 or word["word"].lower() != word["word"]:
        return True
    return not word.start("word") and unit[0] not in UNITS  # type 2 diabetes, but not costs 5 dollars


def _reference_in_words(text: str) -> Number | None:
    """Return the number of a reference in words: with one noun at most, and no name such as ``Seven Samurai``."""
    number = number_in_words(text)
    if number is None:
        return None
    rest = [each for each in _WORD.findall(text)[len(number.text.split()) :] if each.lower() not in ("and", "percent")]
    last = number.text.split()[-1]
    return None if len(rest) > 1 or re.search(r"\s[A-Z]", text) or (rest and last in _PARTS) else number


class _Values(NumberLine):
    """The numbers of a line, but those of times, dates and ranges."""

    @classmethod
    def of(cls, text: str) -> Self:
        line = super().of(text)
        dated = [found.span() for found in _DATE.finditer(text)] if len(line.tokens) > 1 else []
        tokens = [each for each in line.tokens if each.part != "span"]
        undated = [each for each in tokens if not any(begin <= each.start < end for begin, end in dated)]
        return line._replace(tokens=undated or tokens)

    def lead(self, token: Token) -> str:
        """Return the characters before a number that say what it is."""
        return self.text[max(0, token.start - 60) : token.start]

    def behind(self, pattern: re.Pattern[str]) -> list[Token]:
        """Return the numbers behind the last occurrence of a pattern; all without any."""
        at = max((found.end() for found in pattern.finditer(self.text)), default=0)
        return [each for each in self.tokens if each.start >= at]

    def before(self, pattern: re.Pattern[str]) -> list[Token]:
        """Return the numbers before a pattern at the beginning; none without it."""
        found = pattern.match(self.text)
        return [each for each in self.tokens if found is not None and each.end <= found.end()]

    def is_year(self, token: Token) -> bool:
        """Return whether a number is the year of something: ``in 2021``."""
        return bool(re.fullmatch(r"(?:1[5-9]|20)\d\d", token.number.text) and _OF_YEAR.search(self.lead(token)))

    def undated(self) -> list[Token]:
        """Return the numbers but for years; nothing where all may be years."""
        has_other = any(not _YEAR_LIKE.fullmatch(each.number.text) for each in self.tokens)
        return [*filterfalse(self.is_year, self.tokens)] if has_other else []

    def present(self) -> list[Token]:
        """What something is at present, at the end of the last clause; nothing where the line has a condition."""
        clause = [] if _CONDITION.search(self.text) else self.behind(_CLAUSE)
        ends = [each for each in clause if _IS.search(self.lead(each)) and _IS_ALL.match(self.text, each.end)]
        return [*filterfalse(self.is_bracketed, ends)]

    def is_total(self, token: Token) -> bool:
        """Return whether a number is what another is out of: ``3 of the 12``."""
        return _OUT_OF.search(self.lead(token)) is not None

    def left(self) -> list[Token]:
        """Return the numbers before the only ``=``, where an expression follows."""
        left, _, right = self.text.partition("=")
        is_worked = _EXPRESSION.fullmatch(right) and not _FRACTION.fullmatch(right)
        return [each for each in self.tokens if each.end <= len(left)] if is_worked else []

    def equal(self) -> list[Token]:
        """Return the numbers behind the last ``=``, but for that of a clause behind a result."""
        until = len(_WHERE.sub(r"\1", self.text, count=1))
        at = max(self.text.rfind(sign, 0, until) for sign in ("=", "\u2248", r"\approx"))
        return [each for each in self.tokens if 0 <= at < each.start < until]

    def total(self) -> list[Token]:
        """Return the last number, or the first with its parts behind a colon."""
        first = [each for each in self.tokens[:1] if re.match(r"[^\d.]*(?:[:(]|, (?:with )?(?=\d))", self.text[each.end :])]
        ends = (*first, *self.tokens[-1:])
        return [each for each in ends if TOTAL.of(self.text, each.start, each.end) and not self.is_total(each)]

    def is_bracketed(self, token: Token) -> bool:
        opened, closed = self.text.rfind("(", 0, token.start), self.text.find(")", token.end)
        return opened >= 0 <= closed and not re.search("[()]", self.text[opened + 1 : closed])


WAYS: Final[tuple[Way[_Values, Iterable[Token]], ...]] = (
    Way("the only one", "It costs 42 dollars.", lambda line: line.tokens),
    Way("what something is", "The bill for 3 people is 42 dollars.", _Values.present),
    Way("before =", "42 = 6 × 7", _Values.left),
    Way("behind =", "6 × 7 = 42", _Values.equal),
    Way("behind so", "7 times 6 is asked, so 42.", lambda line: filterfalse(line.is_total, line.behind(_CONCLUSION))),
    Way("outside brackets", "It has 42 (6 rows, 7 each).", lambda line: filterfalse(line.is_bracketed, line.tokens)),
    Way("before its reason", "42, since 6 groups of 7 are there", lambda line: line.before(_REASON)),
    Way("but for a year", "In 2021 they won 42 of them.", _Values.undated),
    Way("the total", "12 on Monday and 30 on Tuesday, 42 in total", _Values.total),
)
"""How a line with several numbers concludes with one, the surest first."""


def _concluded_number(stated: Stated, decimal: DecimalMark, asked: str, prompt: str) -> Number | None:
    """Return the number of a text without a mark: its only one, else that of its last line."""
    listed = _without_items(_EMPHASIS.sub(r"\1", plain_digits(stated.whole, decimal)))
    lines = [_Values.of(each) for each in listed.split("\n")]
    tokens = [token for line in lines for token in line.tokens]
    numbers = [token.value for token in tokens]
    counted = [*numbers, *(token.number for token in tokens[-1:] if token.part == "bound")]
    if len({number.value for number in counted if number is not None}) > 1:
        first, last = (_bare_number(line, decimal) for line in (stated.whole.partition("\n")[0], stated.text))
        if first is not None and (last is None or last.value != first.value):
            if last is not None and not re.match(r"\W*[Tt]otal\b", stated.text):
                raise RewardError(f"the first line has {first.text}, and the last {last.text}")
            return last or first
        ends = enumerate(reversed(stated.whole.split("\n")))
        behind = next((at for at, each in ends if each.strip() == stated.text), 0)
        *above, line = lines[: len(lines) - behind]
        if not line.tokens and not _TAKEN_BACK.search(line.text):  # a farewell
            line = next((each for each in reversed(above) if each.tokens), line)
        bold, anywhere = ([found[1] or found[2] for found in _BOLD.finditer(each)] for each in (stated.text, stated.whole))
        if len(bold) == 1 and (spelled := number_in_words(bold[0])):
            return spelled
        known = _numbers_in(asked, decimal)
        line = _asked_for(line, asked, known | _numbers_in(prompt, decimal))
        fresh = [each for each in line.tokens if (each.number.value, "/" in each.number.text) not in known] if known else []
        inside = [token for each in bold or anywhere for token in _Values.of(plain_digits(each, decimal)).tokens]
        return _last_line_number(line, *((inside, fresh) if bold else ((), fresh, inside)))
    if not numbers:
        return number_in_words(stated.text) or number_in_words(stated.whole.partition("\n")[0])
    # The last one may be a part of something else, which is then what the text states.
    concluded = conclusion_of(stated.whole)
    if not REFUSAL.search(concluded if re.search(r"\d", concluded) else stated.whole):
        return numbers[-1]
    if "\n" in stated.whole and re.search(r"\d", stated.text) and not REFUSAL.search(stated.text):
        raise RewardError(f"{shown(stated.whole)} may state no answer")
    return None


@lru_cache(maxsize=64)  # each attempt at an item has the same question
def _numbers_in(question: str, decimal: DecimalMark) -> frozenset[tuple[Fraction, bool]]:
    """Return the numbers of a question, each with whether it is a fraction."""
    tokens = NumberLine.of(plain_digits(question, decimal)).tokens
    return frozenset((token.number.value, "/" in token.number.text) for token in tokens)


def _number_of_sentence(text: str, decimal: DecimalMark, asked: str, prompt: str) -> Number | None:
    """Return the number that a sentence with several states; None where the first one counts, as in ``42 in 3 steps``.

    It is the only one that the prompt does not have, else what the line concludes with. Raises ``RewardError`` for neither.
    """
    sentence = next((each for each in _SENTENCE.split(text) if re.search(r"\d", each)), "")
    line = _Values.of(plain_digits(sentence, decimal))
    known = {*_DIGITS.findall(plain_digits(prompt, decimal))}
    short = len(sentence.split()) <= 3 and sentence.isascii()
    if len({each.number.value for each in line.tokens}) < 2 or short or re.match(r"\W*(?:n?either|not)\b", sentence):
        return None
    if any(each.value is None for each in line.tokens):
        return None  # a part of something else, or one of several answers
    asked_for = _asked_for(line, asked, _numbers_in(asked, decimal)).tokens
    if len({each.number.value for each in asked_for}) == 1:
        told = {each.number.value for each in line.tokens} - {value for value, _ in _numbers_in(prompt, decimal)}
        if WHEN.search(asked) and len(told) > 1:
            raise RewardError(f"{shown(sentence)} may state more than {asked_for[0].number.text}")
        return asked_for[0].value
    fresh = [each for each in line.tokens if known and known.isdisjoint(_DIGITS.findall(each.number.text))]
    if re.match(r"\W*\d", line.text):
        is_first = line.tokens[0] in fresh or len({each.number.value for each in fresh}) != 1
        return None if is_first else fresh[0].value
    concluded, first = _last_line_number(line, fresh), (fresh or line.tokens)[0]
    is_stated = line.is_year(first) or _IS.search(line.lead(first))
    if concluded is not None and concluded.value != first.number.value and is_stated:
        raise RewardError(f"{shown(sentence)} may state {first.number.text} or {concluded.text}")
    return concluded


def _without_items(text: str) -> str:
    """Return a text without the numbers of its list items and steps; ``42. It follows`` is no item without a 41st."""
    following = {0, 1}

    def dropped(found: re.Match[str]) -> str:
        number = found["number"]
        if number is not None and int(number) not in following:
            return found[0]
        following.add(int(number or 0) + 1)
        return ""

    return _ENUMERATION.sub(dropped, text)


def _bare_number(line: str, decimal: DecimalMark) -> Number | None:
    """Return the number that a line is, but for a unit and a word with a colon before it; no line of a list."""
    said = re.sub(r"^(?:[Tt]otal[\w ]*|[A-Za-z]+):\s*", "", line.strip(" *_`"))
    listed = re.match(r"[-\u2022]\s|\d+[.)]\s", line.strip())
    is_one = len(said.split()) <= 3 and not listed and re.match(r"[-+$€£¥]*[\d.]", said)
    return only_number(said, decimal) if is_one and not said.endswith((":", ",", "?")) else None


def _asked_for(line: _Values, asked: str, known: Container[tuple[Fraction, bool]]) -> _Values:
    """Return a line with the years alone where a question asks when, and with what it asks to count where else are years."""
    others = {
        each
        for each in line.tokens
        if (each.number.value, "/" in each.number.text) in known
        or _RATE.match(line.text, each.end)
        or (each.number.unit in MONEY and counts(asked))
    }
    years = [each for each in line.tokens if _YEAR_LIKE.fullmatch(each.number.text) and each not in others]
    if WHEN.search(asked):
        return line._replace(tokens=[each for each in years if not _THINGS.match(line.text, each.end)] or line.tokens)
    of_it = [each for each in line.tokens if each not in others and _counted(asked).match(line.text, each.end)]
    whole = [each for each in of_it if _PARTS_FOLLOW.match(line.text, each.end)]
    is_only = {*line.tokens} == {*others, *years, *of_it}
    return line._replace(tokens=whole or (is_only and of_it) or line.tokens)


def counts(prompt: str) -> bool:
    """Return whether a question is for how many things there are, not for money."""
    found = _HOW_MANY.search(prompt)
    return found is not None and UNITS.get(found[1].lower()) not in MONEY


@lru_cache(maxsize=64)
def _counted(asked: str) -> re.Pattern[str]:
    """Return a pattern for what a question asks to count, behind its number."""
    found = _HOW_MANY.search(asked)
    stem = re.escape(re.sub("(?:ie|e)?s$", "", found[1])) if found else "(?!)"
    return re.compile(rf"(?: (?!(?:of|the|in|and)\b)[\w'-]+){{0,2}}? {stem}\w{{0,3}}\b", re.IGNORECASE)


def in_digits(text: str, asked: str) -> str:
    """Return a text with its numbers in words in digits; ``one`` only before what the question asks to count."""
    counted = _counted(asked)

    def written_out(found: re.Match[str]) -> str:
        times = _TIMES.get(found[0].lower())
        if times is not None:
            return f"{times} times" if "times" in asked.lower() else found[0]
        number = _number_in_english(found[0])
        is_pronoun = found[0].lower() == "one" and not counted.match(text, found.end())
        return found[0] if number is None or is_pronoun else format_value(number.value)

    return _SPELLED.sub(written_out, text)


def _beside_known(text: str, decimal: DecimalMark, asked: str) -> str:
    """Return a text with its numbers in words in digits where it has no digits but those of the question, and years."""
    if not _SPELLED.search(text) or len(text.split()) > 3 * _MOST_WORDS:
        return text
    known = {value for value, _ in _numbers_in(asked, decimal)}
    line, written, counted = NumberLine.of(plain_digits(text, decimal)), in_digits(text, asked), _counted(asked)
    if not line.tokens:
        return text if number_in_words(text) else written
    is_counted = any(counted.match(written, found.end()) for found in _DIGITS.finditer(written))
    years = [each for each in line.tokens if _YEAR_LIKE.fullmatch(each.number.text) and not counted.match(line.text, each.end)]
    known |= {each.number.value for each in years if is_counted}
    return written if {each.number.value for each in line.tokens} <= known else text


def _last_line_number(line: _Values, *others: Sequence[Token]) -> Number | None:
    """Raise ``RewardError`` for several."""
    surest, *ways = (way.of(line) for way in WAYS)
    for stated in (surest, others[0], *ways, *others[1:]):
        numbers = [(token.value, token.part) for token in stated]
        if len({number and number.value for number, _ in numbers}) == 1 and numbers[-1][1] != "bound":
            return numbers[-1][0]
    several = " and ".join(dict.fromkeys(token.number.text for token in line.tokens)) or "none"
    raise RewardError(f"of several numbers none is clearly the answer: {several}"[:200])


def stated_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a short statement such as ``x = 1,080 km``: the first after the last ``=`` of a line.

    Parts around ``=`` are tried from the last to the first; arithmetic (``3 * 12``) is skipped. The first line with a
    number counts; None without any.
    """
    for each in _LOOSE_SIGN.sub(r"\1\2", plain_digits(text, decimal)).splitlines():
        line = NumberLine.of(each)
        if "root" in map(line.relation, line.tokens):
            return None
        edges = [-1, *(found.start() for found in re.finditer("=", line.text)), len(line.text)]
        for begin, end in reversed([*pairwise(edges)]):
            first = next((token for token in line.tokens if begin < token.start < end), None)
            refused = first and REFUSAL.search(line.text, begin + 1, first.start)
            if first and first.value and not refused and not line.relation(first):
                return first.number
    return None


def only_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    r"""Return the single number of a text with words and units, or after its ``=``; None for any other text.

    ``3, 7``, ``2\pi``, ``2+3i``, ``5!``, ``2x``, ``12:05`` and ``x = 3 or x = 7`` are no single number.
    """
    left, equals, stated = plain_digits(text, decimal).rpartition("=")
    name = _SUBSCRIPT.sub("", left)
    named = not re.search(r"[\d+*/^<>×÷·⋅!-]|(?:\b[A-Z]{4,}\b.*){2}", name) or not re.search("[A-Za-z]", name)
    return None if equals and (not named or re.search("[,;=]", name)) else _single_number(stated)


def boxed_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the single number of a box, after its last ``=``; None for any other content, such as ``x = 3 or x = 7``."""
    text = NumberLine.of(_LOOSE_SIGN.sub(r"\1\2", plain_digits(text, decimal))).text
    several = sum(re.search(r"\d", part) is not None for part in _ALTERNATIVES.split(text)) > 1
    last = next((part for part in reversed(text.split("=")) if re.search(r"\d", part)), "")
    return None if several else _single_number(last)


def ordinal(text: str) -> int | None:
    """Return the number of a text that is an ordinal: ``3rd``, ``the third``, ``twenty-first``; None for any other text."""
    said = re.fullmatch(r"\W*(?:the )?(?:(\d+)(?:st|nd|rd|th)|(?:([a-z]+ty)[ -])?([a-z]+))\W*", text.casefold())
    if said is None or said[1]:
        return int(said[1]) if said else None
    ones = _ORDINALS.get(said[3])
    return ones if ones is None or not said[2] else _UNITS.get(said[2], 0) + ones


def roman(text: str) -> int | None:
    """Return the number of a Roman numeral of two signs or more; None for any other text."""
    if not re.fullmatch("(?=..)M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})", text):
        return None
    sizes = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[sign] for sign in text]
    return sum(-size if size < following else size for size, following in zip(sizes, [*sizes[1:], 0], strict=True))


def number_in_words(text: str) -> Number | None:
    """Return the number of a short text in words without digits: ``one half``, ``minus forty-two``, ``achtzehn``."""
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)?", text)]
    abroad = [word for word in words if word in _ABROAD]
    other = len(abroad) == 1 and len(words) <= _MOST_WORDS // 2 and not re.search(rf"\d|{_NOT_ALONE}", text.casefold())
    english = _number_in_english(text)
    return Number(Fraction(_ABROAD[abroad[0]]), percent=False, text=abroad[0]) if other and english is None else english


def _number_in_english(text: str) -> Number | None:
    whole, and_a, part = text.casefold().partition(" and a ")
    size, scale = (*(word.strip(".*") for word in part.split()), "", "")[:2]
    if and_a and size in _PARTS and (ones := _number_in_english(whole)):
        value = (ones.value + Fraction(1, _PARTS[size])) * (MAGNITUDES.get(scale, 1) if len(scale) > 1 else 1)
        return replace(ones, value=value, text=f"{ones.text}{and_a}{part}")
    if (found := _CHINESE.search(text)) and not _CHINESE.search(text, found.end()):
        return Number(Fraction(_chinese_value(found[1])), percent=False, text=found[1])
    words = [word.casefold() for word in _WORD.findall(text)]
    if re.search(r"\d", text) or len(words) > _MOST_WORDS or ordinal(text) is not None:
        return None
    spelled = [word for word in words if word in _UNITS or word in _PARTS or (word in MAGNITUDES and len(word) > 2)]
    start = words.index(spelled[0]) if spelled else 0
    inside = [word for word in words[start:] if word != "and"][: len(spelled)]
    before = words[start - 1] if start else ""
    pronoun = spelled == ["one"] and (len(words) > start + 2 or before in _NO_NUMBER)
    bound = spelled and re.search(rf"\b(?:{any_of('bounds')}) {spelled[0]}\b", text.casefold())
    scaled = spelled and spelled[0] in MAGNITUDES and before not in ("a", "an")
    if not spelled or inside != spelled or pronoun or bound or before in ("not", "never") or scaled:
        return None
    value = _spelled_value(spelled)
    if value is None:
        return None
    negative = start > 0 and words[start - 1] in ("minus", "negative")
    signed, percent = -value if negative else value, "percent" in words or "%" in text
    unit = next((UNITS[word] for word in words[start:] if word in UNITS and "per" not in words), "")
    return Number(signed, percent=percent, text=" ".join(spelled), unit=unit)


def _chinese_value(signs: str) -> int:
    """Return the value of Chinese numerals: ``二十三``; of digits alone, as in ``二〇二四``, what they read."""
    sizes = [int(unicodedata.numeric(sign)) for sign in re.sub("[两兩]", "二", signs)]
    if max(sizes) < 10:
        return int("".join(map(str, sizes)))
    total, group, ones = 0, 0, 0
    for size in sizes:
        if size < 10:
            ones = size
        elif size < 10_000:
            group, ones = group + (ones or 1) * size, 0
        else:
            total, group, ones = total + (group + ones) * size, 0, 0
    return total + group + ones


def _spelled_value(words: list[str]) -> Fraction | None:
    """Return the value of ``three hundred forty two``, ``two thirds``, ``half``; None for a sequence such as ``three four``."""
    if words[-1] in _PARTS:
        over = _spelled_value(words[:-1]) if words[:-1] else Fraction(1)
        return None if over is None else over / _PARTS[words[-1]]
    total, group, last = Fraction(0), 0, 1000
    for word in words:
        if word in _UNITS:
            value = _UNITS[word]
            if (group % 100 and not (last >= 20 and value < 10)) or (group and value == 0):
                return None
            group, last = group + value, value
        elif word in _PARTS:
            return None
        elif MAGNITUDES[word] == 100:
            group, last = (group or 1) * 100, 1000
        else:
            total, group, last = total + (group or 1) * MAGNITUDES[word], 0, 1000
    return total + group


def numbers_agree(left: Number, right: Number, tolerance: Fraction = Fraction(0)) -> bool:
    """Return whether a number equals the reference ``right``, or is at most ``tolerance`` apart.

    Two different units are two different things, but for multiples such as ``60 min`` and ``1 h``. A percent sign on one
    side only is a hundredth, and next to a reference above 1 it may be the unit: ``50 %`` agrees with ``0.5`` and with
    ``50``, but ``0.5 %`` not with ``0.5``.
    """
    # Five dollars an hour are five dollars, and five hours a day five hours, but 90 km are not 90 km/h.
    of, _, per = left.unit.partition("/")
    stated = left.unit if "/" in right.unit or (of not in MONEY and per in ("hour", "minute", "second")) else of
    units = "%" if left.percent else stated, "%" if right.percent else right.unit
    if len({*units} - {""}) > 1:
        meant = MEANINGS.get(units[0], units[:1]), units[1:] if units[1] == "$" else MEANINGS.get(units[1], units[1:])
        bases = [[*map(_in_base_units, each)] for each in meant]
        return any(
            base == other and abs(left.value * factor - right.value * over) <= tolerance * over
            for (base, factor), (other, over) in product(*bases)
        )
    readings = {left.value / 100 if left.percent else left.value, right.value / 100 if right.percent else right.value}
    agree = max(readings) - min(readings) <= tolerance
    is_share = left.percent and abs(right.value) <= 1
    return agree or (not is_share and abs(left.value - right.value) <= tolerance)


def _in_base_units(unit: str) -> tuple[tuple[str, ...], Fraction]:
    """Return what a unit is a multiple of, and of how many: of ``km/hour`` metres and seconds, and 1000/3600."""
    bases: list[str] = []
    factor = Fraction(1)
    for part in unit.split("/"):
        name = part.rstrip("23")
        base, size = TO_BASE.get(name, (name, Fraction(1)))
        power = part[len(name) :]
        factor *= size ** (int(power or 1) * (-1 if bases else 1))
        bases.append(base + power)
    return tuple(bases), factor


def format_value(value: Fraction) -> str:
    """Write a value: an exact integer or short decimal, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    text = format(decimal.normalize(), "f")
    return text if len(text) <= 20 and Fraction(text) == value else f"{value.numerator}/{value.denominator}"


def _single_number(text: str) -> Number | None:
    line = NumberLine.of(text)
    if len(line.tokens) != 1 or line.relation(only := line.tokens[0]) or _ALONE.of(line.text, only.start, only.end):
        return None
    rest = _UNIT_POWER.sub("", f"{line.text[: only.start]} {line.text[only.end :]}")
    return None if re.search(r"\d", rest) or _BESIDE.search(rest) else only.value
