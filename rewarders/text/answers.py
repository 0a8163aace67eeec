r"""Find the answer that a text states, as text or as a number, read exactly: ``1,080``, ``-3.5``, ``3/4``, ``\frac{1}{2}``.

There is no arithmetic: ``3 + 4`` is no number, and ``3,14`` is two numbers, not a decimal comma.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeAlias

LOOKED_AT: Final = 50_000
"""Characters from the end of a text that are searched: answers are at the end, and runaway replies are long."""

Source: TypeAlias = Literal["answer line", "box", "text"]

_ANSWER_LINE: Final = re.compile(
    r"^[ \t>*_#`-]{0,12}(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_`]{0,6}(?:[:\uff1a][ \t*_`]{0,6}|$(?=\s*\S))",
    re.IGNORECASE | re.MULTILINE,
)
_BOX: Final = re.compile(r"\\f?box(?:ed)?[ \t]{0,3}\{")
_INTEGER: Final = re.compile("[+-]?[0-9]{1,18}")
_MARK: Final = "####"
"""Before the answer, in references of the GSM8K form."""
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
_SEPARATORS: Final = ", \u00a0\u2009\u202f'\u2019_"
_DIGITS: Final = (
    rf"(?:[1-9]\d{{0,2}}(?:(?P<sep>[{_SEPARATORS}])\d{{3}}(?:(?P=sep)\d{{3}})*(?!\d)|(?:\.\d{{3}}){{2,}}(?!\d))|\d+)"
)
_NUMBER: Final = re.compile(
    rf"""
    (?<![\w^])(?<!\d\.)(?<!\^[+-])                   # not inside a word, a version number or an exponent
    (?P<sign>(?:(?<![\w)\]%])[+-])?)(?:[$€£¥]\ ?)?(?P<inner>(?:(?<=[$€£¥])[+-])?)
    (?: (?P<whole>\d{{1,9}})[ ]{{1,3}}(?P<over>\d{{1,9}})\ ?/\ ?(?P<under>\d{{1,9}})(?![\w/])   # 3 1/2
      | (?P<digits>{_DIGITS})(?P<decimals>\.\d+)? | (?P<bare>(?<!\.)\.\d+) )
    (?: [eE](?P<exponent>[+-]?\d{{1,4}})(?!\w)
      | \ ?[\u00d7*]\ ?10\ ?\^\ ?(?P<ten>[+-]?\d{{1,4}})(?!\w)
      | \^(?P<power>[+-]?\d{{1,4}})(?!\w)
      | \ ?/\ ?(?P<divisor>[+-]?\d{{1,3}}(?:,\d{{3}})+(?!\d)|[+-]?\d+(?:\.\d+)?)(?!\w) )?
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
_ALTERNATIVES: Final = re.compile(r",(?!\d{3})|[;&]|(?<![A-Za-z])(?:or|and)(?![A-Za-z])", re.IGNORECASE)
_ANOTHER: Final = re.compile(
    r"""[ \t$)]* (?: [,;:&±] | (?:,[ \t]*)? \(? (?:or|and|to(?![ \t]*\d+[ \t]*[dspf]))\b ) [ \t$(]* [+-]? [$€£¥]? \.? \d""",
    re.VERBOSE | re.IGNORECASE,
)
_ANOTHER_VALUE: Final = re.compile(r"\d[ \t$),]*(?:or|and)[ \t$(]+\w{1,3}[ \t]*=[ \t$]*[+-]?\d", re.IGNORECASE)
"""A second number on an answer line: ``x = 3 or x = 7``, ``12 or 13``, ``3,14``, but not ``3.14 to 2 decimal places``."""
_OPERATOR_BEFORE: Final = re.compile(
    r"(?:\\(?:sqrt|log|ln|exp|sin|cos|tan|pm|mp|[lg]eq?|[lg]t|neq?|overline|bar)(?:\[\d+\])?|[√∛∜±≠≤≥]|[ \t$][<>]"
    r"|(?<![A-Za-z])(?i:sqrt|log|ln|minus|negative|root of))[ \t$(]*$"
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
      | (?:hundred|thousand|million|billion|trillion|dozen|bn|mn|squared|cubed|factorial)s?\b
      | [π√±] | \\(?:pi|sqrt|pm|mp|log|ln)(?![A-Za-z]) ) | _\d
    | [(…\u00b2\u00b3\u00b9\u2070-\u2089] | \.\. | [a-ceijknp-rt-zBM](?![A-Za-z])
    | [ \t]+ [ijknxyz](?![A-Za-z]|[ ][a-z]{2})""",
    re.VERBOSE,
)
"""An operator with an operand, a magnitude, a power or base, endless decimals, a variable."""
_UNIT_POWER: Final = re.compile(r"(?<=[A-Za-z])[ \t]*\^[ \t]*[+-]?\d\b")
_SUBSCRIPT: Final = re.compile(r"(?<=[A-Za-z])_\w+")


@dataclass(frozen=True, slots=True)
class Stated:
    """The part of a text that states its answer."""

    text: str
    source: Source


def stated_answer(text: str) -> Stated:
    r"""Return the text after the last ``Answer:`` line, else the content of the last ``\boxed{}``, else the whole text.

    Only the rest of an answer line counts, unless it is empty, as in a heading ``Final answer``; then the text below does.
    """
    stated = _statement(text)
    box = _last(_BOX, stated.text)
    if box is None:
        return stated
    return Stated(_until_closing(stated.text[box.end() :]).strip(), "box")


def _statement(text: str) -> Stated:
    """Return the text after the last ``Answer:`` line, else the whole text."""
    tail = text[-LOOKED_AT:]
    marker = _last(_ANSWER_LINE, tail)
    if marker is None:
        return Stated(tail.strip(), "text")
    line, _, below = tail[marker.end() :].partition("\n")
    return Stated(line.strip() or below.strip(), "answer line")


def answered_number(text: str) -> Number | None:
    r"""Return the number after the last ``Answer:`` line or in the last ``\boxed{}``, else the last number, or None.

    A part of something else, as in ``12\pi``, is none, and neither is one of several, as in ``Answer: 12 or 13``.
    """
    # Most references are plain integers, which need no search.
    integer = _integer(text)
    if integer is not None:
        return integer
    stated = stated_answer(text)
    read = {"box": boxed_number, "answer line": stated_number, "text": last_number}[stated.source]
    return read(_APPROXIMATELY.sub("=", stated.text))


def reference_number(text: str) -> Number | None:
    """Return the number of a reference; None when it is no single number.

    The text after the last ``####``, else the last ``Answer:`` line, else the whole text has to be a number, or to have
    one box with a number; a box in a box is one.
    """
    integer = _integer(text)
    if integer is not None:
        return integer
    stated = _statement(text.rpartition(_MARK)[2]).text
    box = _BOX.search(stated)
    if box is None:
        return only_number(stated)
    behind = stated[box.end() :]
    inside = _until_closing(behind)
    return None if _BOX.search(behind, len(inside)) else only_number(inside)


def _integer(text: str) -> Number | None:
    bare = text.strip()
    return Number(Fraction(int(bare)), percent=False, text=bare) if _INTEGER.fullmatch(bare) else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007  the last one is wanted
        pass
    return found


def _until_closing(text: str) -> str:
    """Return the text up to the brace that closes an open one; all of it without one."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written in a text."""

    value: Fraction
    """As written: ``50 %`` has the value 50 here."""
    percent: bool
    text: str
    """The characters of the number."""

    def readings(self) -> tuple[Fraction, ...]:
        """Return the possible values: ``50 %`` is one half, or 50 of the unit "percent"."""
        return (self.value, self.value / 100) if self.percent else (self.value,)


def stated_number(text: str) -> Number | None:
    """Return the number of a short statement such as ``x = 1,080 km``: the first after the last ``=`` of a line.

    Parts around ``=`` are tried from the last to the first; arithmetic (``3 * 12``) is skipped. The first line with a
    number counts; None without any.
    """
    for line in _ascii(text).splitlines():
        if _ANOTHER_VALUE.search(line):
            return None
        for part in reversed(line.split("=")):
            number = _only_number(_LOOSE_SIGN.sub(r"\1", part))
            if number is not None:
                return number
    return None


def last_number(text: str) -> Number | None:
    """Return the last number in a text; None without any, or when it is a part of something else."""
    last = None
    for match in _NUMBER.finditer(_ascii(text)):
        last = last if _read(match) is None else match
    return None if last is None or _is_operand(last) else _read(last)


def only_number(text: str) -> Number | None:
    r"""Return the single number of a text with words and units, or after its ``=``; None for any other text.

    ``3, 7``, ``2\pi``, ``2+3i``, ``5!``, ``2x``, ``5 million`` and ``x = 3 or x = 7`` are no single number.
    """
    left, equals, stated = _ascii(text).rpartition("=")
    name = _SUBSCRIPT.sub("", left)
    named = not re.search(r"[\d+*/^<>×÷·⋅!-]", name) or not re.search("[A-Za-z]", name)
    return None if equals and (not named or re.search("[,;=]", name)) else _single_number(stated)


def boxed_number(text: str) -> Number | None:
    """Return the single number of a box, after its last ``=``; None for any other content, such as ``x = 3 or x = 7``."""
    text = _ascii(text)
    several = sum(re.search(r"\d", part) is not None for part in _ALTERNATIVES.split(text)) > 1
    last = next((part for part in reversed(text.split("=")) if re.search(r"\d", part)), "")
    return None if several else _single_number(_LOOSE_SIGN.sub(r"\1", last))


def _single_number(text: str) -> Number | None:
    """Return the number of a text without other digits, unless what is beside it makes it a part of something else."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    before, behind = text[: match.start()], text[match.end() :]
    rest = _UNIT_POWER.sub("", f"{before} {behind}")
    if re.search(r"\d", rest) or _BESIDE.search(rest) or _BEFORE.search(before[-9:]) or re.match("[ \t$]*[|!]", behind):
        return None
    return None if _is_operand(match) else _read(match)


def numbers_agree(left: Number, right: Number, tolerance: Fraction = Fraction(0)) -> bool:
    """Return whether two numbers are equal, or at most ``tolerance`` apart.

    A percent sign on one side only may be a hundredth or a unit, so ``50 %`` agrees with ``0.5`` and with ``50``.
    """
    if left.percent == right.percent:
        scale = 100 if left.percent else 1
        return abs(left.value - right.value) / scale <= tolerance
    return any(abs(a - b) <= tolerance for a in left.readings() for b in right.readings())


def format_value(value: Fraction) -> str:
    """Write a value: an exact integer or short decimal, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    text = format(decimal.normalize(), "f")
    return text if len(text) <= 20 and Fraction(text) == value else f"{value.numerator}/{value.denominator}"


def _only_number(part: str) -> Number | None:
    """Return the first number of the text, unless it is a part of something else, or one of several."""
    for match in _NUMBER.finditer(part):
        number = _read(match)
        if number is not None:
            arithmetic = _OPERATOR_AHEAD.match(part, match.end()) or _OPERATOR_BEHIND.search(part[: match.start()][-9:])
            return None if arithmetic or _is_operand(match) or _ANOTHER.match(part, match.end()) else number
    return None


def _is_operand(match: re.Match[str]) -> bool:
    r"""Return whether characters next to a number make it a part of something else: ``2\pi``, ``\sqrt 2``, ``5 million``."""
    before = match.string[max(0, match.start() - 20) : match.start()]
    return bool(_OPERATOR_BEFORE.search(before) or _BEHIND.match(match.string, match.end()))


def _read(match: re.Match[str]) -> Number | None:
    value = None if len(match[0]) > _MAX_DIGITS else _tail(_magnitude(match), match)
    if value is None:
        return None
    signed = -value if "-" in (match["sign"], match["inner"]) else value
    return Number(signed, percent=bool(match["percent"]), text=match[0].strip())


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
    """Apply what follows the digits: an exponent, a power or a divisor."""
    if value is None:
        return None
    if match["divisor"]:
        divisor = Fraction(match["divisor"].replace(",", ""))
        return value / divisor if divisor else None
    if match["power"]:
        return _power(value, int(match["power"]))
    shift = int(match["exponent"] or match["ten"] or 0)
    if shift == 0:
        return value
    return value * Fraction(10) ** shift if abs(shift) <= _MAX_DIGITS else None


def _power(base: Fraction, exponent: int) -> Fraction | None:
    size = len(str(max(base.numerator, base.denominator))) * abs(exponent)
    if size > _MAX_DIGITS or (base == 0 and exponent < 0):
        return None
    return base**exponent


def _ascii(text: str) -> str:
    """Rewrite typographic signs, digits of other scripts, vulgar fractions and LaTeX in ASCII."""
    if not text.isascii():
        text = _POWER.sub(lambda power: "^" + unicodedata.normalize("NFKC", power[0]).replace("\u2212", "-"), text)
        text = _VULGAR.sub(_spelled_out, text.translate(_MARKS))
        text = "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in text)
    for pattern, replacement in _LATEX if "\\" in text or "{" in text or "**" in text else ():
        text = pattern.sub(replacement, text)
    return text


def _spelled_out(match: re.Match[str]) -> str:
    """Return ``½`` as ``1/2``, and as a mixed number after a digit."""
    fraction = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    return f"{match[1]} {fraction}" if match[1] else fraction
