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
# Not in "it consists of 12", where 12 is the answer, not what it is out of.
_OUT_OF: Final = re.compile(
    r"(?i)(?P<measure>\b(?:has|have|had|with|is|was) an? (?:[\w-]+ ){1,3})?"  # a height of 12
    r"\b(?:out\s+|(?<!total |sists )(?<!sisted |verage )(?<!mainder )(?<!age ))of\s+(?:(?:the|all|a\s+total\s+of)\s+)*$"
)
_CONCLUSION: Final = re.compile(
    r"(?i)\b(?:(?<!ained )(?<!\bor )so|thus|therefore|hence|i\.e(?=\.,? \W?\d[\d.,]*(?: \w+)?\W*$)"
    r"|(?<!\w )(?:in total|altogether)|(?:which|that) (?:is|makes|gives|leaves))\b"
)
# A list below an answer, of the parts of a sum.
_BREAKDOWN: Final = re.compile(
    r"(?i)\n[ *#_]*(?:breakdown|details)[ *_]*:[ *_]*(?:\n[ \t]*(?:(?:[-*\u2022]|\d+[.)])[^\n]*)?)+\Z"
)
_CLAUSE: Final = re.compile(r"[,;:]\s")
# A clause behind a result with other equations: "= 15 pairs that satisfy x + y = 9".
_WHERE: Final = re.compile(r"(=[^=.;]*?\d(?:[^\d=.,;]|,(?=\w))*)\b(?:that|where|when|if|satisfying)\b[^.;]*+[.;]?\s*$")
_IS: Final = re.compile(r"(?i)\b(?:is|are|(?:it|that|there|what|who)'s)[ ]{1,3}(?:now[ ]|only[ ]|about[ ])?$")
_MONTHS: Final = "|".join(name.title() for names in VOCABULARY["months"] for name in names.split() if len(name) > 2)
_DATE: Final = re.compile(
    rf"\b(?:(?:{_MONTHS})\.? \d{{1,2}}(?:st|nd|rd|th)?\b|\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?(?:{_MONTHS})\b)(?:,? \d{{4}}\b)?"
)
_OF_YEAR: Final = re.compile(r"(?i)\b(?:in|since|by|until|of)[ ]$")
_IS_ALL: Final = re.compile(r"(?i)[^\d/*+^]{0,20}$|(?:[ ][a-z]+|(?<=[a-z%]))[ ](?:in|on|at|for|from|by|within|after|before)[ ]")
_CONDITION: Final = re.compile(rf"(?i)\b(?:{any_of('conditions')})\b")
_BOLD: Final = re.compile(r"(?<!\*)\*\*(?!\s)([^*\n]+?)\*\*(?!\*)|(?<!_)__(?!\s)([^_\n]+?)__(?!_)")
EMPHASIS: Final = re.compile(r"(?<!\w)_([^\s_][^_\n]{0,40})_(?!\w)")
# Numbers of list items and steps are no values; without a first one, "42. It follows" is no item.
_ITEM: Final = re.compile(r"(?im)^[ \t>*_#|-]*(?:\(?\d\d?[.):](?=[ \t])|(?:step|part|case)[ \t]+\d+[.:)]?)")
_FIRST_ITEM: Final = re.compile(r"(?im)^[ \t>*_#|-]*(?:\(?1[.):][ \t]|(?:step|part|case)[ \t]+1\b)")
REFUSAL: Final = re.compile(rf"\b(?:{any_of('refusals')})\b", re.IGNORECASE)
_STARS: Final = re.compile("(?=.*[\u2b50\u2605])[\u2b50\u2605\u2606\ufe0f ]+")
_FOOTNOTE: Final = re.compile(r"(?<=\d) ?\[\d\d?\](?!\w)")
# What a number is roughly, or a part of it.
_BESIDE_IT: Final = re.compile(r"(?m)(?<=\d),? (?:or (?:about|approximately|roughly) [\d.]+ ?%|of which\b)[^\n;]*$")
REMARK: Final = re.compile(r"(?<=\S) \([^()\n]{0,80}[A-Za-z]{2}[^()\n]{0,80}\)")
"""Words in brackets behind an answer: ``42 (see page 7)``."""
_ALONE: Final = Surroundings(
    Beside("operator", "×«3»", r"[/^<>~|×÷·⋅]|\S[ \t]*\*|[+-][ \t]+|[\w)\]][ \t]*[+-]", r"[ \t$]*[|!]"), look=9, gap=r"[ \t$]*"
)
# Constants, functions, commands and relations that make a number a part of something else.
_BESIDE: Final = re.compile(
    r"\\(?!(?:text|math|mbox|rm\b|bf\b|underline|q?quad|degree|circ|euro|pounds))[A-Za-z]"
    r"|[√∛∜⌈⌊∞±≈≠≤≥\u0391-\u03a8\u03b1-\u03bb\u03bd-\u03c9]"
    r"|(?<![A-Za-z])(?i:sqrt|log|ln|exp|sin|cos|tan|pi|inf)(?![A-Za-z])"
)
_WORD_BEFORE: Final = re.compile(r"\D*?(?P<word>[^\W\d_]+)[ \t(:,-]{0,3}(?=[+-]?\d)")
# Behind any other word a number is a part of a name, unless a unit follows.
_VALUE_FOLLOWS: Final = re.compile(any_of("before values"), re.IGNORECASE)
# German has capitals: 5 Tage, but neither 48 Hours nor 50 Cent.
_MEASURES: Final = "|".join(name.title() for name, unit in UNITS.items() if len(name) > 3 and name[-1] != "s" != unit != "cent")
# "12 Angry Men", "20th century" and 0xff are no values; "12 Euro" is.
_NAMED_BY_NUMBER: Final = re.compile(
    r"\b0[xX][\da-fA-F]+|\d-[A-Z]{2}|\d(?:st|nd|rd|th)[ ]\w|§|\d:[ ]|[a-z][ ](?:once|twice|\w+[ ]times[ ]|daily|weekly)"
    r"|^[A-Z]\w+(?: [A-Z]\w+)*, (?:in|who|which)\b[\w ]* \d|^[Aa]n? (?:\w+ )+circa "
    r"|[A-Za-z]\)\d|^[A-Z][a-z]*\. \d+ [A-Z]{2}|^[2-6][GD]$"
    r"|\w\W{1,3}\((?:1[5-9]|20)\d\d\)\W*$"
    rf"|\d(?:-|[ \t]+)(?!(?:(?:Euro?|Dollar|Prozent|Grad|Celsius|Mio|Mrd)s?|{_MEASURES})\b)[A-Z][a-z]{{2}}"
)
# Code, commands and addresses, and two measures: xs[-1], timeout=30, head -n 5, 120/80 mmHg.
_CODE: Final = re.compile(
    r"^\^|[A-Za-z_]\w*(?:\[|[ ]?(?:\*\*?|//?|%)[ ]?\d)|://|^[a-z_][\w.-]+=\S+$|(?:^|[ ])--?[a-z][\w-]*[ =]\d|\d\d/\d\d [a-z]"
)
_PAIR: Final = re.compile(r"[(\[][^()\[\]]*\d,\d[^()\[\]]*[)\]]")
_IN_BOOKS: Final = re.compile(r"\A\s*\(([$€£]? ?\d[\d,.]*[.,]\d\d)\)\s*\Z")  # brackets for a minus
_UNIT_POWER: Final = re.compile(r"(?<=[A-Za-z])[ \t]*\^[ \t]*[+-]?\d\b")
_SUBSCRIPT: Final = re.compile(r"(?<=[A-Za-z])_\w+")
_UNITS: Final[Mapping[str, int]] = VOCABULARY["numbers"]
_ORDINALS: Final = {f"{re.sub('y$', 'ie', word)}th": size for word, size in _UNITS.items()} | VOCABULARY["ordinals"]
_PARTS: Final = {f"{name}s": value for name, value in _ORDINALS.items()} | {
    name: size for names, size in VOCABULARY["parts"].items() for name in names.split()
}
MEANINGS: Final[Mapping[str, list[str]]] = VOCABULARY["meanings"]
"""Units of which a word is one or another; a reference in dollars names those of the USA."""
_ABROAD: Final = {
    word: value
    for names in VOCABULARY["numbers abroad"]
    for value, word in enumerate(names.split(), start=2)
    # These are words in other languages, or names.
    if word not in ("due", "dos", "elf", "once", "otto", "sei", "sept", "six")
}
_NOT_ALONE: Final = (
    rf"\b(?:{any_of('not')}|{any_of('bounds')}|mil\w*|cent\w*|cien\w*|hundert\w*|tausend\w*"
    r"|minus|moins|menos|meno|und|et|y|e|als)\b"
)
_WORD: Final = re.compile(r"[^\W\d_]+")
_TIMES: Final = {"once": 1, "twice": 2, "thrice": 3}
_WORD_OF_NUMBER: Final = "|".join((*_UNITS, *(name for name in MAGNITUDES if len(name) > 5)))
_SPELLED: Final = re.compile(
    rf"(?i)(?<![\w-])(?:(?<!at )once(?! (?:upon|again|more|he|she|it|they)\b)|twice|thrice|(?:{_WORD_OF_NUMBER})"
    rf"(?:(?:[ -]|(?<=hundred) and |(?<=thousand) and )(?:{_WORD_OF_NUMBER}|{'|'.join(_PARTS)}))*)(?![\w-])"
)
# A number in words with a remark: "Eight (not nine, since 2006)".
_WORD_FIRST: Final = re.compile(
    r"\W*([A-Z][a-z]+(?:-[a-z]+)?(?: [a-z]+)?)\s*\((?!wrong|incorrect|no\b|it is|actually)[^()\n]*\d[^()\n]*\)\W*$"
)
_DIGITS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_TAKEN_BACK: Final = re.compile(rf"(?i)\b(?:not|wrong|incorrect)\b|n't\b|{REFUSAL.pattern}")
WHEN: Final = re.compile(
    r"(?i)(?:^|[.:?!\n])\W{0,9}when (?:was|were|did|do|does|is|are|will|has|had)\b|\b(?:what|which) (?:calendar )?year\b"
)
"""A question for a year: ``When was it made?``, ``In what year …``."""
_YEAR_LIKE: Final = re.compile(r"[12]\d{3}")
_RATE: Final = re.compile(r"(?: [a-z]+)? (?:per|each|apiece)\b")
_HOW_MANY: Final = re.compile(
    r"(?i)\b(?:how many|number of) (?:[\w'-]+ ){0,3}?(people|men|women|children|feet|(?!(?:ha|i|wa|doe)s\b)[a-z]+s)\b"
)
_MOST_WORDS: Final = 14
# Before a "one" that is a pronoun: "no one came".
_NO_NUMBER: Final = frozenset({"no", "any", "every", "each", "this", "that", "which", "the", "another", "some"})
_CHINESE: Final = re.compile(
    "(?<![\u3400-\u9fff])([〇零一二两兩三四五六七八九十百千万萬亿億]+)[个個元人年岁歲次只天本块塊]?(?![\u3400-\u9fff])"
)


def answered_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number that an output states, as ``number_of`` does; None when it states none."""
    stated = stated_answer(text)
    return None if stated is None else number_of(stated, decimal)


def number_of(stated: Stated, decimal: DecimalMark = ".", question: str = "", prompt: str = "") -> Number | None:
    r"""Return the number of what an output states; None for none, and for a part of something else, as in ``12\pi``.

    Of a marked sentence it is the only number that the ``prompt`` does not have; without a mark the only one of the text.
    Else it is what the line concludes with, else the only one that is not in the ``question``. Raises ``RewardError`` where
    several numbers are stated and no line concludes with one.
    """
    text, whole = (_BESIDE_IT.sub("", _FOOTNOTE.sub("", each)) for each in (stated.text, stated.whole))
    stated = replace(stated, text=text, whole=whole)
    if stars := _STARS.fullmatch(stated.text):
        return Number(Fraction(sum(map(stars[0].count, "\u2b50\u2605"))), percent=False, text=stars[0])
    if not stated.is_marked:
        above = _BREAKDOWN.sub("", stated.whole)
        stated = stated if above == stated.whole else stated_answer(above) or stated
        written = _beside_known(stated.text, decimal, question)
        stated = replace(stated, text=written, whole=stated.whole.replace(stated.text, written))
        leading = _WORD_FIRST.match(stated.text)
        return (number_in_words(leading[1]) if leading else None) or _concluded_number(stated, decimal, question, prompt)
    read = boxed_number if stated.source == "box" else stated_number
    text = REMARK.sub("", _APPROXIMATELY.sub("=", stated.text))
    is_sentence = stated.source != "box" and "=" not in text
    written = _beside_known(text, decimal, question) if is_sentence else text
    number = _number_of_sentence(written, decimal, prompt) if is_sentence else None
    number = number or read(text, decimal) or number_in_words(text)
    return number or (only_number(written, decimal) if written != text else None)


@lru_cache(maxsize=4_096)  # a plan reads each reference three times, and each attempt again
def reference_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a reference with words and units; None when it is no single number as a whole."""
    stated = stated_answer(_IN_BOOKS.sub(r"-\1", text.rpartition("####")[2]))
    if stated is None:
        return None
    box = BOX.search(stated.whole)
    if box is None:
        statement = stated.text if stated.is_marked else stated.whole
        named = _PAIR.search(statement) or (not stated.is_marked and _is_name(statement))
        number = None if named else only_number(statement, decimal) or _reference_in_words(statement)
    else:
        behind = stated.whole[box.end() :]
        inside = until_closing(behind)
        several = BOX.search(behind, len(inside)) or _PAIR.search(inside)
        number = None if several else only_number(inside, decimal)
    return None if number is None or number.abbreviated else number


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
    number = number_in_words(text)
    if number is None:
        return None
    # With one noun at most, and no name such as "Seven Samurai".
    rest = _WORD.findall(text)[len(number.text.split()) :]
    is_name = len(rest) > 1 or re.search(r"\s[A-Z]", text) or (rest and number.text.split()[-1] in _PARTS)
    return None if is_name else number


class _Values(NumberLine):
    """The numbers of a line, but those of times, dates and ranges."""

    @classmethod
    def of(cls, text: str) -> Self:
        line = super().of(text)
        dated = {at for date in _DATE.finditer(text) for at in range(*date.span())} if len(line.tokens) > 1 else ()
        tokens = [each for each in line.tokens if each.part != "span"]
        undated = [each for each in tokens if each.start not in dated]
        return line._replace(tokens=undated or tokens)

    def lead(self, token: Token) -> str:
        return self.text[max(0, token.start - 60) : token.start]

    def behind(self, pattern: re.Pattern[str]) -> list[Token]:
        """Return the numbers behind the last occurrence of a pattern; all without any."""
        at = max((match.end() for match in pattern.finditer(self.text)), default=0)
        return [each for each in self.tokens if each.start >= at]

    def is_year(self, token: Token) -> bool:
        return bool(re.fullmatch(r"(?:1[5-9]|20)\d\d", token.number.text) and _OF_YEAR.search(self.lead(token)))

    def undated(self) -> list[Token]:
        has_other = any(not _YEAR_LIKE.fullmatch(each.number.text) for each in self.tokens)
        return [*filterfalse(self.is_year, self.tokens)] if has_other else []

    def present(self) -> list[Token]:
        tokens = [] if _CONDITION.search(self.text) else self.behind(_CLAUSE)
        ends = [each for each in tokens if _IS.search(self.lead(each)) and _IS_ALL.match(self.text, each.end)]
        return [*filterfalse(self.is_bracketed, ends)]

    def is_total(self, token: Token) -> bool:
        match = _OUT_OF.search(self.lead(token))
        return match is not None and not match["measure"]

    def equal(self) -> list[Token]:
        until = len(_WHERE.sub(r"\1", self.text, count=1))
        at = max(self.text.rfind(sign, 0, until) for sign in ("=", "\u2248", r"\approx"))
        return [each for each in self.tokens if 0 <= at < each.start < until]

    def is_bracketed(self, token: Token) -> bool:
        opened, closed = self.text.rfind("(", 0, token.start), self.text.find(")", token.end)
        return opened >= 0 <= closed and not re.search("[()]", self.text[opened + 1 : closed])


WAYS: Final[tuple[Way[_Values, Iterable[Token]], ...]] = (
    Way("the only one", "It costs 42 dollars.", lambda line: line.tokens),
    Way("what something is", "The bill for 3 people is 42 dollars.", _Values.present),
    Way("behind =", "6 × 7 = 42", _Values.equal),
    Way("behind so", "7 times 6 is asked, so 42.", lambda line: filterfalse(line.is_total, line.behind(_CONCLUSION))),
    Way("outside brackets", "It has 42 (6 rows, 7 each).", lambda line: filterfalse(line.is_bracketed, line.tokens)),
    Way("but for a year", "In 2021 they won 42 of them.", _Values.undated),
)
"""How a line with several numbers concludes with one, the surest first."""


def _concluded_number(stated: Stated, decimal: DecimalMark, question: str, prompt: str) -> Number | None:
    """Return the number of a text without a mark: its only one, else that of its last line."""
    text = plain_digits(stated.whole, decimal)
    text = _ITEM.sub("", text) if _FIRST_ITEM.search(text) else text
    lines = [_Values.of(each) for each in EMPHASIS.sub(r"\1", text).split("\n")]
    tokens = [token for line in lines for token in line.tokens]
    numbers = [token.value for token in tokens]
    whole = [*numbers, *(token.number for token in tokens[-1:] if token.part == "bound")]
    if len({number.value for number in whole if number is not None}) > 1:
        first, last = (_bare_number(line, decimal) for line in (stated.whole.partition("\n")[0], stated.text))
        if first is not None and (last is None or last.value != first.value):
            if last is not None and not re.match(r"\W*[Tt]otal\b", stated.text):
                raise RewardError(f"the first line has {first.text}, and the last {last.text}")
            return last or first
        ends = enumerate(reversed(stated.whole.split("\n")))
        behind = next((at for at, each in ends if each.strip() == stated.text), 0)
        *above, line = lines[: len(lines) - behind]
        if not line.tokens and not _TAKEN_BACK.search(line.text):
            # The last line is a farewell.
            line = next((each for each in reversed(above) if each.tokens), line)
        bold, anywhere = ([match[1] or match[2] for match in _BOLD.finditer(each)] for each in (stated.text, stated.whole))
        if len(bold) == 1 and (spelled := number_in_words(bold[0])):
            return spelled
        of_question = _numbers_in(question, decimal)
        line = _asked_for(line, question, of_question | _numbers_in(prompt, decimal))
        others = [each for each in line.tokens if (each.number.value, "/" in each.number.text) not in of_question]
        fresh = others if of_question else []
        inside = [token for each in bold or anywhere for token in _Values.of(plain_digits(each, decimal)).tokens]
        return _last_line_number(line, *((inside, fresh) if bold else ((), fresh, inside)))
    if not numbers:
        return number_in_words(stated.text) or number_in_words(stated.whole.partition("\n")[0])
    # The last one may be a part of something else, which is then what the text states.
    concluded = conclusion_of(stated.whole)
    return None if REFUSAL.search(concluded if re.search(r"\d", concluded) else stated.whole) else numbers[-1]


@lru_cache(maxsize=64)  # each attempt at an item has the same question
def _numbers_in(question: str, decimal: DecimalMark) -> frozenset[tuple[Fraction, bool]]:
    tokens = NumberLine.of(plain_digits(question, decimal)).tokens
    return frozenset((token.number.value, "/" in token.number.text) for token in tokens)


def _number_of_sentence(text: str, decimal: DecimalMark, prompt: str) -> Number | None:
    """Return the number that a sentence with several states; None where the first one counts, as in ``42 in 3 steps``."""
    line = _Values.of(plain_digits(text, decimal))
    of_prompt = {*_DIGITS.findall(plain_digits(prompt, decimal))}
    short = len(text.split()) <= 3 and text.isascii()
    if len({each.number.value for each in line.tokens}) < 2 or short or re.match(r"\W*(?:n?either|not)\b", text):
        return None
    fresh = [each for each in line.tokens if of_prompt and of_prompt.isdisjoint(_DIGITS.findall(each.number.text))]
    if re.match(r"\W*\d", line.text):
        is_first = line.tokens[0] in fresh or len({each.number.value for each in fresh}) != 1
        return None if is_first else fresh[0].value
    concluded, first = _last_line_number(line, fresh), (fresh or line.tokens)[0]
    is_stated = line.is_year(first) or _IS.search(line.lead(first))
    if concluded is not None and concluded.value != first.number.value and is_stated:
        raise RewardError(f"{shown(text)} may state {first.number.text} or {concluded.text}")
    return concluded


def _bare_number(line: str, decimal: DecimalMark) -> Number | None:
    """Return the number that a line is, but for a unit and a word with a colon before it; no line of a list."""
    bare = re.sub(r"^(?:[Tt]otal[\w ]*|[A-Za-z]+):\s*", "", line.strip(" *_`"))
    listed = re.match(r"[-\u2022]\s|\d+[.)]\s", line.strip())
    is_one = len(bare.split()) <= 3 and not listed and re.match(r"[-+$€£¥]*[\d.]", bare)
    return only_number(bare, decimal) if is_one and not bare.endswith((":", ",", "?")) else None


def _asked_for(line: _Values, question: str, repeated: Container[tuple[Fraction, bool]]) -> _Values:
    """Return a line with the years alone where a question asks when, and with what it asks to count where else are years."""
    others = {
        each
        for each in line.tokens
        if (each.number.value, "/" in each.number.text) in repeated
        or _RATE.match(line.text, each.end)
        or (each.number.unit in MONEY and counts(question))
    }
    years = [each for each in line.tokens if _YEAR_LIKE.fullmatch(each.number.text) and each not in others]
    if WHEN.search(question):
        return line._replace(tokens=years or line.tokens)
    of_it = [each for each in line.tokens if each not in others and things_counted(question).match(line.text, each.end)]
    is_only = {*line.tokens} == {*others, *years, *of_it}
    return line._replace(tokens=(is_only and of_it) or line.tokens)


def counts(prompt: str) -> bool:
    """Return whether a question is for how many things there are, not for money."""
    things = _HOW_MANY.search(prompt)
    return things is not None and UNITS.get(things[1].lower()) not in MONEY


@lru_cache(maxsize=64)
def things_counted(question: str) -> re.Pattern[str]:
    """Return a pattern for what a question asks to count, behind its number."""
    things = _HOW_MANY.search(question)
    stem = re.escape(re.sub("(?:ie|e)?s$", "", things[1])) if things else "(?!)"
    return re.compile(rf"(?: (?!(?:of|the|in|and)\b)[\w'-]+){{0,2}}? {stem}\w{{0,3}}\b", re.IGNORECASE)


def in_digits(text: str, question: str) -> str:
    """Return a text with its numbers in words in digits; ``one`` only before what the question asks to count."""
    thing = things_counted(question)

    def written_out(words: re.Match[str]) -> str:
        if times := _TIMES.get(words[0].lower()):
            return f"{times} times" if "times" in question.lower() else words[0]
        number = _number_in_english(words[0])
        is_pronoun = words[0].lower() == "one" and not thing.match(text, words.end())
        return words[0] if number is None or is_pronoun else format_value(number.value)

    return _SPELLED.sub(written_out, text)


def _beside_known(text: str, decimal: DecimalMark, question: str) -> str:
    """Return a text with its numbers in words in digits where it has no digits but those of the question, and years."""
    if not _SPELLED.search(text) or len(text.split()) > 3 * _MOST_WORDS:
        return text
    repeated = {value for value, _ in _numbers_in(question, decimal)}
    line, written, thing = NumberLine.of(plain_digits(text, decimal)), in_digits(text, question), things_counted(question)
    if not line.tokens:
        return text if number_in_words(text) else written
    is_counted = any(thing.match(written, digits.end()) for digits in _DIGITS.finditer(written))
    years = [each for each in line.tokens if _YEAR_LIKE.fullmatch(each.number.text)]
    repeated |= {each.number.value for each in years if is_counted}
    return written if {each.number.value for each in line.tokens} <= repeated else text


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
    """Return the first number behind the last ``=`` of the first line with one, as in ``x = 3 * 12 = 36 km``; None for none."""
    for each in _LOOSE_SIGN.sub(r"\1\2", plain_digits(text, decimal)).splitlines():
        line = NumberLine.of(each)
        if "root" in map(line.relation, line.tokens):
            return None
        edges = [-1, *(sign.start() for sign in re.finditer("=", line.text)), len(line.text)]
        for begin, end in reversed([*pairwise(edges)]):
            first = next((token for token in line.tokens if begin < token.start < end), None)
            refused = first and REFUSAL.search(line.text, begin + 1, first.start)
            if first and first.value and not refused and not line.relation(first):
                return first.number
    return None


def only_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    r"""Return the single number of a text with words and units, or after its ``=``; None for ``3, 7``, ``2\pi``, ``2x``."""
    left, equals, stated = plain_digits(text, decimal).rpartition("=")
    left = _SUBSCRIPT.sub("", left)
    worked = re.search(r"[\d+*/^<>×÷·⋅!-]|(?:\b[A-Z]{4,}\b.*){2}", left) and re.search("[A-Za-z]", left)
    return None if equals and (worked or re.search("[,;=]", left)) else _single_number(stated)


def boxed_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the single number of a box, after its last ``=``; None for any other content, such as ``x = 3 or x = 7``."""
    text = NumberLine.of(_LOOSE_SIGN.sub(r"\1\2", plain_digits(text, decimal))).text
    several = sum(re.search(r"\d", part) is not None for part in _ALTERNATIVES.split(text)) > 1
    last = next((part for part in reversed(text.split("=")) if re.search(r"\d", part)), "")
    return None if several else _single_number(last)


def ordinal(text: str) -> int | None:
    """Return the number of a text that is an ordinal: ``3rd``, ``the third``, ``twenty-first``; None for any other text."""
    match = re.fullmatch(r"\W*(?:the )?(?:(\d+)(?:st|nd|rd|th)|(?:([a-z]+ty)[ -])?([a-z]+))\W*", text.casefold())
    if match is None or match[1]:
        return int(match[1]) if match else None
    ones: int | None = _ORDINALS.get(match[3])
    return ones if ones is None or not match[2] else _UNITS.get(match[2], 0) + ones


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
    if len(abroad) != 1 or len(words) > _MOST_WORDS // 2 or re.search(rf"\d|{_NOT_ALONE}", text.casefold()):
        return _number_in_english(text)
    return Number(Fraction(_ABROAD[abroad[0]]), percent=False, text=abroad[0])


def _number_in_english(text: str) -> Number | None:
    whole, and_a, part = text.casefold().partition(" and a ")
    size, scale = (*(word.strip(".*") for word in part.split()), "", "")[:2]
    if and_a and size in _PARTS and (ones := _number_in_english(whole)):
        value = (ones.value + Fraction(1, _PARTS[size])) * (MAGNITUDES.get(scale, 1) if len(scale) > 1 else 1)
        return replace(ones, value=value, text=f"{ones.text}{and_a}{part}")
    if (signs := _CHINESE.search(text)) and not _CHINESE.search(text, signs.end()):
        return Number(Fraction(_chinese_value(signs[1])), percent=False, text=signs[1])
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
    if not spelled or inside != spelled or pronoun or bound or scaled or before in ("not", "never"):
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
