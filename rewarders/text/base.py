"""A reference that outputs can be compared with, whatever its kind, and the parts of an output that may state its answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from tfgrpo.rewarders.text import answers
from tfgrpo.rewarders.text.answers import MOST_BARE, Stated, any_of, conclusion_of, stated_answer, without_reasoning
from tfgrpo.rewarders.text.numbers import REFUSAL
from tfgrpo.rewarders.text.rules import ABOUT_IT, ASKS, NEGATION, Compared, as_asked, denies, is_denied, shown
from tfgrpo.rewarders.text.spelling import MARKUP, TRIMMED, plain
from tfgrpo.stores.errors import RewardError

DETERMINER: Final = re.compile(
    r"(?:(?:so|thus|therefore|hence)[ ,]+)?(?:(?:it|this|that|they|he|she)(?:'s| is| was| are| were| would be)\s+)?"
    rf"(?:(?:{any_of('article')})(?!\w)|l'(?=\w))?\s*"
)
ELABORATION: Final = re.compile(r"\s*(?:[(\[;]|,\s+(?=[a-z])|\s-+\s|\b(?:because|since|which|who)\b)")
BECAUSE: Final = re.compile(r",? because\b")
ADDRESS: Final = re.compile(r"@|[/\\]|[A-Za-z]\w+\.[A-Za-z]{2,}")
VERB: Final = re.compile(r"\b(?:is|are|was|were|be|has|have|says?|means?|equals|ist|sind|est|es|é|è)\b|'s\b")
LONGEST_PART: Final = 2_000
"""Characters of an answer, or of a line, that are searched for a text, a label or an option."""
OPTION_MARK: Final = re.compile(r"[(\[]?([A-Ja-j])[).:\]]\s+(?=\S)")
_TICK, _CROSS = (
    re.compile(rf"\s*(?:[{signs}]\ufe0f?|\[{box}\])\s*", re.IGNORECASE)
    for signs, box in (("\u2705\u2713\u2714\u2611", "x"), ("\u274c\u2717\u2718\u2716", " "))
)
_LETTERED: Final = re.compile(rf"[-*> ]*{OPTION_MARK.pattern}")
_LISTED: Final = re.compile(r"(?i)\s*(?:[-*\u2022]|(?:step )?\d+[.):])\s")
_OPENING: Final = re.compile(rf"(?i)(?:{any_of('openings')})\b")
# The beginning of a clause with an answer: a clause about others does not withdraw it.
_OPENS: Final = re.compile(rf"(?:^|[.!?:] |\b(?:so|but|thus|hence|therefore) ){DETERMINER.pattern}")

# What a reply says before its answer of another that is none: ``Not Rome but``, ``While Rome might seem right,``.
_DISMISSES: Final = re.compile(rf"(?im)((?:^|(?<=[.!?:>] )|(?<=\")(?=\w))[ \t*_>]{{0,9}})(?:{any_of('dismissals')})(?=\S)")
_SAYS_NOT: Final = re.compile(r"(?i)(?:not?|non|yes|true|false)\b")


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
        output = output if any(map(_SAYS_NOT.match, self._labels)) else _DISMISSES.sub(r"\1", output)
        stated = stated_answer(output, self._labels)
        if stated is None:
            return nothing(output)
        question = re.fullmatch(rf"(?i)\W*{ASKS}(?:[^.!?:;\n]|[.:](?=\w))*\?\W*", stated.whole)
        if question and not self.text.rstrip().endswith("?"):
            return Compared(False, shown(stated.whole))
        if not re.search(r"\bnot\b", self.text):
            stated = replace(stated, text=answers.REJECTED.sub("", stated.text))
        *before, after = answers.TAKES_BACK.split(stated.whole)
        again = stated_answer(after, self._labels) if before else None
        later = Compared(False, "", states=again is not None)
        with suppress(RewardError):
            later = self._compare(again) if again else later
        if again and later.right and (again.is_marked or self.is_alone(again.text)):
            return later
        compared = self._compare(stated)
        other = again and (later.states or denies(again.text) or NEGATION.fullmatch(plain(again.text)))
        if again and other and later.right != compared.right:
            raise RewardError(f"{shown(after.strip())} may take back {compared.answered}")
        return Compared(False, compared.answered) if compared.right and self.is_denied_in(stated) else compared

    def is_denied_in(self, stated: Stated) -> bool:
        """Return whether an output has the reference only where it denies it. Raise ``RewardError`` where it has no answer."""
        statement, wanted = plain(stated.text if stated.is_marked else stated.whole[-LONGEST_PART:]), plain(self.text)
        statement = as_asked(statement, self.prompt)
        statement += "?" if stated.text.rstrip(TRIMMED.replace("?", "!")).endswith("?") else ""
        matches = [*re.finditer(whole_words(wanted) + r"\??" * self.text.endswith("?"), statement)]
        denied = bool(matches) and all(is_denied(statement, *match.span()) for match in matches)
        if denied or stated.is_marked:
            return denied
        about = re.search(rf"{ABOUT_IT}[^.!?:,;]*?{re.escape(wanted)}", statement)
        clause = next((each for each in (conclusion_of(statement), BECAUSE.split(statement)[0]) if wanted in each), statement)
        refused = REFUSAL.search(clause.replace(wanted, ""))
        if about or (refused and not re.search(_OPENS.pattern + whole_words(wanted), statement)):
            raise RewardError(f"{shown(stated.whole[-LONGEST_PART:])} may state no answer")
        return False

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


def whole_words(text: str) -> str:
    """Return a pattern for a text that is no part of a longer word or number."""
    if ADDRESS.search(text):
        return rf"(?:(?<![\w.@/+-])|(?<= \./)){re.escape(text)}(?![\w@?#&=+-]|/\S|[.:\\]\w)"
    apart = r"(?<!\w')" if re.fullmatch("[dmst]|re|ll|ve", text) else ""  # don't, I'm
    return rf"(?<![\w~!¬-])(?<!\d[.,:/]){apart}{re.escape(text)}(?![\w+#·=^-]|~\w|\.\.\w|[.,:/]\d|'s \w|(?<=s)' \w)"


def states_text(wanted: str, clause: str) -> bool:
    """Return whether a clause ends in a text behind a verb, or is it."""
    return bool(re.search(rf"(?:{VERB.pattern}|^) ?{DETERMINER.pattern}{re.escape(wanted)}\W*$", clause))


def parts_of(stated: Stated, states: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return the parts of an output that may state its answer, the likeliest first, without what follows very long ones.

    Without a mark that is the last line, then the first; the first alone where only it ``states`` an answer as a whole, as
    in an answer with a remark below. Of a list of short entries, or of options, it is the list. Raise ``RewardError`` where
    the first line and the last state answers that differ.
    """
    if stated.is_marked:
        return [stated.text[:LONGEST_PART]]
    lines = [MARKUP.sub("", each).strip() for each in stated.whole[-LONGEST_PART:].split("\n") if each.strip()]
    ticked = [_TICK.sub("", each) for each in lines if _TICK.search(each)]
    if len(ticked) == 1 and (any(map(_CROSS.search, lines)) or sum(map(bool, map(_LETTERED.match, lines))) > 2):
        return ticked  # the entry with a tick, of those with a cross
    for mark, is_entry in ((_LISTED, is_bare), (_LETTERED, bool)):
        listed = [*takewhile(mark.match, reversed(lines))][::-1]
        alone = len(listed) == len(lines) or not (is_bare(lines[0]) or states(lines[0]))
        if len(listed) > 1 and alone and all(is_entry(mark.sub("", each)) for each in listed):
            return [", ".join(mark.sub("", each) if mark is _LISTED else each for each in listed)]
    last, first = (part[:LONGEST_PART] for part in (stated.text, stated.whole.partition("\n")[0].strip()))
    if first == last or _LISTED.match(first):
        return [last]
    one, other = states(first), None if _LISTED.match(last) else states(last)
    if one is not None and other is not None and one != other:
        raise RewardError(f"the first line, {shown(first)}, and the last, {shown(last)}, state different answers")
    return [first] if one is not None and other is None else [last, first]


def is_bare(line: str) -> bool:
    """Return whether a line may be an answer and nothing else: a few words that open no sentence."""
    statement = line.strip(' *_`"')
    words = len(statement.split())
    return 0 < words <= MOST_BARE and not re.search(r"[:,?!\u2026][^\w)\]]*\Z", statement) and not _OPENING.match(statement)
