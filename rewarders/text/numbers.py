r"""Read numbers exactly, in any notation: ``1,080``, ``-3.5``, ``3/4``, ``\frac{1}{2}``, ``5 million``, ``one half``.

There is no arithmetic: ``3 + 4`` is no number. A part of something else is none either: ``2\pi``, ``12:05``, ``2-5``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import BOX, UNSPACED, VOCABULARY, Stated, any_of, stated_answer, until_closing
from tfgrpo.stores.errors import RewardError

DecimalMark: TypeAlias = Literal[".", ","]

_MARK: Final = "####"
_MAX_DIGITS: Final = 400
"""Longer runs of digits, and powers with more digits, are not read."""

_DASHES: Final = dict.fromkeys(map(ord, "\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d"), "-") | {ord("\uff0b"): "+"}
_MARKS: Final = _DASHES | {ord("\uff05"): "%", ord("\u066a"): "%", ord("\uff0e"): ".", ord("\uff0c"): ","}
_LATEX: Final = (
    (re.compile(r"(?<=\d)(?=\\[dtc]?frac)"), " "),
    (re.compile(r"\\[dtc]?frac[ \t]{0,3}\{ ?([^{}]*?) ?\}[ \t]{0,3}\{ ?([^{}]*?) ?\}"), r"\1/\2 "),
    (re.compile(r"\\[dtc]?frac[ \t]{0,3}(\d)[ \t]{0,3}(\d)"), r"\1/\2 "),
    (re.compile(r"\\(?:times|cdot)"), "\u00d7"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|f?box(?:ed)?|operatorname)[ \t]*\{"), "{"),
    (re.compile(r"\{,\}|(?<=\d)\\[,;:!](?=\d{3})"), ","),
    (re.compile(r"\\([$%#&])"), r"\1"),
    (re.compile(r"\\(?:left|right|displaystyle|[,;:! ])"), " "),
    (re.compile(r"\^[ \t]*\{?[ \t]*\\(?:circ|degree)[ \t]*\}?"), " "),
    (re.compile(r"\^[ \t]*\{[ \t]*([+-]?\d+)[ \t]*\}"), r"^\1"),
    (re.compile(r"_[ \t]*\{[^{}]*\}"), " "),
    (re.compile(r"\\\(|\\\)|\\\[|\\\]|[{}]|\*\*|\$\$"), " "),
)
_CURRENCY: Final = "$€£¥₹₩₽₺₪฿₫₴₦₱"
_SEPARATORS: Final = ", \u00a0\u2009\u202f'\u2019_"
_DIGITS: Final = (
    rf"(?:[1-9]\d{{0,2}}(?:(?P<sep>[{_SEPARATORS}])\d{{3}}(?:(?P=sep)\d{{3}})*(?!\d)|(?:\.\d{{3}}){{2,}}(?!\d))"
    r"|[1-9]\d?(?:,\d\d)+,\d{3}(?!\d)|\d+)"  # 1,00,000 as in India
)
_MAGNITUDES: Final = {name: size for names, size in VOCABULARY["magnitudes"].items() for name in names.split()}
_NUMBER: Final = re.compile(
    rf"""
    (?<![\w^])(?<!\d\.)(?<!\^[+-])                   # not inside a word, a version number or an exponent
    (?P<sign>(?:(?<![\w)\]%])[+-])?)(?P<money>[{_CURRENCY}]\ ?)?(?P<inner>(?:(?<=[{_CURRENCY}])[+-])?)
    (?: (?P<whole>\d{{1,9}})[ ]{{1,3}}(?P<over>\d{{1,9}})\ ?/\ ?(?P<under>\d{{1,9}})(?![\w/])   # 3 1/2
      | (?P<digits>{_DIGITS})(?P<decimals>\.\d+)? | (?P<bare>(?<!\.)\.\d+) )
    (?: [eE](?P<exponent>[+-]?\d{{1,4}})(?!\w)
      | \ ?[\u00d7\u00b7\u22c5*xX]\ ?10\ ?\^\ ?(?P<ten>[+-]?\d{{1,4}})(?!\w)
      | \^(?P<power>[+-]?\d{{1,4}})(?!\w)
      | \ ?/\ ?(?P<divisor>[+-]?\d{{1,3}}(?:,\d{{3}})+(?!\d)|[+-]?\d+(?:\.\d+)?)(?!\w) )?
    (?P<magnitude>(?(money)[kmb](?![\w^])|(?-i:[kKMB](?![\w^])))
      |[\ -]?(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore)s?(?!\w)|\ ?(?:mn|bn|tn|mio|mrd|mln)(?!\w)\.?)?
    (?P<percent>\ ?(?:%|percent\b|per\ cent\b))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_POWER: Final = re.compile("(?<=[0-9])[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_VULGAR: Final = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e\u2189])")
_OPERATOR_BEHIND: Final = re.compile(r"[\w)][ \t]{0,3}[+\u00d7÷·/*][ \t]{0,3}$")
_LOOSE_SIGN: Final = re.compile(r"^[ \t]*([+-])[ \t]+")
_OPERATOR_AHEAD: Final = re.compile(r"[ \t]*(?:[+\u00d7*÷·⋅/^]|-(?!-))[ \t]*[$(]?[ \t]*[\d.]")
_APPROXIMATELY: Final = re.compile(r"\u2248|\\(?:approx|simeq)(?![A-Za-z])")
_ALTERNATIVES: Final = re.compile(r",(?!\d{2,3}(?!\d))|[;&]|(?<![A-Za-z])(?:or|and)(?![A-Za-z])", re.IGNORECASE)
_ANOTHER: Final = re.compile(
    r"""[ \t$)]* (?:(?:[A-Za-z°µ/²³]+[ \t]+){1,2}(?=or\b)|/(?=[$€£¥]))?
    (?: (?<=/) | (?<=[ ])(?!\() | [,;:&±|→] | (?:,[ \t]*)? \(? (?:or|and|through|vs\.?|then|to(?![ \t]*\d+[ \t]*[dspf]))\b )
    [ \t$(]* [+-]? [$€£¥]? \.? \d""",
    re.VERBOSE | re.IGNORECASE,
)
_LIKEWISE: Final = re.compile(
    r"[ ]?(?P<unit>[A-Za-z°µ²³%]{1,20})[ ]?(?:[,;/]|\b(?:or|and)\b)[ ]?(?:or[ ]|and[ ])?[-+]?\d[\d.,]{0,20}[ ]?(?P=unit)(?!\w)"
)
"""A second number of the same unit: ``5 km, 9 km``."""
_ANOTHER_VALUE: Final = re.compile(r"\d[ \t$),]*(?:or|and)[ \t$(]+\w{1,3}[ \t]*=[ \t$]*[+-]?\d", re.IGNORECASE)
"""A second number on an answer line: ``x = 3 or x = 7``, ``12 or 13``, ``3,14``, but not ``3.14 to 2 decimal places``."""
_OUT_OF: Final = re.compile(
    r"\b(?:out[ \t]+)?of[ \t]+(?:the[ \t]+|all[ \t]+|a[ \t]+total[ \t]+of[ \t]+)*[$€£]?\d[\d.,]*\b", re.IGNORECASE
)
_CONCLUSION: Final = re.compile(
    r"\b(?:so|thus|therefore|hence|(?<!\w )(?:in total|altogether)|(?:which|that) (?:is|makes|gives|leaves))\b",
    re.IGNORECASE,
)
_IS_NUMBER: Final = re.compile(
    rf"\b(?:is|are|(?:it|that|there|what|who)'s)[ ](?:now[ ]|only[ ]|about[ ])?([{_CURRENCY}]?[-+]?\d[\d.,]*)(?![\d.,])"
    r"([^\d/*+^]{0,20}$|[ ][a-z]+[ ](?:in|on|at|for|from|by|within|after|before)[ ])",
    re.IGNORECASE,
)
"""A number that something is at present, in the last clause of a line: ``The bill for 3 people is 42 dollars``."""
_CONDITION: Final = re.compile(rf"\b(?:{any_of('conditions')})\b", re.IGNORECASE)
_BOLD: Final = re.compile(r"(?<!\*)\*\*(?!\s)([^*\n]+?)\*\*(?!\*)|(?<!_)__(?!\s)([^_\n]+?)__(?!_)")
_ENUMERATION: Final = re.compile(
    r"^[ \t>*_#|-]*(?:\(?(?P<number>\d{1,3})[.):](?=[ \t])|(?:step|part|case|option|question)[ \t]+\d+[.:)]?)",
    re.IGNORECASE | re.MULTILINE,
)
"""Numbers of list items and steps, which are no values."""
_EMPHASIS: Final = re.compile(r"(?<!\w)_([^\s_][^_\n]{0,40})_(?!\w)")
REFUSAL: Final = re.compile(rf"\b(?:{any_of('refusals')})\b", re.IGNORECASE)
"""What says that there is no answer."""
_SPACELESS: Final = re.compile(rf"(?<=[{UNSPACED}])(?=[-+$€£¥]?[\d.])|(?<=[\d%])(?=[{UNSPACED}])")
REMARK: Final = re.compile(r"(?<=\S) \([^()\n]{0,80}[A-Za-z]{2}[^()\n]{0,80}\)")
"""Words in brackets behind an answer: ``42 (see page 7)``."""
_MINUS: Final = re.compile(
    r"(?:^|(?<=[:=(*$][ \t])|(?<=[:=(*$])|(?<=\bis[ ])|(?<=\bwas[ ])|(?<=\bof[ ])|(?<=\bto[ ]))"
    r"(?:minus|negative)[ \t]+(?=[\d.])",
    re.IGNORECASE | re.MULTILINE,
)
_DENIED: Final = re.compile(
    r"""(?:\b(?:not|never|isn't|wasn't|aren't|doubt)|n['’]t\b)(?:[ \t]+(?:think|believe|say|sure|that|it|is|be|the|an?
        |exactly|only|equal|to)){0,4}
        [ \t]{1,9}[$€£*]{0,3}[-+]?\d[\d.,/]*[*%]*
    |(?<![\d.,/])[$€£*]{0,3}[-+]?\d[\d.,/]{0,60}[*%]{0,3}(?:[ \t][a-z]{1,30})?
        [ \t](?:is|was|would[ ]be)[ ](?:not\b|too\b|wrong|incorrect|false)[^.\n]*
    |\b(?:less|more|\w{2,12}er)[ ]than[ \t]+[$€£]?[-+]?\d[\d.,/]{0,60}%?
    |(?<![\d.,/])[$€£*]{0,3}[-+]?\d[\d.,/]{0,60}[*%]{0,3}\?
    |不是[ \t]*[-+]?\d[\d.,/]*
    |(?:^[^.!?\n]{0,60}\bis|^(?:d(?:o|oes|id)|(?:c|sh|w)ould|shall|can|are|was))[ ][^.!?\n]{0,200}\?
    |\b(?:(?:half|thirds?|quarters?)[ ]of|twice|double|triple)[ ](?:the[ ])?[$€£*]{0,3}\d[\d.,]{0,60}""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""A number that an output does not state: ``not 42``, ``42 is wrong``, ``larger than 42``, ``twice 42``, ``Is it 42?``"""
_OPERATOR_BEFORE: Final = re.compile(
    r"(?:\\(?:sqrt|[dtc]?binom|log|ln|exp|sin|cos|tan|pm|mp|[lg]eq?|[lg]t|neq?|overline|bar)(?:\[\d+\])?|[√∛∜±≠≤≥]"
    r"|<|[ \t$]>|(?<![\w</])[A-Za-z]>|^>$"
    r"|(?<![A-Za-z])(?i:sqrt|log|ln|minus|negative|root of|(?:less|more|\w+er) than"
    r"|at least|at most|over|under|above|below|up to))[ \t$(]*$"
)

_BESIDE: Final = re.compile(  # constants, functions, commands and relations that make a number a part of something else
    r"\\(?!(?:text|math|mbox|rm\b|bf\b|underline|q?quad|degree|circ|euro|pounds))[A-Za-z]"
    r"|[√∛∜⌈⌊∞±≈≠≤≥\u0391-\u03a8\u03b1-\u03bb\u03bd-\u03c9]"
    r"|(?<![A-Za-z])(?i:sqrt|log|ln|exp|sin|cos|tan|pi|inf)(?![A-Za-z])"
)
_BEFORE: Final = re.compile(
    r"(?:[/^<>~|×÷·⋅]|\S[ \t]*\*|[+-][ \t]+|[\w)\]][ \t]*[+-]|[A-Za-z]\(|(?i:minus|negative|root of))[ \t$]*$"
)
_BEHIND: Final = re.compile(
    r"""[ \t$]* (?: [*×·⋅÷^+<>-] [ \t$]* (?:[A-Za-z](?![A-Za-z]|[ ][a-z]{2})|[(\\|])
      | / [ \t]* (?:[A-Za-gi-kn-rt-z](?![A-Za-z])|\()
      | (?:squared|cubed|factorial)s?\b | or[ ](?:more|less|fewer|greater|above|over|below|under)\b | [aApP]\.?[mM]\b
      | (?<=\d\d0)s\b
      | [π√±] | \\(?:pi|sqrt|pm|mp|log|ln)(?![A-Za-z]) ) | _\d
    | [(…\u00b2\u00b3\u00b9\u2070-\u2089] | \.\. | [a-ceijknp-rt-z](?![A-Za-z])
    | [ \t]+ [ijknxyz](?![A-Za-z]|[ ][a-z]{2})
    | [:/.-]\d | \+(?![\w(.]) | (?![ckm]?m[23]\b)[A-Za-z]+\d""",
    re.VERBOSE,
)
"""An operator with an operand, a power or base, endless decimals, a variable, the rest of a time, date or range."""
_PART_BEFORE: Final = re.compile(r"\d[:/-]$")
_WORD_BEFORE: Final = re.compile(r"\D*?(?P<word>[^\W\d_]+)[ \t(:,-]{0,3}(?=[+-]?\d)")
_VALUE_FOLLOWS: Final = re.compile(any_of("before values"), re.IGNORECASE)
"""Words before a number that is a value; behind any other it is a part of a name, unless a unit follows."""
_NAMED_BY_NUMBER: Final = re.compile(
    r"\b0[xX][\da-fA-F]+|\d(?:st|nd|rd|th)[ ]\w|§|\d:[ ]|[a-z][ ](?:once|twice|\w+[ ]times[ ]|daily|weekly)"
    r"|\d(?:-|[ \t]+)(?!(?:Euro?|Dollar|Prozent|Grad|Celsius|Mio|Mrd)s?\b)[A-Z][a-z]{2}"
)
"""Digits before a capitalized word, and others that are no value: ``12 Angry Men``, ``20th century``, ``0xff``."""
_BOUND: Final = re.compile(
    r"\b(?:over|under|above|below|(?:less|more|fewer|greater) than|at (?:least|most)|up to)\b|^[<>]", re.IGNORECASE
)
_WITH_COMMAS: Final = re.compile(r"[(\[][^()\[\]]*\d,\d[^()\[\]]*[)\]]")
"""A pair, or an interval."""
_UNIT_POWER: Final = re.compile(r"(?<=[A-Za-z])[ \t]*\^[ \t]*[+-]?\d\b")
_SUBSCRIPT: Final = re.compile(r"(?<=[A-Za-z])_\w+")
_CENTS: Final = re.compile(
    rf"(?<=[{_CURRENCY}])( ?\d{{1,3}}),(?=\d\d(?![\d,]))|(?<![\d.,])(\d{{1,3}}),(?=\d\d\s?(?:[{_CURRENCY}]|EUR|Euro))"
)
"""Money with a decimal comma: ``89,90 €``."""
_EUROPEAN: Final = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d{3})+),(\d+)(?![\w,.]\d|\w)")
_LEADING_ZERO: Final = re.compile(r"(?<![\w.,])0,(\d+)(?!,?\d)")
_WITH_COMMA: Final = re.compile(r"(?<![\w.,])\d[\d.,]*\d(?!\w)")

_UNITS: Final[Mapping[str, int]] = VOCABULARY["numbers"]
_ORDINALS: Final[Mapping[str, int]] = {
    f"{re.sub('y$', 'ie', word)}th": value for word, value in _UNITS.items()
} | VOCABULARY["ordinals"]
_PARTS: Final = {f"{name}s": value for name, value in _ORDINALS.items()} | {
    name: size for names, size in VOCABULARY["parts"].items() for name in names.split()
}
_METRIC: Final = {
    spelled: (base, prefix and f"{prefix}{symbols.split()[0]}", Fraction(size))
    for base, (symbols, words) in VOCABULARY["metric"].items()
    for names, size in {" ": "1", **VOCABULARY["prefixes"]}.items()
    for prefix, word in [names.split(" ", 1)]
    for spelled in (
        *(prefix + each for each in symbols.split()),
        *(f"{word}{each}{s}" for each in words.split() for s in ("", "s")),
    )
}
"""Metric units by their spellings, which letter case tells apart: the base, the unit with its prefix, and the factor."""
UNITS: Final[Mapping[str, str]] = {spelled: unit or base for spelled, (base, unit, _) in _METRIC.items()} | {
    name: names.split()[0] for names in VOCABULARY["units"] + VOCABULARY["currencies"] for name in names.split()
}
"""Units by their spellings. ``in`` is a word besides, and none of them."""
_MONEY: Final = {names.split()[0] for names in VOCABULARY["currencies"]}
TO_BASE: Final[Mapping[str, tuple[str, Fraction]]] = {
    unit or base: (base, factor) for base, unit, factor in _METRIC.values()
} | {
    name: (base, Fraction(factor))
    for base, factors in VOCABULARY["multiples"].items()
    for name, factor in {base: "1", **factors}.items()
}
"""What a unit is a multiple of, and of how many."""
_UNIT: Final = re.compile(
    r"[ \t*$\\-]{0,3}(?:(?P<degree>square|sq\.?|cubic)[ -])?"
    rf"(?P<unit>[°‰{_CURRENCY}]\s?[CF]?|(?:R|US|[AC])\$|B\.C\.(?:E\.)?|[A-Za-zµ\u03bc\u03a9\u2126]+?)"
    r"(?P<own>[ \t}$]{0,2}\^[23]|(?<=m)[23]|[²³]| squared| cubed)?(?:[ \t]?(?:/|(?:per|an?|each)\b)[ \t]?(?P<per>[A-Za-z]+)"
    r"(?:[ ]?(?P<power>\^[23]|[23²³]|squared))?|[ \t·]?(?P<inverse>[A-Za-z]+)(?:\^-|\u207b)(?P<times>[1-3¹²³]))?(?!\w)"
)
_MONEY_BEFORE: Final = re.compile(r"(?<![^\W\d_])([A-Za-z]{1,3}\$?)\.?[ \u00a0]?$")
_READINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "pound": ("lb", "£"),
    "¥": ("¥", "cny"),
    "$": ("$", "aud", "cad", "hkd", "nzd", "sgd"),
    "farad": ("farad", "°f"),
}
"""Units of which a word is one or another."""
_WORD: Final = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written in a text."""

    value: Fraction
    """As written: ``50 %`` has the value 50 here, ``5 million`` 5,000,000."""
    percent: bool
    text: str
    """The characters of the number."""
    scale: int = 1
    """What a magnitude behind the digits multiplies: 1,000,000 for ``5 million``."""
    unit: str = ""
    """The unit next to it if it is one of ``UNITS``; empty for any other and for none."""

    @property
    def abbreviated(self) -> bool:
        """Whether a letter is the magnitude, which in a formula is a variable: ``5k``."""
        bare = self.text.rstrip("% ")
        return self.scale > 1 and len(bare) > 1 and bare[-2].isdigit() and not re.match(rf"[+-]?[{_CURRENCY}]", bare)


def answered_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number that an output states, as ``number_of`` does; None when it states none."""
    stated = stated_answer(text)
    return None if stated is None else number_of(stated, decimal)


def number_of(stated: Stated, decimal: DecimalMark = ".") -> Number | None:
    r"""Return the number of what an output states; None for none.

    Without a mark it is the only number of the text, else the one that the last line concludes with. A part of something
    else, as in ``12\pi``, is none, and neither is one of several, as in ``Answer: 12 or 13``. Raises ``RewardError`` where
    several numbers are stated and no line concludes with one.
    """
    if not stated.is_marked:
        return _concluded_number(stated, decimal)
    read = boxed_number if stated.source == "box" else stated_number
    text = REMARK.sub("", _APPROXIMATELY.sub("=", stated.text))
    return read(text, decimal) or number_in_words(text) or read(stated.text, decimal)


@lru_cache(maxsize=4_096)  # a plan reads each reference three times, and each attempt again
def reference_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a reference; None when it is no single number as a whole.

    The text after the last ``####``, else the part that states an answer, has to be a number with words and units.
    """
    stated = stated_answer(text.rpartition(_MARK)[2])
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
    if re.match(r"[{\[].*['\"]", text) or _NAMED_BY_NUMBER.search(text):
        return True
    if hyphenated and hyphenated[1] not in UNITS:
        return True
    word = _WORD_BEFORE.match(text)
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


def _concluded_number(stated: Stated, decimal: DecimalMark) -> Number | None:
    """Return the number of a text without a mark: its only one, else that of its last line."""
    listed = _without_items(_EMPHASIS.sub(r"\1", _ascii(stated.whole, decimal)))
    numbers = _values(_DENIED.sub(" ", listed))
    if len({number.value for number in numbers if number is not None}) > 1:
        first, last = (_bare_number(line, decimal) for line in (stated.whole.partition("\n")[0], stated.text))
        if first is not None and (last is None or last.value != first.value):
            if last is not None:
                raise RewardError(f"the first line has {first.text}, and the last {last.text}")
            return first
        behind = stated.whole[stated.whole.rindex(stated.text) :].count("\n")
        lines = [_DENIED.sub(" ", each) for each in listed.split("\n")]
        *above, line = lines[: len(lines) - behind]
        if not _values(line) and not _TAKEN_BACK.search(line):  # a farewell
            line = next((each for each in reversed(above) if _values(each)), line)
        bold = [_ascii(found[1] or found[2], decimal) for found in _BOLD.finditer(_DENIED.sub(" ", stated.text))]
        return _last_line_number(line, bold)
    if not numbers:
        return number_in_words(stated.text) or number_in_words(stated.whole.partition("\n")[0])
    # The last one may be a part of something else, which is then what the text states.
    return None if numbers[-1] is None or REFUSAL.search(stated.whole) else numbers[-1]


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
    said = re.sub(r"^[A-Za-z]+:\s*", "", line.strip(" *_`"))
    listed = re.match(r"[-\u2022]\s|\d+[.)]\s", line.strip())
    is_one = len(said.split()) <= _BARE_WORDS and not listed and re.match(r"[-+$€£¥]*[\d.]", said)
    return only_number(said, decimal) if is_one and not said.endswith((":", ",", "?")) else None


_BARE_WORDS: Final = 3
_TAKEN_BACK: Final = re.compile(rf"\b(?:not|wrong|incorrect)\b|n't\b|{REFUSAL.pattern}", re.IGNORECASE)


def _last_line_number(line: str, bold: list[str]) -> Number | None:
    """Return the number that a line concludes with, else that in bold. Raise ``RewardError`` for several."""
    behind_word = _CONCLUSION.split(_OUT_OF.sub(" ", line))[-1]
    clause = re.split(r"[,;:]\s", line)[-1]
    ways = [
        [line],
        [] if _CONDITION.search(line) else ["".join(found) for found in _IS_NUMBER.findall(clause)],
        [line.rpartition("=")[2]] if "=" in line else [],
        [behind_word],
        [re.sub(r"\([^()]*\)", " ", line)],
        bold,
    ]
    for parts in ways:
        numbers = [number for part in parts for number in _values(part)]
        if len({number and number.value for number in numbers}) == 1:
            return numbers[-1]
    several = " and ".join(dict.fromkeys(number.text for number in _values(line) if number is not None)) or "none"
    raise RewardError(f"no answer is marked, and of several numbers the last line has {several}"[:200])


def _values(text: str) -> list[Number | None]:
    """Return the numbers of a text in order; None for one that is a part of a formula. Times, dates and ranges are omitted."""
    found: list[Number | None] = []
    for match in _NUMBER.finditer(text):
        if _PART_BEFORE.search(text[max(0, match.start() - 2) : match.start()]) or re.match(
            r"[:/-]\d", text[match.end() :]
        ):
            continue
        number = _read(match)
        if number is not None:
            found.append(None if _is_operand(match) else number)
    return found


def stated_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the number of a short statement such as ``x = 1,080 km``: the first after the last ``=`` of a line.

    Parts around ``=`` are tried from the last to the first; arithmetic (``3 * 12``) is skipped. The first line with a
    number counts; None without any.
    """
    for line in _DENIED.sub(" ", _ascii(text, decimal)).splitlines():
        if _ANOTHER_VALUE.search(line):
            return None
        for part in reversed(line.split("=")):
            number = _only_number(_LOOSE_SIGN.sub(r"\1", part))
            if number is not None:
                return number
    return None


def only_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    r"""Return the single number of a text with words and units, or after its ``=``; None for any other text.

    ``3, 7``, ``2\pi``, ``2+3i``, ``5!``, ``2x``, ``12:05`` and ``x = 3 or x = 7`` are no single number.
    """
    left, equals, stated = _ascii(text, decimal).rpartition("=")
    name = _SUBSCRIPT.sub("", left)
    named = not re.search(r"[\d+*/^<>×÷·⋅!-]|(?:\b[A-Z]{4,}\b.*){2}", name) or not re.search("[A-Za-z]", name)
    return None if equals and (not named or re.search("[,;=]", name)) else _single_number(stated)


def boxed_number(text: str, decimal: DecimalMark = ".") -> Number | None:
    """Return the single number of a box, after its last ``=``; None for any other content, such as ``x = 3 or x = 7``."""
    text = _DENIED.sub(" ", _ascii(text, decimal))
    several = sum(re.search(r"\d", part) is not None for part in _ALTERNATIVES.split(text)) > 1
    last = next((part for part in reversed(text.split("=")) if re.search(r"\d", part)), "")
    return None if several else _single_number(_LOOSE_SIGN.sub(r"\1", last))


def ordinal(text: str) -> int | None:
    """Return the number of a text that is an ordinal: ``3rd``, ``the third``, ``twenty-first``; None for any other text."""
    said = re.fullmatch(r"\W*(?:the )?(?:(\d+)(?:st|nd|rd|th)|(?:([a-z]+ty)[ -])?([a-z]+))\W*", text.casefold())
    if said is None or said[1]:
        return int(said[1]) if said else None
    ones = _ORDINALS.get(said[3])
    return ones if ones is None or not said[2] else _UNITS.get(said[2], 0) + ones


def number_in_words(text: str) -> Number | None:
    """Return the number of a short text in English words without digits: ``one half``, ``minus forty-two``."""
    whole, and_a, part = text.casefold().partition(" and a ")
    if and_a and (size := _PARTS.get((part.split() or [""])[0].strip(".*"))) and (ones := number_in_words(whole)):
        return replace(ones, value=ones.value + Fraction(1, size), text=f"{ones.text}{and_a}{part}")
    if (found := _CHINESE.search(text)) and not _CHINESE.search(text, found.end()):
        return Number(Fraction(_chinese_value(found[1])), percent=False, text=found[1])
    words = [word.casefold() for word in _WORD.findall(text)]
    if re.search(r"\d", text) or len(words) > _MOST_WORDS or ordinal(text) is not None:
        return None
    spelled = [word for word in words if word in _UNITS or word in _PARTS or (word in _MAGNITUDES and len(word) > 2)]
    start = words.index(spelled[0]) if spelled else 0
    inside = [word for word in words[start:] if word != "and"][: len(spelled)]
    before = words[start - 1] if start else ""
    pronoun = spelled == ["one"] and (len(words) > start + 2 or before in _NO_NUMBER)
    if not spelled or inside != spelled or pronoun or before in ("not", "never") or spelled[0] in _MAGNITUDES:
        return None
    value = _spelled_value(spelled)
    if value is None:
        return None
    negative = start > 0 and words[start - 1] in ("minus", "negative")
    signed, percent = -value if negative else value, "percent" in words or "%" in text
    unit = next((UNITS[word] for word in words[start:] if word in UNITS and "per" not in words), "")
    return Number(signed, percent=percent, text=" ".join(spelled), unit=unit)


_MOST_WORDS: Final = 14
_NO_NUMBER: Final = frozenset({"no", "any", "every", "each", "this", "that", "which", "the", "another", "some"})
"""Words before ``one`` where it is a pronoun."""


_CHINESE_DIGITS: Final = {sign: at % 10 for at, sign in enumerate("〇一二三四五六七八九零")} | {"两": 2, "兩": 2}
_CHINESE_SIZES: Final = {"十": 10, "百": 100, "千": 1_000, "万": 10_000, "萬": 10_000, "亿": 10**8, "億": 10**8}
_CHINESE: Final = re.compile(
    rf"(?<![\u3400-\u9fff])([{''.join([*_CHINESE_DIGITS, *_CHINESE_SIZES])}]+)"
    "[个個元人年岁歲次只天本块塊]?(?![\u3400-\u9fff])"
)


def _chinese_value(signs: str) -> int:
    """Return the value of Chinese numerals: ``二十三``; of digits alone, as in ``二〇二四``, what they read."""
    if not {*signs} & {*_CHINESE_SIZES}:
        return int("".join(str(_CHINESE_DIGITS[sign]) for sign in signs))
    total, group, ones = 0, 0, 0
    for sign in signs:
        size = _CHINESE_SIZES.get(sign, 0)
        if not size:
            ones = _CHINESE_DIGITS[sign]
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
        elif _MAGNITUDES[word] == 100:
            group, last = (group or 1) * 100, 1000
        else:
            total, group, last = total + (group or 1) * _MAGNITUDES[word], 0, 1000
    return total + group


def numbers_agree(left: Number, right: Number, tolerance: Fraction = Fraction(0)) -> bool:
    """Return whether a number equals the reference ``right``, or is at most ``tolerance`` apart.

    Two different units are two different things, but for multiples such as ``60 min`` and ``1 h``. A percent sign on one
    side only is a hundredth, and next to a reference above 1 it may be the unit: ``50 %`` agrees with ``0.5`` and with
    ``50``, but ``0.5 %`` not with ``0.5``.
    """
    # Five dollars an hour are five dollars, and five hours a day five hours, but 90 km are not 90 km/h.
    of, _, per = left.unit.partition("/")
    stated = left.unit if "/" in right.unit or (of not in _MONEY and per in ("hour", "minute", "second")) else of
    units = "%" if left.percent else stated, "%" if right.percent else right.unit
    if len({*units} - {""}) > 1:
        bases = [[_in_base_units(each) for each in _READINGS.get(unit, (unit,))] for unit in units]
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
    """Return the number of a text without other digits, unless what is next to it makes it a part of something else."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    before, behind = text[: match.start()], text[match.end() :]
    rest = _UNIT_POWER.sub("", f"{before} {behind}")
    if re.search(r"\d", rest) or _BESIDE.search(rest) or _BEFORE.search(before[-9:]) or re.match("[ \t$]*[|!]", behind):
        return None
    return None if _is_operand(match) else _read(match)


def _only_number(part: str) -> Number | None:
    """Return the first number of the text, unless it is a part of something else, or one of several."""
    for match in _NUMBER.finditer(part):
        number = _read(match)
        if number is not None:
            arithmetic = _OPERATOR_AHEAD.match(part, match.end()) or _OPERATOR_BEHIND.search(part[: match.start()][-9:])
            another = (
                _ANOTHER.match(part, match.end())
                or _LIKEWISE.match(part, match.end())
                or REFUSAL.search(part, 0, match.start())
            )
            return None if arithmetic or another or _is_operand(match) else number
    return None


def _is_operand(match: re.Match[str]) -> bool:
    r"""Return whether characters next to a number make it a part of something else: ``2\pi``, ``\sqrt 2``, ``12:05``."""
    before = match.string[max(0, match.start() - 20) : match.start()]
    return bool(
        _OPERATOR_BEFORE.search(before) or _PART_BEFORE.search(before) or _BEHIND.match(match.string, match.end())
    )


def _read(match: re.Match[str]) -> Number | None:
    value = None if len(match[0]) > _MAX_DIGITS else _tail(_magnitude(match), match)
    if value is None:
        return None
    scale = _MAGNITUDES[match["magnitude"].strip(" -.").lower()] if match["magnitude"] else 1
    signed = -value if "-" in (match["sign"], match["inner"]) else value
    behind = _UNIT.match(match.string, match.end())
    unit = _unit_of(behind["unit"]) if behind else ""
    if unit and behind:
        unit += _power(behind["degree"] or behind["own"])
        if per := behind["per"] or behind["inverse"]:
            unit = f"{unit}/{of}{_power(behind['power'] or behind['times'])}" if (of := _unit_of(per)) else ""
    if not unit:
        before = _MONEY_BEFORE.search(match.string[max(0, match.start() - 6) : match.start()])
        named = UNITS.get(before[1].lower(), "") if before else ""
        unit = named if named in _MONEY else UNITS.get((match["money"] or "").strip(), "")
    return Number(signed * scale, percent=bool(match["percent"]), text=match[0].strip(), scale=scale, unit=unit)


def _unit_of(name: str) -> str:
    """Return the unit that a word is; empty for any other word."""
    return UNITS.get(name) or UNITS.get(name.lower().replace(".", ""), "")


def _power(text: str | None) -> str:
    return "" if not text or text in "1¹" else "3" if re.search("[3³]|^ ?cub", text) else "2"


def _magnitude(match: re.Match[str]) -> Fraction | None:
    if match["whole"]:
        below = int(match["under"])
        return int(match["whole"]) + Fraction(int(match["over"]), below) if below else None
    if match["bare"]:
        return Fraction("0" + match["bare"])
    digits = re.sub(rf"[{_SEPARATORS}]", "", match["digits"])
    if digits.count(".") > 1:
        digits = digits.replace(".", "")
    # Parsing a text costs ``Fraction`` a regular expression.
    return Fraction(digits + match["decimals"]) if match["decimals"] else Fraction(int(digits))


def _tail(value: Fraction | None, match: re.Match[str]) -> Fraction | None:
    if value is None:
        return None
    if match["divisor"]:
        divisor = Fraction(match["divisor"].replace(",", ""))
        return value / divisor if divisor else None
    if match["power"]:
        exponent = int(match["power"])
        size = len(str(max(value.numerator, value.denominator))) * abs(exponent)
        return None if size > _MAX_DIGITS or (value == 0 and exponent < 0) else value**exponent
    shift = int(match["exponent"] or match["ten"] or 0)
    return value * Fraction(10) ** shift if abs(shift) <= _MAX_DIGITS else None


def _ascii(text: str, decimal: DecimalMark) -> str:
    """Rewrite typographic signs, digits of other scripts, vulgar fractions, LaTeX and decimal commas as plain numbers."""
    if not text.isascii():
        text = _POWER.sub(lambda power: "^" + unicodedata.normalize("NFKC", power[0]).replace("\u2212", "-"), text)
        text = _VULGAR.sub(lambda found: f"{found[1]} {unicodedata.normalize('NFKC', found[2])}".strip(), text)
        text = _SPACELESS.sub(" ", text.translate(_MARKS).replace("\u2044", "/"))
        text = "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in text)
    text = _MINUS.sub("-", text)
    for pattern, replacement in _LATEX if "\\" in text or "{" in text or "**" in text else ():
        text = pattern.sub(replacement, text)
    text = _EUROPEAN.sub(lambda found: f"{found[1].replace('.', '')}.{found[2]}", text)
    text = _CENTS.sub(lambda found: f"{found[1] or found[2]}.", text)
    return _LEADING_ZERO.sub(r"0.\1", text) if decimal == "." else _WITH_COMMA.sub(_with_point, text)


def _with_point(match: re.Match[str]) -> str:
    """Return a number with a decimal comma as one with a point; what can only be the other notation stays."""
    text = match[0]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", text):
        return text.replace(".", "")
    return text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
