"""Forms in which texts are compared: without markup, letter case and punctuation around them; calls by their values."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import UNSPACED, VOCABULARY, Stated, any_of
from tfgrpo.rewarders.text.lexer import UNITS
from tfgrpo.rewarders.text.numbers import EMPHASIS, number_in_words, ordinal, roman
from tfgrpo.rewarders.text.rules import OR, SHOWN

TRIMMED: Final = " \t\n.,;:?\"'`*_()[]{}$\u2018\u2019\u201c\u201d\u00ab\u00bb\u201e"
"""Around an answer. So is ``#`` before it and ``!`` behind it, but not the other way round: ``C#`` and ``!p`` are names."""
SIGNED: Final = re.compile(r"(?:\d+|[nkm])!|[a-z]'+")
"""A factorial, or a prime: their signs are no punctuation."""
_SPACED_COMMAS: Final = re.compile(r" ?([,;]) ?")
_LATEX_TEXT: Final = re.compile(r"\\(?:text|math(?:rm|bf|cal)|textbf|operatorname|mbox)[ ]*\{((?:[^{}]|\{[^{}]*\})*)\}")
LATEX_SPACE: Final = re.compile(r"\\(?:left|right|displaystyle)|(?<!\\)\\[,;:! ()\[\]]|\$")
MARKUP: Final = re.compile(
    r"\*\*|__(?!\w{1,80}__\.[a-z]|\.[a-z])|`|<[^<>@:]{1,20}>(?=\*{0,2}\w)|(?:(?<=[\w.])|(?<=\w\*\*))<[^<>@:]{1,20}>|\ufe0f"
)
"""A tag is markup where it touches a word: ``<b>Paris</b>``, but not in ``the tag <b>``."""
# Subscript of a chemical formula in LaTeX: ``H_2O``.
_SUBSCRIPT: Final = re.compile(r"(?<![a-z]{2})(?<=[A-Za-z)}\]])_\{?(\d+)\}?")
BOLD: Final = re.compile(r"\*\*([^*\n]+)\*\*")
QUOTES: Final = str.maketrans(
    "\u2018\u2019\u2032\u201c\u201d\u2033\u00ab\u00bb\u201e\u2010\u2011\u2012\u2013\u2014\u2212\u207b\u208b\u266f\u266d",
    '\'\'\'""""""--------#b',
) | {0x2192: "->"}
INVISIBLE: Final = dict.fromkeys((0x200B, 0x2060, 0xFEFF, 0xAD))
"""Signs that nobody sees; not those that join letters, which change words."""
_LEAD: Final = re.compile(r"^(?:=>|[=>|]) (?=\S)")

CODE: Final = "xcodex"
"""What stands for a reference of code where an answer has it as it is written."""
# What only code has, of which every sign counts.
_IS_CODE: Final = re.compile(
    r"""(?P<exact>\\(?:[dDwWsSbB](?![a-z])|\.) | \[\^?\w-\w+\] | \w<\w+>(?![^<]*</) | \A\^\S*\$\Z)   # a regular expression
    | \A[!-/:-@\[-^{-~\s]+\Z | \A[(\[][^()\[\]]*∞[^()\[\]]*[)\]]\Z                           # signs; an interval
    | \A(?:(?:~|\.{0,2})/|[.\#@$!])[a-z*] | (?<![^\s/])\*+(?=[./]|\s+\S|\Z)(?<!\A\*(?=\s))     # a path, a selector
    | \A(?:[a-z]\w*|[A-Z])[*&]+\Z | [a-zA-Z](?:\[(?!\d+\])[^\[\]]*\])+\Z | \A\w\[\d+\]\Z            # a type, a slice
    | \w\s?(?:&&|[=!]=)\s?\w | (?:[a-z]\s|\A)-{1,2}[A-Za-z]                                        # a condition, an option""",
    re.VERBOSE,
)
_OF_CODE: Final = re.compile(r"(?<!\S)-{1,2}\w[\w-]*|\w+|\s+|&&|[=!]=|.")
_QUOTE_IN_CODE: Final = "['\"\u2018\u2019\u201c\u201d]"
_IN_CODE: Final = {"'": _QUOTE_IN_CODE, '"': _QUOTE_IN_CODE, "-": "[-\u2010-\u2015\u2212]", "∞": r"(?:∞|\\{1,2}infty\b)"}


@lru_cache(maxsize=64)
def written_code(text: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns for a text of code as it is written, with markup that surely is markup; none for a text that is none."""
    if (kind := _IS_CODE.search(text)) is None:
        return ()
    signs = not re.search(r"[\w∞]", text)
    brackets = re.escape("()[]{}<>") if signs and re.search(r"[()\[\]{}<>]", text) else ""
    own = "".join(sign for sign in "*$" if sign in text)
    before = rf"(?<![\w.~&/#@+=\[\\|^%!<{own}{brackets}-])" + (rf"(?<![{brackets}][ \t])(?<!\d: )" if brackets else "")
    behind = rf"(?![\w~&/#@+=(\[|^%>{own}-]|\\(?!\")|<(?!/)|[.:]\w" + (rf"|\s*(?!</)[{brackets}])" if brackets else ")")
    patterns = []
    for form in dict.fromkeys((text.strip(), json.dumps(text.strip(), ensure_ascii=False)[1:-1])):
        code, last = "", ""
        for each in _OF_CODE.findall(re.sub(r"\s+" if signs else r"\s*(&&|[=!]=|,)\s*", "" if signs else r"\1", form)):
            one = _IN_CODE.get(each, re.escape(each))
            loose = each in ("&&", "==", "!=", ",") or (each == ":" and "[" in text)
            one = r"\s+" if each.isspace() else rf"\s*{one}\s*" if loose else one
            spaced = (signs and " " in text) or (each in "*&" and last.isalnum())
            code += r"\s*" * (spaced and code != "") + (f"(?i:{one})" if each[0].isalpha() and not kind["exact"] else one)
            last = each
        code = code.removesuffix("/") + "/?" if re.match(r"(?:~|\.{0,2})/\w", text) else code
        code = rf"(?:[a-z]\w{{0,30}}\.)?{code}" if re.match(r"[A-Z]\w+\[", text) else code  # typing.List[int]
        slash = "|/" if kind["exact"] else ""
        mark = rf"(?<![*`])(?P<sign>\*\*|`{{1,9}}|\*{slash})(?P<words>(?<=\*\*)[A-Z][^*\n]{{0,60}} |(?<=`)\s+)?"
        ends = rf"(?(sign)\s*(?P=sign)(?!\*)|(?(tag)(?=</)|{behind}))"
        patterns.append(re.compile(rf"(?:{mark}|(?P<tag>>)|{before})(?P<code>{code}){ends}"))
    return tuple(patterns)


def with_code_as_word(text: str, code: tuple[re.Pattern[str], ...]) -> str:
    """Return a text with one word for each place of a code, bold or quoted as the code is."""

    def word(match: re.Match[str]) -> str:
        sign = (match["sign"] or "")[:2].replace("``", "`").replace("/", "")
        return f"{match['tag'] or ''}{sign}{(match['words'] or '').lstrip()}{CODE}{sign}"

    text = re.sub(r"\\(?:left|right)(?=[()\[\]])\s*", "", text) if "infty" in text or "∞" in text else text
    for each in code:
        text = each.sub(word, text)
    return text


def lacks_signs(text: str, output: str) -> bool:
    """Return whether an output has a text of code without its first signs or with other spaces: ``pdf`` for ``.pdf``."""
    bare, (own, said_bare) = text.lstrip("./$#@~"), (re.sub(r"[\s()]", "", each) for each in (text, output))
    before, behind = r"(?<![\w./$#@~\\-])", r"(?![\w*&\[(]|\.\w)"
    spaced = not re.search(r"[\[\]∞]", text) and re.search(before + re.escape(own) + behind, said_bare)
    return bool(spaced or (bare != text and re.search(f"(?i){before}{re.escape(bare)}{behind}", output)))


@lru_cache(maxsize=64)  # of one answer several rules read the same forms
def plain(text: str) -> str:
    """Return the comparable form of a text: without markup, letter case, Unicode variants and punctuation around it."""
    text = _SUBSCRIPT.sub(r"\1", re.sub(r"(?<=\d)_\{(\d+)\}", r"_\1", text)) if "_" in text else text
    text = unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKC", text.translate(QUOTES)).casefold().replace("i\u0307", "i").replace("\u0131", "i")
    )
    if "\\" in text or "$" in text:
        text = LATEX_SPACE.sub(" ", _LATEX_TEXT.sub(r"\1", text))
        for pattern, symbol in VOCABULARY["symbols"].items():
            text = re.sub(rf"(?:{pattern})(?![a-z])", symbol, text)
    # Spaces are folded first: the pattern of commas would search a long run of them anew at each place.
    collapsed = _SPACED_COMMAS.sub(r"\1 ", " ".join(MARKUP.sub("", text).split()))
    if SIGNED.fullmatch(collapsed):
        return collapsed
    bare = _LEAD.sub("", collapsed).removesuffix(" |")
    bare = bare.lstrip(TRIMMED + "#").rstrip(TRIMMED + "!")
    return (bare[1:-1] if bare[:1] == "<" and bare.find(">") == len(bare) - 1 else bare) or collapsed


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are the same but for letter case, markup, and white space: ``7!`` is not ``7``."""
    folded = (" ".join(MARKUP.sub("", each).translate(QUOTES).casefold().split()).rstrip(".") for each in (one, other))
    return len({*folded}) == 1


_LINE_OF_LIST: Final = re.compile(r"\n[ \t]{0,9}(?:[-*\u2022]\s+|(?:\d+[.)]|\(\d\d?\))(?:\s+|(?:\.\.)?(?=[A-Za-z])))")
_NUMBERED_ENTRY: Final = re.compile(r"(?:\A\s*|(?<=\w)[,;]? )\(?\d\) (?=\w)")
_JOINED: Final = re.compile(r",? (?:and|&) |(?<=\w)&(?=\w)|; | ?\u3001 ?")
_HYPHENATED: Final = re.compile(r"(?<=[^\W\d_]{2})[-_](?=\w)")
_SCRIPTS_MEET: Final = re.compile(rf"(?<=[{UNSPACED}])(?=[a-z\d])|(?<=[a-z\d])(?=[{UNSPACED}])")
_QUOTED: Final = re.compile(r"(?<!\S)([\"*_])([A-Za-z][^\"*_\n]*)\1(?!\S)")
_SPACED_UNIT: Final = re.compile(r"(?<=\d) ([a-z]{1,3})\b")
_SPACED_SIGN: Final = re.compile(r" ?([-+=<>*/|§°%'\"(){}\[\]:]) ?")
# That of an ion or a footnote; powers are formulas, which are not compared as texts.
_SUPERSCRIPT: Final = re.compile(r"(?:(?<=[^\W\d_])\^\{?(?=\d)|(?<=[^\W_])\^\{?(?=[+-]))([\d+-]{1,3})\}?")
# Initials: ``U.S.A.``, ``Ph.D.``, ``J. R. R.``
_DOTTED: Final = re.compile(r"(?i)\b(?:(?:[A-Z]\. ?)+[A-Z]\.|(?:[A-Z][a-z]?\.)+[A-Z]\b)")
ORDINAL: Final = re.compile(r"\b(?:(?:[a-z]+ty[ -])?[a-z]*(?:th|first|second|third)|\d+(?:st|nd|rd|th))\b")
_SPAN: Final = re.compile(r"(?:(?<=\d)|(?<=bc))( ?)(?:[-:]|\b(?:to|until|through)\b)\1(?=\d)")
_UNIT_TWICE: Final = re.compile(r"(?<=\d)( ?(?:%|[^\W\d_]{1,12}))(?=(?: ?- ?| to )\d[\d.,]*\1(?!\w))")  # 10% to 15%
_BETWEEN_TWO: Final = re.compile(r"\bbetween (?=\d)([^ ]{1,20}) and (?=\d)")
# What is written or not: the protocol of a host, the ``v`` of a version, a dot of ``v.``, a paragraph sign.
_DROPPED: Final = re.compile(
    r"^https?://(?=[\w.-]+$)|^(?:https?://(?:dx\.)?doi\.org/|doi: ?)(?=10\.\d)"
    r"|\bv(?=\d+\.\d)|(?<=\w)/$|(?<=\d0)'(?=s\b)|(?<= v)s?\.(?= )|§+ ?|^tel:|(?<=\d) ?\(0\) ?(?=\d)"
)
_NOTE: Final = re.compile(r"\b([a-g])[ -](sharp|flat)\b")
_ENDINGS: Final = {*VOCABULARY["endings"].split(), ""}
_STROKES: Final = str.maketrans("łøđðħ", "loddh")
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "æ": "ae", "å": "aa"})
NAMES_OF_DAYS: Final = {name: names.split()[0] for names in VOCABULARY["days"] + VOCABULARY["months"] for name in names.split()}
_INITIAL: Final = re.compile(r"\b([^\W\d_])\. ?(?=[^\W\d_])|,? \b([js])n?r\b\.?|\b(dr|mrs?|ms|prof|st)\.(?= )")
# The years of a season: ``1951-52``, ``1951/1952``.
_SHORT_YEAR: Final = re.compile(r"(?<![\w.,/-])(1[5-9]|20)(\d\d)[-/](?:\1)?(\d\d)(?![\w/-]|[.,]\d)")


def is_form_of(one: str, other: str) -> bool:
    """Return whether two words differ in their endings: ``contradicts``, ``contradiction``."""
    size = next((at for at, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), min(len(one), len(other)))
    whole = size in (len(one), len(other))
    return (size > 3 or (size == 3 and whole)) and {one[size:], other[size:]} <= _ENDINGS


@lru_cache(maxsize=64)
def comparable(text: str) -> str:
    """Return the plain form of a text with lists and ranges in one notation: ``a, b and c``, ``2 to 5``."""
    listed = _NUMBERED_ENTRY.sub(", ", _LINE_OF_LIST.sub(", ", EMPHASIS.sub(r"\1", f"\n{text}"))).lstrip(", ")
    listed = _DOTTED.sub(lambda match: re.sub(r"[. ]", "", match[0]), listed)
    bare = _DROPPED.sub("", plain(listed))
    bare = _NOTE.sub(lambda match: match[1] + "#b"[match[2] == "flat"], _SCRIPTS_MEET.sub(" ", bare))
    bare = _INITIAL.sub(lambda match: f"{match[1]} " if match[1] else f" {match[2]}r" if match[2] else match[3], bare)
    bare = _SPACED_UNIT.sub(lambda match: match[1] if match[1] in UNITS else match[0], bare)
    bare = re.sub(r"(?<=\d) ?per ?cent\b", "%", bare)
    bare = re.sub(r"\b(?:less than|below|under) (?=\d)", "<", re.sub(r"(?<=[<>]) (?=\d)", "", bare))
    bare = _SPAN.sub("-", _JOINED.sub(", ", _UNIT_TWICE.sub("", _BETWEEN_TWO.sub(r"\1-", bare))))
    for match in reversed([*_SHORT_YEAR.finditer(bare)]):  # years of a season; else months
        if match[2] < match[3] or (int(match[2]) + 1) % 100 == int(match[3]):
            century = int(match[1]) + (match[3] < match[2])
            bare = f"{bare[: match.start()]}{match[1]}{match[2]}-{century}{match[3]}{bare[match.end() :]}"
    return bare


def one_spelling(text: str) -> str:
    """Return the comparable form of a text with hyphens as spaces, ordinals in digits, and no spaces around signs."""
    spelled = _HYPHENATED.sub(" ", comparable(_QUOTED.sub(r"\2", text.translate(QUOTES))))
    spelled = ORDINAL.sub(lambda match: f"{number}th" if (number := ordinal(match[0])) is not None else match[0], spelled)
    spelled = re.sub(r" (?:a|per|each|every) day\b", " daily", spelled)
    spelled = _SPACED_SIGN.sub(r"\1", _SUPERSCRIPT.sub(r"\1", spelled)).replace('"', "'")
    return ", ".join(str(NAMES_OF_DAYS.get(re.sub("(?<=day)s$", "", each), each)) for each in spelled.split(", "))


def _small_number(match: re.Match[str]) -> str:
    number = number_in_words(match[0])
    return "2 times" if match[0] == "twice" else str(number.value) if number and number.value.denominator == 1 else match[0]


def american(text: str) -> str:
    """Return a text in plain form with American spelling: ``color`` for ``colour``."""
    text = re.sub(r"(?<=[a-z]{2})our", "or", re.sub(r"(?<=[a-z][bt])re\b", "er", text))
    return re.sub(r"(?<=[a-z]{3})is(?=e|ing|ation)", "iz", text).replace("grey", "gray").replace(" bce", " bc")


def _numbered(text: str) -> str:
    """Return a name with the number at its end in digits: ``henry 8`` for ``henry viii`` and ``henry the eighth``."""
    match = re.fullmatch(r"([a-z' ]+?) (?:the )?([a-z]+|[1-9]\d?)(?:th)?", text)
    if match is None:
        return text
    words, sign = number_in_words(match[2]), roman(match[2].upper()) if re.fullmatch("[ivx]+", match[2]) else None
    number = str((words and words.value) or sign or match[2])
    return f"{match[1]} {number}" if number.isdecimal() else text


def is_acronym(short: str, full: str) -> bool:
    """Return whether a text has the initials of the capitalized words of another: ``UK``, ``WWII``."""
    words = re.findall(r"[A-Z][\w'’-]*", full)
    initials = "".join(each if re.fullmatch("[IVX]+", each) else each[0] for each in words)
    bare = re.sub(r"^the |[.\s]", "", short, flags=re.IGNORECASE)
    return len(words) > 1 and bare == initials and not re.search(r"[a-z]\b.* [a-z]{4,}", full)


_THOUSANDS: Final = re.compile(r"(?<=\d)(?:, ?| )(?=\d{3}(?!\d))")
_TIMES: Final = re.compile(r"(?<=\d)(?:cm|mm|m|ft|in|px)?\s?(?:[x×*]|by)\s?(?=\d)")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=\d)[\s,;/-]+(?=\d)")
_BETWEEN_LETTERS: Final = re.compile(r"(?<=[^\W\d_])(?:\s?[-/*·]\s?|[,;] |[!?] ?| (?:und|et) )(?=[^\W\d_])")
_BESIDE_DIGITS: Final = re.compile(
    r"(?<=[^\W\d_])(?:[,;]? |[-/*·])(?=\d)|(?<=\d)(?:[,;]? |[-/*·])(?=[^\W\d_])|(?<=[^\W_])'(?=[a-z])|[\[\]]"
)


_QUARTER: Final = re.compile(r"(?:the )?(?:q([1-4])|([1-4])(?:q|th quarter)(?: of)?)[ '/]?(?:of )?(?:20)?(\d\d)")


def with_parts_alike(text: str) -> str:
    """Return a name with what parts its words and figures in one way: ``t2n0m0`` for ``t2, n0, m0``, ``10x20cm``."""
    text = _TIMES.sub("x", _THOUSANDS.sub("", text))
    if not re.search(r"[^\W\d_]", text) or re.search(r"[@\\_=<>]|://", text):
        return text  # of numbers and code each sign counts
    return _BETWEEN_LETTERS.sub(" ", _BESIDE_DIGITS.sub("", _BETWEEN_DIGITS.sub("·", text)))


# What one writes in a name, and another does not: ``Oh! What a Lovely War``, ``Kiss Me, Kate``.
_WITHIN_NAMES: Final = re.compile(
    r"[,()]|(?<=[^\W\d]):(?=\w)|(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})|(?<=[^\W\d_])[!?](?= )|/(?!\d)|\b(?:of|the|von|van) "
)
ALIKE: Final[tuple[Callable[[str], str], ...]] = (
    american,
    _numbered,
    with_parts_alike,
    lambda text: re.sub(r"\b(?:twice|[a-z]{3,6})\b", _small_number, text.replace("a day", "daily")),
    lambda text: re.sub(r"^(?:the )?(?:usa?|united states(?: of america)?)$", "us", text),
    lambda text: re.sub(r"^(?:the )?(?:uk|united kingdom)$", "uk", text),
    lambda text: re.sub(r"(?<=\d[-:]\d\d)(?:z|\+00[-:]?00)$", "", text),
    lambda text: re.sub(r"(?:^|(?<=, ))(?:an?|the) (?=\w)", "", text),
    lambda text: " ".join(_WITHIN_NAMES.sub(" ", text).split()),
    lambda text: text.replace(" ", "") if re.fullmatch(r"(?!the )[a-z]{3,} ?[a-z]{3,}", text) else text,
    lambda text: text.translate(_UMLAUTS),
    lambda text: re.sub(r"[ ·()]", "", text) if re.fullmatch(r"o\([^+^]*", text) else text,
    lambda text: text.replace(" ", "") if "->" in text else text,
    lambda text: f"q{match[1] or match[2]} {match[3]}" if (match := _QUARTER.fullmatch(text)) else text,
    lambda text: re.sub(r"^(\d{4})[ -]?(q[1-4])$", r"\2 \1", text),
)
"""Forms in which two spellings may be the same: a list without commas, ``ue`` for ``ü``, a reaction without spaces."""
_SIGN_OF_BASE: Final = {"2": "b", "8": "o", "16": "x"}
_BASES: Final = {word: str(value) for word, value in VOCABULARY["numbers"].items() if 1 < value < 17}
# The base of a number that is asked for: ``in base eight``.
_BASE_ASKED: Final = re.compile(rf"(?i)\b(?:(binary)|(octal)|(hexadecimal)|base[- ]?\$?(\d+|{'|'.join(_BASES)}))\b")
_ADDRESS_ENDS: Final = re.compile(r"^(?:https?:/+)?(?:www\.)?|/$")
TITLES: Final = any_of("titles")
TITLE: Final = re.compile(rf"^(?:{TITLES}) (?=[^ ]+ [^ ])")
# A name, with or without its legal form.
_COMPANY: Final = re.compile(
    r"(?s)^(.*?)(?:,? (inc|incorporated|corp|corporation|co|company|ltd|limited|llc|plc|gmbh|ag|kg|sa|bv))?\.?$"
)
# A text with a remark before or behind it: ``World Health Organization (WHO)``.
_REMARK: Final = re.compile(
    r"(?i)(?:\((?P<before>[^()]+)\) )?(?P<bare>[^()]+?)(?: \((?:(?:or|accept|also):? )*(?P<behind>[^()]+)\))?"
)
# What is no remark in brackets: ``iron (III)``, ``Article 5 (a)``.
_ENUMERATED: Final = re.compile(r"[A-Za-z]|[IVXLivxl]+|\d{1,3}|.*[=<>;].*")
# Words with capitals, and what is between them: ``Leonardo da Vinci``.
_NAME: Final = re.compile(r"[^\W\d_a-z]\S*(?: (?:d[aeiu]|de[lr]|von|van|l[ae]|of|the|and|\W*[^\W_a-z]\S*))* \W*[^\W_a-z]\S*")
# Words of a name that is looked for within a sentence, and one more.
_MOST_NAMES: Final = 6
CallsBeside: TypeAlias = Literal["same", "more", "others", ""]
# What parts calls from the prose above and below them.
_BETWEEN_BLOCKS: Final = re.compile(r"(?m)\n[ \t]*\n|:[ \t]*\n|^[ \t]*```[^`\n]*$")
# An argument with its name; calls without are formulas: ``f(2)``, ``O(n)``.
_NAMED: Final = re.compile(r"[(,][\w ]{1,60}=(?!=)")
_AROUND_CALLS: Final = " \t\n`;"


def code(text: str) -> str:
    """Return a telephone number, an account or a post code without what parts its signs; empty for another text."""
    digits = sum(map(str.isdigit, text)) if len(text) < SHOWN else 0
    parts = re.split(r"[ :-]+" if re.search("[a-z]", text) else r"[ ().:/-]+", text.strip("()"))
    short = all(part.lstrip("+").isalnum() and (len(part) < 4 + (digits > 8) or re.search(r"\d", part)) for part in parts)
    return "".join(parts) if short and digits >= (2 if re.search("[a-z]", text) else 9) else ""


def is_short_for(one: str, other: str) -> bool:
    """Return whether two texts differ only in abbreviations before the last word: ``Mt. Everest``, ``Art. 6``."""
    pairs = [sorted(pair, key=len) for pair in zip(one.split(), other.split(), strict=False)]
    same_length = len(pairs) > 1 and one.count(" ") == other.count(" ") and pairs[-1][0] == pairs[-1][1]
    return same_length and all(short == full or abbreviates(short, full) for short, full in pairs)


def abbreviates(short: str, full: str) -> bool:
    """Return whether a word is short for another: ``St`` and ``Street``, ``Ltd`` and ``Limited``."""
    bare, full = short.rstrip(".,"), full.rstrip(",")
    outer = len(full) > 3 and re.fullmatch(r"[^\W\d_aeiou]{2,3}", bare) and (bare[0], bare[-1]) == (full[0], full[-1])
    return bool(outer) or (len(bare) > 1 and short != bare and full.startswith(bare))


def is_same_in_base(prompt: str, one: str, other: str) -> bool:
    """Return whether two numbers are the same but for a mark of the base that a question names: ``0xff``, ``116_8``."""
    bases = [*_BASE_ASKED.finditer(prompt)]
    if not bases:
        return False
    named = (bases[-1][4] or ("2", "8", "16")[(bases[-1].lastindex or 1) - 1]).lower()
    base = _BASES.get(named, named)
    either = "|".join((base, *(word for word, value in _BASES.items() if value == base)))
    bare = (re.sub("[\u2080-\u2089]+(?=\\W*$)", r"_\g<0>", each) for each in (one, other))
    return len({re.sub(rf"^0{_SIGN_OF_BASE.get(base, '(?!)')}|_\{{?(?:{either})\}}?$", "", plain(each)) for each in bare}) == 1


def is_same_address(one: str, other: str) -> bool:
    """Return whether two addresses are the same but for a scheme that one of them lacks, ``www``, and a slash at the end."""
    schemes = {match[0] for each in (one, other) if (match := re.match("https?:", each))}
    bare = [_ADDRESS_ENDS.sub("", each) for each in (one, other)]
    return "." in one and "/" in one + other and len(schemes) < 2 and bare[0] == bare[1]


def without_accents(text: str) -> str:
    """Return a plain text without accents and strokes."""
    parts = unicodedata.normalize("NFKD", text.translate(_STROKES))
    return "".join(each for each in parts if unicodedata.combining(each) < 2)  # no stroke: ∉


def turned_name(name: str) -> str:
    """Return a name in plain form without its title, the surname last: ``john watson`` for ``watson, dr. john``."""
    return re.sub("^([^,]+), ([^,]+)$", r"\2 \1", TITLE.sub("", name, count=1))


def is_same_company(one: str, other: str) -> bool:
    """Return whether two names in one spelling are of one company: ``apple``, ``apple inc``."""
    (name, form), (wanted, wanted_form) = (_COMPANY.findall(each)[0] for each in (one, other))
    short, full = sorted((form, wanted_form), key=len)
    is_known = wanted_form or " " not in wanted  # Jane Roe and Jane Roe Ltd are two
    return bool(name == wanted and is_known and (full.startswith(short) or abbreviates(short, full)))


def may_be_same_person(name: str, wanted: str, written: str) -> bool:
    """Return whether two names in one spelling may be of one person: with a middle name, a nickname, initials or a title."""
    untitled = [TITLE.sub("", each, count=1) for each in (name, wanted)]
    names = [re.sub(" [js]r$", "", each).replace(".", " ").split() for each in untitled]
    if len({*untitled}) < 2 or not 1 < len(names[0]) < _MOST_NAMES or len(names[1]) < 2 or not all(map(str.isalpha, names[0])):
        return False
    (*forenames, last), (*other_forenames, surname) = names
    few, many = sorted((forenames, other_forenames), key=len)
    nickname = re.search(rf"[\"'(]{forenames[0]}[\"')]", written.translate(QUOTES), re.IGNORECASE)
    others = iter(many)
    same = (nickname or _is_initial(few[0], many[0])) and all(any(_is_initial(each, one) for one in others) for each in few)
    capital = re.compile(r"[\"'(]*[^\W\d_a-z]|(?:v[ao]n|d[aei])$")
    is_name = all(map(capital.match, written.split())) and not re.match("(?:the|an?) ", wanted)
    is_name = is_name or any(re.search(r" [a-z]\b| [js]r$", each) for each in untitled)
    return bool(is_name and last == surname and (same or (len(forenames) == 1 and re.fullmatch(TITLES, forenames[0]))))


def _is_initial(one: str, other: str) -> bool:
    return one in (other, other[:1]) or other == one[:1]


def without_remark(text: str) -> tuple[str, str]:
    """Return a text without a remark in brackets before or behind it, and the remark; empty where it has none, or two."""
    match = _REMARK.fullmatch(text.strip())
    remark = (match["before"] or "") + (match["behind"] or "") if match else ""
    alone = match and remark and not (match["before"] and match["behind"]) and not _ENUMERATED.fullmatch(remark)
    return (match["bare"], remark) if match and alone else ("", "")


def tells_apart(remark: str, bare: str) -> bool:
    """Return whether a remark may tell one thing from others of its name: ``Mercury (planet)``, but not ``(1701-1714)``."""
    converts = remark[:1].isdigit() and re.search(r"\d", bare)  # 12 km (7.5 mi)
    return re.match(r"[a-z]|\d(?!\d{3}|.*\d{4})", remark) is not None and not converts


def is_short_name(short: str, full: str) -> bool:
    """Return whether a text is an acronym of another, or the formula or the letters for a term: ``NaCl``, ``DNA``."""
    term = full.islower() and re.fullmatch(r"(?=.*[A-Z])[A-Z][A-Za-z\d]*", short) is not None
    letters = short.isupper() and short[0].lower() == full[0]
    return is_acronym(short, full) or (term and (letters or not (short.isalpha() and (short.isupper() or short.istitle()))))


def written_alike(name: str, text: str) -> Iterator[str]:
    """Yield what of a text may be a name in another spelling: the same letters, the same first or last word, an acronym."""
    bare, folded = (without_accents(each.translate(QUOTES).lower()).replace("×", "x") for each in (name, text))
    letters = [*filter(str.isalnum, re.sub(r"^(?:the|an?) (?=\w{2})", "", bare))]
    held = "".join(letters) in "".join(filter(str.isalnum, folded))
    if held and 0 < len(letters) < SHOWN and len(folded) == len(text):
        pattern = r"[\W_]{0,3}".join(map(re.escape, letters))
        yield from (text[slice(*each.span())] for each in re.finditer(rf"(?<!\w)\+?{pattern}(?!\w)", folded))
    name_words = [each.strip(TRIMMED) for each in bare.split()]
    words = [re.sub(r"['\u2019]s?\W*$", "", each.strip("\"'()[]")) for each in text.split()]
    begins = [each[:1].isupper() for each in words] if name[:1].isupper() and len(name_words) <= _MOST_NAMES else []
    for start in (at for at, capital in enumerate(begins) if capital):
        for end in range(start + 1, min(start + _MOST_NAMES, len(words)) + 1):
            ends = [without_accents(words[at].strip(TRIMMED).lower()) for at in (start, end - 1)]
            both = " ".join(words[start:end]).strip(TRIMMED)
            same = end > start + 1 and (ends[0] == name_words[0] or ends[1] == name_words[-1]) and _NAME.fullmatch(both)
            short, full = sorted((name, both), key=len)
            initials = (name if end > start + 1 else both).isupper() and is_acronym(short, full)
            if same or (initials and (len(short) > len("UK") or not re.search(" [a-z]", full))):
                yield both
            if words[end - 1][-1:] in [*",;:?!"]:
                break


def without_accepted(statement: str, wanted: str, accepted: tuple[str, ...]) -> str:
    """Return a comparable sentence without other accepted answers next to an ``or``: ``the cella or naos``."""
    if len(accepted) < 2 or not re.search(rf"\b(?:{OR})\b|/", statement):
        return statement
    for each in sorted({*map(comparable, accepted)}, key=len, reverse=True):
        if each != wanted and each in statement:
            name = rf"[\"']?(?<!\w){re.escape(each)}(?!\w)[\"']?"
            statement = re.sub(rf",? (?:{OR}) (?:the |an? )?{name}|/{name}|{name}(?: (?:{OR}) |/)", "", statement)
    return statement


class _Notation(ast.NodeTransformer):
    """Numbers, lists and the order of named arguments in one notation."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_whole = isinstance(node.value, float) and node.value.is_integer()
        return ast.Constant(int(node.value)) if is_whole else node  # type: ignore[arg-type]

    def visit_Tuple(self, node: ast.Tuple) -> ast.List:
        return ast.List([self.visit(each) for each in node.elts], node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords.sort(key=lambda each: each.arg or "~")
        return self.generic_visit(node)


@lru_cache(maxsize=64)
def _calls_in(text: str) -> tuple[str, ...]:
    """Return the calls that a text is, in a list, in a line or a line each, in one spelling; none where it has more."""
    if "=" not in text or len(text) > 10_000:
        return ()
    try:
        lines = ast.parse(text.strip(_AROUND_CALLS)).body
        values = [each.value if isinstance(each, ast.Expr) else None for each in lines]
        entries = [one for each in values for one in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])]
        calls = [each for each in entries if isinstance(each, ast.Call)]
        spelled = tuple(one_spelling(ast.unparse(_Notation().visit(each))) for each in calls)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ()
    return spelled if len(calls) == len(entries) else ()


def makes_calls(text: str) -> bool:
    """Return whether a text is calls of functions, some with a named argument, and nothing else."""
    return any(map(_NAMED.search, _calls_in(text)))


def calls_beside(wanted: str, stated: Stated) -> CallsBeside:
    """Return what the calls of an answer, the last ones, are beside those that are wanted; empty where either has none.

    ``more`` are calls in no list, of which the others may be steps before or after them.
    """
    if not makes_calls(wanted):
        return ""
    blocks = [] if stated.is_marked else [each for each in _BETWEEN_BLOCKS.split(stated.whole) if _calls_in(each)]
    texts = [each for each in (stated.text, *blocks[-1:], stated.whole) if _calls_in(each)][: 1 if stated.is_marked else None]
    ours = _calls_in(wanted)
    if ours in map(_calls_in, texts):
        return "same"
    if any({*_calls_in(each)} >= {*ours} and each.strip(_AROUND_CALLS)[:1] != "[" for each in texts):
        return "more"
    return "others" if texts else ""
