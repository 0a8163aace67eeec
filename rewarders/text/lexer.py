r"""Turn a text into its numbers, once: each with its value, its unit, and what makes it a part of something else.

Numbers are read exactly, in any notation: ``1,080``, ``-3.5``, ``3/4``, ``\frac{1}{2}``, ``5 million``. There is no arithmetic.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from tfgrpo.rewarders.text.answers import UNSPACED, VOCABULARY, any_of
from tfgrpo.rewarders.text.rules import Beside, Surroundings

DecimalMark: TypeAlias = Literal[".", ","]
# Longer runs of digits, and powers with more digits, are not read.
_MAX_DIGITS: Final = 400
_MARKS: Final = str.maketrans(
    "\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d\uff0b\uff05\u066a\uff0e\uff0c\u2044\u2215", "-------+%%.,//"
)
CURRENCY: Final = "$€£¥₹₩₽₺₪฿₫₴₦₱"
_SEPARATORS: Final = ", \u00a0\u2009\u202f'\u2019_"
_DIGITS: Final = (
    rf"(?:[1-9]\d{{0,2}}(?:(?P<sep>[{_SEPARATORS}])\d{{3}}(?:(?P=sep)\d{{3}})*(?!\d)|(?:\.\d{{3}}){{2,}}(?!\d))"
    r"|[1-9]\d?(?:,\d\d){1,9},\d{3}(?!\d)|\d+)"  # 1,00,000 as in India
)
MAGNITUDES: Final = {name: size for names, size in VOCABULARY["magnitudes"].items() for name in names.split()}
_NUMBER: Final = re.compile(
    rf"""
    (?<![\w^])(?<!\d\.)(?<!\^[+-])                   # not inside a word, a version number or an exponent
    (?P<sign>(?:(?<![\w)\]%])[+-])?)(?P<money>[{CURRENCY}]\ ?)?(?P<inner>(?:(?<=[{CURRENCY}])[+-])?)
    (?: (?P<whole>\d{{1,9}})[ ]{{1,3}}(?P<over>\d{{1,9}})\ ?/\ ?(?P<under>\d{{1,9}})(?![\w/])   # 3 1/2
      | (?P<digits>{_DIGITS})(?P<decimals>\.\d+)? | (?P<bare>(?<!\.)\.\d+) )
    (?: [eE](?P<exponent>[+-]?\d{{1,4}})(?!\w)
      | \ ?[\u00d7\u00b7\u22c5*xX]\ ?10(?:\ ?\^\ ?\(?|(?<=\u00d710)(?=-))(?P<ten>[+-]?\d{{1,4}})\)?(?!\w)
      | \^(?P<power>[+-]?\d{{1,4}})(?!\w)
      | \ ?/\ ?(?P<divisor>[+-]?\d{{1,3}}(?:,\d{{3}})+(?!\d)|[+-]?\d+(?:\.\d+)?)(?!\w) )?
    (?P<magnitude>(?(money)[kmb](?![\w^])|(?-i:[kKMB](?![\w^])))
      |[\ -]?(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore)s?(?!\w)|\ ?(?:mn|bn|tn|mio|mrd|mln)(?!\w)\.?)?
    (?P<percent>\ {{0,2}}(?:%|per\ ?cent\b|pct\b|Prozent\b))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_POWER: Final = re.compile("(?<=[0-9])[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
# "1-1/2 cups" and "1 and 1/2" are one number.
_MIXED: Final = re.compile(r"(?<![\d./-])(\d+)(?:-(?=\d+/\d+ [A-Za-z])|[ ]and[ ])(\d{1,2}/\d{1,2})(?![\d/])")
_VULGAR: Final = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e\u2189])")
_SPACELESS: Final = re.compile(rf"(?<=[{UNSPACED}])(?=[-+$€£¥]?[\d.])|(?<=[\d%])(?=[{UNSPACED}])")
_SPOKEN: Final = {
    name: [(re.compile(spoken), written) for spoken, written in table.items()] for name, table in VOCABULARY["spoken"].items()
}
# Money has two decimals, so that 89,90 € has a decimal comma.
_CENTS: Final = re.compile(
    rf"(?<=[{CURRENCY}])( ?\d{{1,3}}),(?=\d\d(?![\d,]))|(?<![\d.,])(\d{{1,3}}),(?=\d\d\s?(?:[{CURRENCY}]|EUR|Euro))"
)
_EUROPEAN: Final = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d{3})+),(\d+)(?![\w,.]\d|\w)")
_LEADING_ZERO: Final = re.compile(r"(?<![\w.,])0,(\d+)(?!,?\d)")
_ENDLESS: Final = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{0,9}?)(\d)\3{2,9}(?:\.{3}|\u2026)")
_REPEATING: Final = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{0,9})\\(?:overline|bar|dot)\{(\d{1,9})\}")
# The dollars of LaTeX are no money: $75$, but not $5-$7.
_IN_DOLLARS: Final = re.compile(
    r"\$(?=[^$\n\\]*\\[A-Za-z])([^$\n]*)\$|(?<![\w\\$])\$(?!\s)((?:[^$\n\\A-Za-z]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+)(?<!\s)\$(?!\d)"
)
_WITH_COMMA: Final = re.compile(r"(?<![\w.,])\d[\d.,]*\d(?!\w)")
# Metric units by their spellings, which differ by letter case: the base, the unit with its prefix, and the factor.
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
UNITS: Final[Mapping[str, str]] = {spelled: unit or base for spelled, (base, unit, _) in _METRIC.items()} | {
    name: names.split()[0] for names in VOCABULARY["units"] + VOCABULARY["currencies"] for name in names.split()
}
"""Without ``in``, which is a word besides."""
MONEY: Final = {names.split()[0] for names in VOCABULARY["currencies"]}
TO_BASE: Final[Mapping[str, tuple[str, Fraction]]] = {
    unit or base: (base, factor) for base, unit, factor in _METRIC.values()
} | {
    name: (base, Fraction(factor))
    for base, factors in VOCABULARY["multiples"].items()
    for name, factor in {base: "1", **factors}.items()
}
_UNIT: Final = re.compile(
    r"[ \t*$\\-]{0,3}(?:(?P<degree>square|sq\.?|cubic)[ -])?"
    r"(?:(?P<nation>U\.S\.|US|Hong[ ]Kong|New[ ]Zealand|Singapore|[A-Z]\w*(?:an|ish|ese|ch|ss))[ ]"
    r"(?=(?:dollar|pound|rupee|franc|peso|yen|dinar|crown|krone)s?\b))?"
    rf"(?P<unit>[°‰¢{CURRENCY}]\s?[CF]?|(?:R|US|[AC])\$|(?:A\.D|C\.E|B\.C(?:\.E)?)\.|[A-Za-zµ\u00c0-\u024f\u03bc\u03a9\u2126]{{1,30}}?)"
    r"(?P<own>[ \t}$]{0,2}\^[23]|(?<=m)[23]|[²³]| squared| cubed)?(?:[ \t]?(?:/|(?:per|an?|each)\b)[ \t]?(?P<per>[A-Za-z]+)"
    r"(?:[ ]?(?P<power>\^[23]|[23²³]|squared))?|[ \t·]?(?P<inverse>[A-Za-z]+)(?:\^-|\u207b)(?P<times>[1-3¹²³]))?(?!\w)"
)
_MONEY_BEFORE: Final = re.compile(r"(?<![^\W\d_])([A-Za-z]{1,3}\$?)\.?[ \u00a0]?$")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written in a text."""

    value: Fraction
    """As written: ``50 %`` has the value 50 here, ``5 million`` 5,000,000."""
    percent: bool
    text: str
    scale: int = 1
    """What a magnitude behind the digits multiplies: 1,000,000 for ``5 million``."""
    unit: str = ""
    """The unit next to it if it is one of ``UNITS``; empty for any other and for none."""

    @property
    def abbreviated(self) -> bool:
        """Whether a letter is the magnitude, which in a formula is a variable: ``5k``."""
        bare = self.text.rstrip("% ")
        return self.scale > 1 and bare[-2].isdigit() and not re.match(rf"[+-]?[{CURRENCY}]", bare)


class Token(NamedTuple):
    """A number of a text, in its plain spelling."""

    number: Number
    start: int
    end: int
    part: str
    """The rule of ``PART`` by which it is a part of something else; empty for none."""

    @property
    def value(self) -> Number | None:
        """The number, unless it is a part of something else."""
        return None if self.part else self.number


_WORD_OPERATOR: Final = r"(?<![A-Za-z])(?i:{})"
_NAME: Final = r"(?:sqrt|cbrt|(?:arc)?(?:sin|cos|tan)h?|log|ln|exp)"
FUNCTION: Final = rf"(?:[√∛∜]|(?<![\\A-Za-z]){_NAME}(?:\d?[ ]?[(\d\\π]|[ ][a-z]\b)|\\{_NAME}(?![A-Za-z]))"
r"""A function, in LaTeX or as programs have it: ``\sqrt``, ``sqrt(2)``, ``ln 2``; not the noun in ``2 log files``."""
CONSTANT: Final = r"(?:(?<![\u0370-\u03ff])π(?![\u0370-\u03ff])|\\pi(?![A-Za-z])|(?<![\\A-Za-z])pi(?![^\W\d_]))"
PART: Final = Surroundings(
    Beside("span", "12:«05»", r"\d[:/-](?![ \t$(])", r"[:/-]\d"),
    Beside(
        "function",
        r"\sqrt «2»",
        rf"\\(?:{_NAME}|[dtc]?binom|overline|bar)(?:\[\d+\])?|[√∛∜]|(?<![A-Za-z])(?:{_NAME}\d?(?=[ (])|(?<=\d[ ])choose)",
    ),
    Beside("divisor", r"\pi/«2»", r"(?:\\[A-Za-z]+|π|\)|(?<![A-Za-z])(?:[a-z]|pi)|[\d}](?=[ \t]*/\())[ \t]*/"),
    Beside("spoken", "square root of «2»", _WORD_OPERATOR.format("sqrt|log|ln|minus|negative|root of")),
    Beside("relation", "x ≤ «3»", r"\\(?:[lg]eq?|[lg]t|neq?)|[≠≤≥<]|[<>]=|[ \t$]>|(?<![\w</])[A-Za-z]>|^>(?![ \t$(])"),
    Beside("either", "5 ± «2»", r"\\(?:pm|mp)|±", r"[ \t$]*(?:±|\\(?:pm|mp)(?![A-Za-z]))"),
    Beside(
        "bound",
        "at least «3»",
        _WORD_OPERATOR.format(any_of("bounds")) + "|[少多大小高低]于|超[过過]|不到|至[少多]|最[少多]",
        r"[ \t$]*or[ ](?:more|less|fewer|greater|above|over|below|under)\b|[ \t]*\w?(?:[之以][前后後上下]|未満)",
    ),
    Beside(
        "operand",
        "«2» * x",
        r"[\d)][ \t]*[-+*×/·][ \t]*(?=\()",
        r"[ \t$]*[*×·⋅÷^+<>-][ \t$]*(?:[A-Za-z](?![A-Za-z]|[ ][a-z]{2})|[(\\|])",
    ),
    Beside("dividend", "«2»/x", "", r"[ \t$]*/[ \t]*(?:[A-Za-gi-kn-rt-z](?![A-Za-z])|\()"),
    Beside("raised", "«2»²", "", r"[ \t$]*(?:squared|cubed|factorial|choose(?=[ ]\d))s?\b|\^|[ -]?fold\b|[²³¹\u2070-\u2089]"),
    Beside("hour", "«2» pm", "", r"[ \t$]*[aApP]\.?[mM]\b"),
    Beside("decade", "«1990»s", "", r"[ \t$]*(?<=\d\d0)s\b"),
    Beside("constant", "«2»π", "", rf"[ \t$]*(?:[-+*×·⋅÷/][ \t$]*)?(?:{FUNCTION}|{CONSTANT})"),
    Beside("variable", "«2»x", "", r"[a-ceijknp-rt-z](?![A-Za-z])|[ \t]+[ijknxyz](?!\w|[ ]{0,2}-?[a-z]{2})|\("),
    Beside("endless", "«0.33»…", "", r"…|\.\."),
    Beside("version", "«3.1».4", "", r"\.\d|_\d|\+(?![\w(.])|(?![ckm]?m[23]\b)[A-Za-z]+\d"),
    look=20,
    gap=r"[ \t$(]*",
)
"""What makes a number a part of something else."""
ONE_OF: Final = Surroundings(
    Beside(
        "sum", "3 + «4»", r"[\w)][ \t]{0,3}[+\u00d7÷·/*][ \t]{0,3}", r"[ \t]*(?:[+\u00d7*÷·⋅/^]|-(?!-))[ \t]*[$(]?[ \t]*[\d.]"
    ),
    Beside(
        "another",
        "«12» or 13",
        "",
        r"[ \t$)]{0,40}(?:(?:[^\W\d_][^\W_]{0,30}(?:/[^\W\d_]{1,30})?[ \t]{1,9}){1,2}(?=or\b)|/(?=[$€£¥]))?"
        r"(?:(?<=/)|(?<=[ ])(?!\()|[,;:&±|→]|(?:,[ \t]*)?\(?(?i:or|and|through|vs\.?|then|to(?![ \t]*\d+[ \t]*[dspf]))\b)"
        r"[ \t$(]*[+-]?[$€£¥]?\.?\d",
    ),
    Beside("until", "«1988» to June 1990", "", r"[ ](?:to|until|through|[-–])[ ](?:[A-Z][a-z]{2,8}[ /]){1,2}\d"),
    Beside("root", "«3» or x = 7", "", r"[ \t$),]*(?i:or|and)[ \t$(]+\w{1,3}[ \t]*=[ \t$]*[+-]?\d"),
    Beside(
        "likewise",
        "«5» km, 9 km",
        "",
        r"[ ]?(?P<unit>[A-Za-z°µ²³%]{1,20})[ ]?(?:[,;/]|\b(?:or|and)\b)[ ]?(?:or[ ]|and[ ])?[-+]?\d[\d.,]{0,20}"
        r"[ ]?(?P=unit)(?!\w)",
    ),
    look=9,
)
"""What makes a number one of several, of which none is stated."""
DENIED: Final = Surroundings(
    Beside(
        "denied",
        "not «42»",
        r"(?:\b(?:not|never|isn't|wasn't|aren't|doubt|(?:wrong|incorrect)[ ]answer[ ]is)|n['’]t\b)"
        r"(?:[ \t]+(?:think|believe|say|sure|that|it|is|be|the|an?"
        r"|exactly|only|equal|to)){0,4}[ \t]{1,9}|不是[ \t]*",
    ),
    Beside(
        "wrong",
        "«42» is wrong",
        "",
        r"[*%]{0,3}(?:[ \t][^\s.,;!?]{1,30})?[ \t](?:is|was|would[ ]be)[ ](?:not\b|too\b|wrong|incorrect|false"
        r"|[^.,;!?\n]{0,60},[ ](?:and|but)[ ](?:it|that)(?:'s|[ ]is)[ ](?:wrong|incorrect|false|not)\b)",
    ),
    Beside("compared", "larger than «42»", r"\b(?:less|more|\w{2,12}er)[ ]than[ \t]+"),
    Beside("multiplied", "twice «42»", r"\b(?:(?:half|thirds?|quarters?)[ ]of|twice|double|triple)[ ](?:the[ ])?"),
    Beside("asked", "«42»?", "", r"[*%]{0,3}\?"),
    gap=r"[$€£*]{0,3}",
    flags=re.IGNORECASE,
)
"""What makes a number none that an output states."""
_NATIONAL: Final[Mapping[str, Mapping[str, str]]] = {
    nation: money for names, money in VOCABULARY["national"].items() for nation in names.split()
}


class NumberLine(NamedTuple):
    """A text in its plain spelling, with spaces for the numbers that it denies, and the others."""

    text: str
    tokens: list[Token]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a text with its numbers that can be read."""
        tokens: list[Token] = []
        denied, since, until = -2, 0, 0
        for match in _NUMBER.finditer(text):
            start, end = match.span()
            attached = start - since < 3 and not text[since + 1 : start].strip(",./:-")  # 5 of 1,5 or 1-5
            doubt = "rest" if start < until or (attached and denied == since + 1) else DENIED.of(text, start, end, since)
            if doubt:
                begin = tokens.pop().start if attached and tokens and tokens[-1].end == since + 1 else start
                text, denied = f"{text[:begin]}{' ' * (end - begin)}{text[end:]}", end
                if doubt == "wrong":  # and so is the rest of the clause
                    until = min((at for sign in ".,;\n" if (at := text.find(sign, end)) >= 0), default=len(text))
            elif (number := _read(match)) is not None:
                tokens.append(Token(number, start, end, PART.of(text, start, end, since)))
            since = end - 1
        return cls(text, tokens)

    def relation(self, token: Token) -> str:
        """Return the rule of ``ONE_OF`` by which a number is one of several; empty for none."""
        return ONE_OF.of(self.text, token.start, token.end)


def _read(match: re.Match[str]) -> Number | None:
    value = None if len(match[0]) > _MAX_DIGITS else _value(match)
    if value is None:
        return None
    scale = MAGNITUDES[match["magnitude"].strip(" -.").lower()] if match["magnitude"] else 1
    signed = -value if "-" in (match["sign"], match["inner"]) else value
    behind = _UNIT.match(match.string, match.end())
    unit = unit_of(behind["unit"]) if behind else ""
    if behind and behind["nation"]:
        # A currency that is not known is told from others by its name.
        nation, money = behind["nation"].lower(), behind["unit"].lower().removesuffix("s")
        unit = _NATIONAL.get(nation, {}).get(money, f"{nation} {money}")
    if unit and behind:
        unit += _power(behind["degree"] or behind["own"])
        if per := behind["per"] or behind["inverse"]:
            unit = f"{unit}/{of}{_power(behind['power'] or behind['times'])}" if (of := unit_of(per)) else ""
    if not unit:
        before = _MONEY_BEFORE.search(match.string[max(0, match.start() - 6) : match.start()])
        named = UNITS.get(before[1].lower(), "") if before else ""
        unit = named if named in MONEY else UNITS.get((match["money"] or "").strip(), "")
    return Number(signed * scale, percent=bool(match["percent"]), text=match[0].strip(), scale=scale, unit=unit)


def unit_of(name: str) -> str:
    """Return the unit that a word is; empty for any other word."""
    return UNITS.get(name) or UNITS.get(name.lower().replace(".", "").replace(" ", ""), "")


def _power(text: str | None) -> str:
    return "" if not text or text in "1¹" else "3" if re.search("[3³]|^ ?cub", text) else "2"


def _value(match: re.Match[str]) -> Fraction | None:
    if match["whole"]:
        if not int(match["under"]):
            return None
        value = int(match["whole"]) + Fraction(int(match["over"]), int(match["under"]))
    elif match["bare"]:
        value = Fraction("0" + match["bare"])
    else:
        digits = re.sub(rf"[{_SEPARATORS}]", "", match["digits"])
        digits = digits.replace(".", "") if digits.count(".") > 1 else digits  # 1.080.000
        # Parsing a text costs ``Fraction`` a regular expression.
        value = Fraction(digits + match["decimals"]) if match["decimals"] else Fraction(int(digits))
    if match["divisor"]:
        divisor = Fraction(match["divisor"].replace(",", ""))
        return value / divisor if divisor else None
    if match["power"]:
        exponent = int(match["power"])
        size = len(str(max(value.numerator, value.denominator))) * abs(exponent)
        return None if size > _MAX_DIGITS or (value == 0 and exponent < 0) else value**exponent
    shift = int(match["exponent"] or match["ten"] or 0)
    return value * Fraction(10) ** shift if abs(shift) <= _MAX_DIGITS else None


def written(text: str, kind: str) -> str:
    """Return a text with numbers, times, spans of time or formulas as they are written: ``-12`` for ``12 below zero``."""
    for spoken, replacement in _SPOKEN[kind]:
        text = spoken.sub(replacement, text)
    return text


def _as_fraction(repeating: re.Match[str]) -> str:
    r"""Return a decimal with repeating digits as a fraction: ``0.8\overline{3}`` as ``75/90``."""
    whole, once, again = repeating.groups()
    under = (10 ** len(again) - 1) * 10 ** len(once)
    return f"{int(whole + once + again) - int(whole + once)}/{under}"


@lru_cache(maxsize=16)  # of one answer several rules read the same text
def plain_digits(text: str, decimal: DecimalMark) -> str:
    """Rewrite typographic signs, digits of other scripts, vulgar fractions, LaTeX and decimal commas as plain numbers."""
    text = written(_ENDLESS.sub(r"\1.\2\\overline{\3}", text), "numbers")  # 0.333...
    text = _IN_DOLLARS.sub(r" \1\2 ", text) if "$" in text else text
    if not text.isascii():
        text = _POWER.sub(lambda power: "^" + unicodedata.normalize("NFKC", power[0]).replace("\u2212", "-"), text)
        text = _VULGAR.sub(lambda sign: f"{sign[1]} {unicodedata.normalize('NFKC', sign[2])}".strip(), text)
        text = _SPACELESS.sub(" ", text.translate(_MARKS))
    if "\\" in text or "{" in text or "**" in text:
        text = written(_REPEATING.sub(_as_fraction, text), "latex")
    text = _MIXED.sub(r"\1 \2", text)
    text = _EUROPEAN.sub(lambda number: f"{number[1].replace('.', '')}.{number[2]}", text)
    text = _CENTS.sub(lambda money: f"{money[1] or money[2]}.", text)
    return _LEADING_ZERO.sub(r"0.\1", text) if decimal == "." else _WITH_COMMA.sub(_with_point, text)


def _with_point(match: re.Match[str]) -> str:
    """Return a number with a decimal comma as one with a point; what can only be the other notation stays."""
    text = match[0]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", text):
        return text.replace(".", "")
    return text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
