"""A reference that outputs can be compared with, whatever its kind."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tfgrpo.rewarders.text.answers import REJECTED, TAKES_BACK, Stated, any_of, conclusion_of, stated_answer, without_reasoning
from tfgrpo.rewarders.text.numbers import REFUSAL
from tfgrpo.rewarders.text.parts import LONGEST_PART
from tfgrpo.rewarders.text.rules import ABOUT_IT, Compared, as_asked, denies, is_denied, shown
from tfgrpo.rewarders.text.spelling import TRIMMED, plain
from tfgrpo.stores.errors import RewardError

DETERMINER: Final = re.compile(
    r"(?:(?:so|thus|therefore|hence)[ ,]+)?(?:(?:it|this|that|they|he|she)(?:'s| is| was| are| were| would be)\s+)?"
    rf"(?:(?:{any_of('article')})(?!\w))?\s*"
)
ELABORATION: Final = re.compile(r"\s*(?:[(\[;]|,\s+(?=[a-z])|\s-+\s|\b(?:because|since|which|who)\b)")
BECAUSE: Final = re.compile(r",? because\b")
ADDRESS: Final = re.compile(r"@|[/\\]|[A-Za-z]\w+\.[A-Za-z]{2,}")


@dataclass(frozen=True, slots=True)
class Reference(ABC):
    """A reference that outputs can be compared with."""

    text: str
    prompt: str = field(default="", kw_only=True)
    """The question; empty where it is not known."""
    accepted: tuple[str, ...] = field(default=(), kw_only=True)
    """All accepted answers, of which the text is one."""

    @property
    def shown(self) -> str:
        """The reference as it is read, in one line."""
        return shown(self.text)

    def compare(self, output: str) -> Compared:
        """Compare an output. Raises ``RewardError`` for one that has two readings."""
        stated = stated_answer(output, self._labels)
        if stated is None:
            return nothing(output)
        if not re.search(r"\bnot\b", self.text):
            stated = replace(stated, text=REJECTED.sub("", stated.text))
        *before, after = TAKES_BACK.split(stated.whole)
        again = stated_answer(after, self._labels) if before else None
        later = Compared(False, "", states=again is not None)
        with suppress(RewardError):
            later = self._compare(again) if again else later
        if again and later.right and (again.is_marked or self.is_alone(again.text)):
            return later
        compared = self._compare(stated)
        unclear = later.right != compared.right and again and (later.states or denies(again.text))
        if unclear:
            raise RewardError(f"{shown(after.strip())} may take back {compared.answered}")
        return Compared(False, compared.answered) if compared.right and self.is_denied_in(stated) else compared

    def is_denied_in(self, stated: Stated) -> bool:
        """Return whether an output has the reference only where it denies it. Raise ``RewardError`` where it has no answer."""
        statement, wanted = plain(stated.text if stated.is_marked else stated.whole[-LONGEST_PART:]), plain(self.text)
        statement = as_asked(statement, self.prompt)
        statement += "?" if stated.text.rstrip(TRIMMED.replace("?", "!")).endswith("?") else ""
        about = re.search(rf"{ABOUT_IT}[^.!?:,;]*?{re.escape(wanted)}", statement)
        opens = _OPENS.pattern + whole_words(wanted)
        told = next((each for each in (conclusion_of(statement), BECAUSE.split(statement)[0]) if wanted in each), statement)
        refused = REFUSAL.search(told.replace(wanted, "")) and not re.search(opens, statement)
        places = [*re.finditer(whole_words(wanted), statement)]
        denied = bool(places) and all(is_denied(statement, *place.span()) for place in places)
        if not denied and not stated.is_marked and (about or refused):
            raise RewardError(f"{shown(stated.whole[-LONGEST_PART:])} may state no answer")
        return denied

    def is_alone(self, text: str, /) -> bool:
        """Return whether a text with the reference has nothing else next to it: ``it is Paris``, not ``Paris lost``."""
        head = DETERMINER.sub("", plain(ELABORATION.split(text)[0]), count=1)
        return len(head.split()) <= len(self.text.split()) + 1

    @property
    def _labels(self) -> tuple[str, ...]:
        """What may be answered, as far as that is known."""
        return (self.text,)

    @abstractmethod
    def _compare(self, stated: Stated) -> Compared: ...


def nothing(output: str) -> Compared:
    """Return the comparison of an output that states no answer."""
    unfinished = without_reasoning(output) is None
    return Compared(False, "nothing: its reasoning has no end" if unfinished else "nothing")


_OPENS: Final = re.compile(rf"(?:^|[.!?:] |\b(?:so|but|thus|hence|therefore) ){DETERMINER.pattern}")
"""The beginning of a clause with an answer: a clause about others does not withdraw it."""


def whole_words(text: str) -> str:
    """Return a pattern for a text that is no part of a longer word or number."""
    if ADDRESS.search(text):
        return rf"(?:(?<![\w.@/+-])|(?<= \./)){re.escape(text)}(?![\w@/?#&=+-]|[.:\\]\w)"
    return rf"(?<![\w~!¬-])(?<!\d[.,:/]){re.escape(text)}(?![\w+#·=^-]|[.,:/]\d|'s \w|(?<=s)' \w)"


VERB: Final = re.compile(r"\b(?:is|are|was|were|be|has|have|says?|means?|equals|ist|sind|est|es|é|è)\b|'s\b")
_OF: Final = re.compile(r"(?<!out )(?<!due )\b(?:of|to|de|von) (?:the |an? )?$")
_KIND_OF: Final = re.compile(rf"\b(?:{any_of('kinds')}) of $")
"""A word for the kind of what follows: the city of Chicago is Chicago."""
_MOST_OF: Final = 7
"""Words of a phrase without a verb: ``the president of the United States``."""
_SETS_ASIDE: Final = re.compile(
    r"\b(?:from|unlike|than|near|like|replac\w+|except|without|no|not|never|nor|n't)\s+(?:an? |the )?\W{0,2}$", re.IGNORECASE
)
_SUBJECT: Final = re.compile(r"\W*(?:was|is|were|are|had)\b")


def is_set_aside(span: re.Match[str]) -> bool:
    """Return whether what is in bold is not what a sentence states: ``unlike **Paris**``, ``the letter to **Ann** was``."""
    before = span.string[: span.start()]
    return bool(_SETS_ASIDE.search(before) or (before.strip() and _SUBJECT.match(span.string, span.end())))


def is_of(statement: str, place: re.Match[str]) -> bool:
    """Return whether a text says what something else is of: ``the capital of France``, with or without what it is."""
    if _KIND_OF.search(statement[: place.start()]):
        return False
    subject = re.match(r"\s+(?:is|are|was|were)\b", statement[place.end() :])
    rest = statement[: place.start()] + statement[place.end() :]
    phrase = not VERB.search(statement) and len(rest.split()) <= _MOST_OF
    return bool(_OF.search(statement[: place.start()]) and (subject or phrase))


def states_text(wanted: str, clause: str) -> bool:
    """Return whether a clause ends in a text behind a verb, or is it."""
    return bool(re.search(rf"(?:{VERB.pattern}|^) ?{DETERMINER.pattern}{re.escape(wanted)}\W*$", clause))


def is_sentence(text: str) -> bool:
    """Return whether a text has a sentence's length and end."""
    ends = text.rstrip()[-1:] in [*".!?"] and not re.search(r"\b[A-Z]\w{0,2}\.$", text)  # King Jr.
    return ends and text.count(" ") > 2


_ADDRESSES: Final = (re.compile(r"[\w.+-]+@[\w-]+(?:\.\w[\w-]*)+"), re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]\w+"))


def has_others_like(wanted: str, statement: str) -> bool:
    """Return whether another code has the same shape: ``831 BGB`` for ``823 BGB``, ``O(n)`` for ``O(1)``."""
    is_call = re.fullmatch(r"\w\([^()]*", wanted)
    numbered = re.sub(r"(?<= )[a-z]$", "[a-z]", re.sub(r"\d+", r"\\d+", re.escape(wanted).replace(r"\ ", " ")))
    address = next((each for each in _ADDRESSES if each.fullmatch(wanted.rpartition(" ")[2])), None)
    shape = rf"{wanted[0]}\([^()]*" if is_call else address.pattern if address else numbered
    concluded = conclusion_of(statement)
    said = concluded if wanted in concluded else statement
    head, *more = ELABORATION.split(said)[0].split(". ")
    settled = address and (states_text(wanted, head) if more else head.endswith(wanted))
    found = re.finditer(rf"(?<![\w.-]){shape}(?![\w-])", said) if not wanted.isdecimal() and not settled else ()
    found = (each for each in found if not wanted.endswith(each[0]) and not is_denied(said, *each.span()))
    return any(address is None or each.start() > said.rfind(wanted) for each in found)
