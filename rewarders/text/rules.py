"""Rules by which an answer is compared with a reference: in order, and the first that holds decides.

Each has a name, which is what it says of the answer, and an example, which a test runs: the table is the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from tfgrpo.rewarders.text.answers import any_of, last_question
from tfgrpo.stores.errors import RewardError

# ``unclear``: two readings, no score. ``none``: wrong, and nothing of the kind of the reference is stated.
_Verdict: TypeAlias = Literal["right", "wrong", "unclear", "none"]


class Compared(NamedTuple):
    """Whether an output states the reference, and what it states, in one line."""

    right: bool
    answered: str
    states: bool = True
    """Whether the output states anything of the kind of the reference."""


_R = TypeVar("_R")


@dataclass(frozen=True)
class ReadAnswer(Generic[_R]):
    """An output, or a part of it, beside a reference: what rules look at."""

    reference: _R
    text: str

    @property
    def answered(self) -> str:
        """The answer as it is read, in one line."""
        return shown(self.text)


_A_contra = TypeVar("_A_contra", bound=ReadAnswer[Any], contravariant=True)


class AnswerRule(NamedTuple, Generic[_A_contra]):
    """One reason for a verdict on an answer."""

    verdict: _Verdict
    name: str
    """What it says of the answer; the reason of what is unclear."""
    reference: str
    """With the next: an example that this rule decides."""
    output: str
    holds: Callable[[_A_contra], object]
    prompt: str = ""
    """Of the example, where the rule looks at it."""


_S = TypeVar("_S")
_F = TypeVar("_F")


class Way(NamedTuple, Generic[_S, _F]):
    """One way in which a text says what it states."""

    name: str
    example: str
    """A line that states 42; an output that names B, of A) Rome, B) Paris, C) Berlin."""
    of: Callable[[_S], _F]


def first_of(rules: Iterable[AnswerRule[_A_contra]], answer: _A_contra) -> Compared | None:
    """Return the verdict of the first rule that holds; None where none does. Raise ``RewardError`` where it is unclear."""
    for rule in rules:
        if rule.holds(answer):
            if rule.verdict == "unclear":
                raise RewardError(f"{answer.answered} {rule.name}")
            return Compared(rule.verdict == "right", answer.answered, rule.verdict != "none")
    return None


def verdict_by(rules: Iterable[AnswerRule[_A_contra]], answer: _A_contra) -> Compared:
    """Return the verdict of the first rule that holds, of rules of which the last always does."""
    return first_of(rules, answer) or Compared(False, answer.answered, states=False)


SHOWN: Final = 80
"""Longest value in evidence."""


def shown(text: str, most: int = SHOWN) -> str:
    """Quote a text in one line: control characters and line breaks are escaped, a long one is cut."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


class Beside(NamedTuple):
    """One reason for what is next to a place to change its meaning: a pattern that ends before it, or begins behind it."""

    name: str
    example: str
    """A text with the place in «marks»."""
    before: str = ""
    behind: str = ""


class Surroundings:
    """Rules about what is next to a place of a text."""

    def __init__(self, *rules: Beside, look: int = 60, gap: str = "", flags: int = 0) -> None:
        self.rules = rules
        self._look = look
        before = [f"(?P<{each.name}>{each.before})" for each in rules if each.before]
        behind = [f"(?P<{each.name}>{each.behind})" for each in rules if each.behind]
        # With an end to search, \Z matches there, and (?!) nowhere.
        self._before = re.compile(f"(?:{'|'.join(before) or '(?!)'}){gap}\\Z", flags)
        self._behind = re.compile("|".join(behind) or "(?!)", flags)

    def of(self, text: str, start: int, end: int, since: int = 0) -> str:
        """Return the name of the rule for what is next to a place, and behind ``since``; empty for none."""
        match = self._before.search(text, max(since, start - self._look), start) or self._behind.match(text, end)
        return (match.lastgroup or "") if match else ""


_NOT: Final = any_of("not")
OR: Final = any_of("or")
STEM: Final = 4
"""Letters at the beginning of a word that its forms share."""
# A verb ends the denial of another: "those who did not pass are 12", but not "not that it is 12".
_COPULA: Final = r"(?<!\bit )(?<!\bhe )(?<!\bthat )(?<!\bthis )(?:is|are|was|were)"
_OUTDONE: Final = "(?:replac|supersed|succeed|defeat|preced|outperform)e?"
_OPEN: Final = r"\b(?:whether|(?:see|check) if) (?:(?! and | but )[^.,:;!?])*"
UNCLEAR: Final = re.compile(
    rf"(?i)\b(?:{_NOT}|wrong|wrongly|incorrect|rather than|instead of|or|but)\b|n't\b|不[是在]|,[^()\[\]]{{0,80}}[)\]]/"
)
"""Words with which a list, a formula, a moment or letters are denied, or one of several answers."""
DENIALS: Final = Surroundings(
    Beside(
        "negated",
        "it is not «paris»",
        rf"(?:\b(?:{_NOT}|(?<!none )(?:{any_of('instead')}))|n't)(?! (?:only|merely)\b)"
        rf"(?:\s+(?!(?:{any_of('but')}|{_COPULA})(?!\w)|-+\s)\S*[^\s.,!?;:)]){{0,2}}(?:\s+(?:le|la|on|in|at|the|an?))?\s*",
        rf"\s+(?:isn't|wasn't)\b|:?\s+(?!statt)(?:{_NOT}|no)(?: हैं?)?\s*(?:[.,!;।]|$)",
    ),
    Beside(
        "excluded",
        "they rejected «bob»",
        r"\b(?:exclud|eliminat|reject|discard)\w*(?! by\b)(?:\s+(?!(?:but|or)\b)\S*[^\s.,!?;:)]){0,2}\s*",
    ),
    Beside(
        "crossed",
        "❌ «paris»",
        r"(?<!\w )(?<!\w)(?:[\u274c\u2717\u2718\u2716]\ufe0f?|(?:wrong|incorrect):)[^\w\n]{0,4}",
        r"(?<!\bno)(?<!\bfalse)[^\w\n]{0,4}[\u274c\u2717\u2718\u2716](?!\ufe0f?\s*\w)",
    ),
    Beside("answered", "rome, no «paris»", r",\s+no\s*", r"\?+\s+no\b"),
    Beside(
        "spaceless",
        "不是«巴黎»",
        r"(?:不[是为為选選]?|非|[没沒]有?|无|無|ไม่(?:ใช่)?)\s*",
        r"\s*(?:(?:でも\w{1,8})?(?:で|じゃ|と)[はも]?(?:な[いく]|ありません|言え)|[이가]\s?아[니닙닌])",
    ),
    Beside(
        "disbelieved",
        "i do not think that it is «paris»",
        r"(?:\b(?:no(?! (?:doubt|question))|not|cannot)|n't) (?!(?:change|deny|doubt|mean)\b)\w+ that [^.,;!?]*"
        r"|\b(?:nobody|no one) [^.,;!?]*",
    ),
    Beside(
        "judged",
        "i do not think it is «paris»",
        rf"(?:\bnot|n't) (?:\w+ )?(?:(?:{any_of('judging')})(?:l?ed|d)?\b(?:(?!\b(?:but|only|just)\b)[^.,;!?])*"
        rf"|(?:{any_of('having')})\b(?:(?!\b(?:but|only|just|and|so|is|are)\b)[^.,;!?])*"
        r"|(?!(?:only|just)\b)\w+ (?:(?!(?:but|so|and)\b)\w+ ){1,3}as (?:an? )?)",
    ),
    Beside("doubted", "i doubt that it is «paris»", r"(?<!no )(?<!a )(?<!n't )(?<!not )\bdoubt (?:that|whether|if) [^.,;!?]*"),
    Beside("open", "i will check whether the capital then was «paris»", _OPEN),
    Beside(
        "mistaken",
        "it is wrong to say «paris»",
        r"\b(?:(?:wrong|incorrect|mistake) to \w+|(?:false|untrue|myth) that) [^.,;!?]*"
        r"|\b(?:wrong|incorrect) (?:answer|option|choice|label) (?:is|was|would be) ",
    ),
    Beside(
        "rejected",
        "«paris» is wrong",
        "",
        r"[^\w#]{0,3}\s*(?:is|are|was|(?:would|can) be|seems|ist|est|es)\s+(?:(?:also|clearly|simply|just|an?|the)\s+)?"
        r"(?:not\b(?! (?:only|just))|wrong|incorrect|false|impossible|a distractor|possible|plausible|falsch|faux"
        r"|considered(?! (?:(?!(?:but|and|or|though|too|here|first|for|in|by)\b)\w|by \w+(?: \w+)? (?:to|as|an?|the)\b))"
        r"|falso|(?:exclud|eliminat|reject|deni|cancell)ed|ruled out)"
        r"|\s[^.,;!?\n]{0,60}, (?:and|but) (?:it|that)(?:'s| is) (?:wrong|incorrect|false|not)\b",
    ),
)
ALTERNATIVES: Final = Surroundings(
    Beside("explained", "«ghent» (or gent)", "", rf"\W?\s\((?:{OR})\s(?!(?:maybe|perhaps|possibly|probably)\b)[^()]*(?:\)|$)"),
    Beside("renamed", "the «jawbone», or the mandible", "", rf",\s(?:{OR})\s(?:(?:the|an?)\s|[^,.;:]{{1,40}},)"),
    Beside("another", "paris or «rome»", rf"\b(?:{OR}|either)\W{{0,3}}\s*", rf"\W{{0,2}}\s*(?:{OR}|o)(?!\w)\s*\S"),
    Beside("slash", "paris/«rome»", r"(?<![.{'])/\W{0,3}\s*", r"\s+/|/(?=\S)"),
    look=20,
)
RELATED: Final = Surroundings(
    Beside("related", "near «paris»", rf"\b(?:{any_of('related')}|{_OUTDONE}(?:s|d|ed)) (?:the )?"),
    Beside("open", "whether it is «paris»", _OPEN),
    look=2_000,
)
"""What states something by its relation to a text, or none yet: ``near Paris``, ``London replaced Paris``."""
TURNED: Final = Surroundings(
    Beside("outlived", "«paris», now rome", "", rf"[,;] (?:but )?now\b|\.? (?:is|was|were|been) (?:{_OUTDONE}d|beaten) by\b"),
    Beside(
        "failed",
        "«paris» did not",
        "",
        r"(?: (?!and|but|or)\w+)? (?:not(?! only| just)|never|nothing)\b| \w+n't\b| \w{3,}s that (?!(?:s?he|it|they)\b)",
    ),
    Beside("conceded", "«paris» is large but rome is old", "", r"[^\n]* but "),
    Beside(
        "preceded",
        "the previous host, «ann»",
        r"\b(?:previous|predecessor|t(?:ook|aking) over from|previously(?= \Z)|with [^.;:!?\n]{1,40} over)\b[^.;:!?\n]{0,40}"
        r"|(?:\A|[.!?:] )while [^.,;!?]{0,40}",
    ),
    Beside("owned", "rome, the capital of «italy»", r", (?:an?|the) (?:\w+ ){1,3}of (?:the )?"),
)
"""What makes a sentence with a text one about something else."""
_THAN_ABROAD: Final = (
    r"(?:\w+er|mehr \w+) als|\w+er dan|\w+ (?:niż|чем)"
    r"|(?:(?:plus|moins|más|menos|mais) (?:d')?\w+|ma[iy]or|me[nl]h?or|mejor) (?:do )?que"
)
_ASIDE: Final = re.compile(
    rf"\b(?:although|though|however|(?<!rather )(?<!none other )than|{_THAN_ABROAD}|whereas|formerly|used to)\b"
)
ABOUT: Final = re.compile(
    r"\b(?:(?:asked|question) about|wrong answer|(?:some|others|many|people)(?: \w+)? (?:say|think|believe|confuse)"
    r"|(?<!which)(?<!that)(?<!it)(?<!this) is the (?:correct |right )?answer)\b"
)
ASKS: Final = r"(?:is|are|was|were|d(?:o|oes|id)|(?:c|sh|w)ould|shall|can)\b"
ABOUT_IT: Final = r"\b(?:(?:asks?|asked|question) (?:is )?about|(?:search|look)(?:ing)? (?:up|for))\b"
# A text that says that there is nothing, or that it is not known.
_ABSENT: Final = re.compile(
    r"(?:there (?:is|are) )?(?:none|nothing|null|nil|n/a|no answer)"
    r"|(?P<unknown>(?:(?:it|that|this|the \w+) is )?(?:unknown|unanswerable"
    r"|not (?:known|given|stated|mentioned|available|found|specified|provided))"
    r"|(?:not |no (?:information|answer) )?(?:(?:given|stated|mentioned|found) )?in the (?:document|text|context|passage)"
    r"|(?:it |this |the question )?(?:cannot|can't|can not) be (?:determined|answered|known)[^.;]*"
    r"|the (?:document|text|context|passage) does(?: not|n't) (?:state|mention|say|give|specify|provide)[^.;,]*)"
)
NEGATION: Final = re.compile(
    rf"\b(?:{_NOT}|no|none|nobody|nothing|un(?:known|clear|stated)|empty|without|isn|aren)\b|n't\b|cannot"
)
_ENDLESS: Final = r"[+]?∞|infinity|infinitely many(?: solutions)?|infinite"
# What a problem may come to other than a value: nothing, no meaning, no end.
_OUTCOMES: Final = tuple(
    (re.compile(wanted), re.compile(rf"(?:^|.* )(?:{end or wanted})", re.DOTALL))
    for wanted, end in (
        (r"(?:there (?:is|are) )?no (?:real |such )?(?:solutions?|roots?|values?)(?: exists?)?|∅|(?:the )?empty set", ""),
        (r"(?:it |the limit )?(?:does(?: not|n't) exist|dne|is undefined|undefined|diverges?|divergent)", ""),
        (_ENDLESS, f"{_ENDLESS}|diverges"),
    )
)
# What is denied, by its first word: "did not win", "the lack of which vitamin".
_DENIED: Final = re.compile(
    rf"(?:\b(?:{_NOT}|without|except|lack(?:s|ed|ing)?)\b|n't)\s*(?:(?:the|an?|any|of|been|be|have|to|which|what)\b\s*)*(?P<rest>(\w*))"
)
_COMPARED: Final = re.compile(
    rf"\b((?:(?:more|less|fewer) )?\w+ than|{_THAN_ABROAD})\b(?:(?![,.;] | and | but | (?:is|are|was|were|did|does) )[^\n])*"
)
_THAN: Final = re.compile(r" (?:than|als|dan|que|niż|чем) ")


def says_absent(wanted: str, answer: str) -> bool | None:
    """Return whether an answer says, beside a reference that does, that there is nothing; None where it may.

    Both are in plain form. Of answers to other references it returns False.
    """
    absent, answered = _ABSENT.fullmatch(wanted), _ABSENT.fullmatch(answer)
    if absent is None:
        return False
    if answered is not None and (wanted == "n/a" or bool(answered["unknown"]) is bool(absent["unknown"])):
        return True
    return None if answered is not None or NEGATION.search(answer) else False


def is_same_outcome(wanted: str, answer: str) -> bool:
    """Return whether a reference and the end of an answer, in plain form, say alike that there is no value."""
    return any(of.fullmatch(wanted) and ends.fullmatch(answer) for of, ends in _OUTCOMES)


def denies(text: str) -> bool:
    """Return whether an answer denies something, or has alternatives."""
    return UNCLEAR.search(text) is not None


def stems(text: str) -> set[str]:
    """Return the beginnings of the words of a text, which their forms share: ``study``, ``studied``."""
    return {each[:STEM] for each in re.findall(r"\b(?!wh|the\b)[^\W\d_]{3,}", text.casefold())}


def as_asked(statement: str, prompt: str) -> str:
    """Return a sentence in plain form without what the question denies or compares as well.

    ``Rome is not in France``, for the city that is not; ``Norway was faster than Chile``, for the faster.
    """
    question = last_question(prompt).casefold()
    denied = {each[2][:STEM] for each in _DENIED.finditer(question)} - {""}
    for match in reversed([*_DENIED.finditer(statement)] if denied else []):
        if match[2][:STEM] in denied:
            statement = f"{statement[: match.start()]}{match['rest']}{statement[match.end() :]}"
    if not _THAN.search(statement):
        return statement
    words = stems(question)

    def uncompared(match: re.Match[str]) -> str:
        bare = match[1].rpartition(" ")[0]
        return bare if stems(bare) <= words and not NEGATION.search(statement[: match.start()]) else match[0]

    return _COMPARED.sub(uncompared, statement)


def is_denied(text: str, start: int, end: int) -> bool:
    """Return whether a sentence denies what is there, or asks for it: ``not Paris``, ``Paris is wrong``, ``Is it Paris?``."""
    question = re.compile(r"[^.!?\n]{0,60}\?").match(text, end)
    opens = rf"(?:^|[.!?:]\s+){ASKS}[^.!?]*$"
    answered = question and re.match(r"\W*\w", text[question.end() :])  # by what follows it
    return bool(answered or (question and re.search(opens, text[:start][-60:])) or DENIALS.of(text, start, end))


_CLAUSE: Final = 300


def is_aside(text: str, start: int, end: int) -> bool:
    """Return whether the clause of a text compares or concedes, or a ``but`` takes it back: ``larger than Paris``."""
    # Of a runaway text each place would be read to both of its ends.
    before, behind = re.split("[,;.] ", text[max(0, start - _CLAUSE) : start])[-1], text[end : end + _CLAUSE]
    around = (before, re.split("[,;](?: |$)", behind)[0])
    moved = behind.startswith((" to ", " into ")) and re.search(r"\bfrom (?:the )?$", before)
    related = RELATED.of(before, len(before), len(before))
    return bool(moved or related or TURNED.of(text, start, end) or any(map(_ASIDE.search, around)))
