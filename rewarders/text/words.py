"""Compare an output with one reference of words: a text, or a label.

Each kind reads like a careful person. What has two readings is no score: ``compare`` raises ``RewardError``.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from tfgrpo.rewarders.text.answers import (
    REJECTED,
    TAKES_BACK,
    UNSPACED,
    VOCABULARY,
    Stated,
    any_of,
    conclusion_of,
    several_in,
    stated_answer,
    without_reasoning,
    written_value,
)
from tfgrpo.rewarders.text.lexer import UNITS
from tfgrpo.rewarders.text.numbers import REFUSAL, only_number, ordinal
from tfgrpo.rewarders.text.rules import SHOWN, Compared, shown
from tfgrpo.stores.errors import RewardError

_TRIMMED: Final = " \t\n.,;:?\"'`*_()[]{}$\u2018\u2019\u201c\u201d\u00ab\u00bb\u201e"
"""Around an answer. So is ``#`` before it and ``!`` behind it, but not the other way round: ``C#`` and ``!p`` are names."""
_SIGNED: Final = re.compile(r"(?:\d+|[nkm])!|[a-z]'+")
"""A factorial, or a prime: their signs are no punctuation."""
LONGEST_PART: Final = 2_000
"""Characters of an answer, or of a line, that are searched for a text, a label or an option."""
_LOOK_BACK: Final = 60
"""Characters before an occurrence in which it may be denied."""
_SPACED_COMMAS: Final = re.compile(r" ?([,;]) ?")
_LATEX_TEXT: Final = re.compile(r"\\(?:text|math(?:rm|bf|cal)|textbf|operatorname|mbox)[ ]*\{([^{}]*)\}")
LATEX_SPACE: Final = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|\\\(|\\\)|\\\[|\\\]|\$")
MARKUP: Final = re.compile(
    r"\*\*|__(?!\w+__\.[a-z]|\.[a-z])|`|<[^<>@:]{1,20}>(?=\*{0,2}\w)|(?:(?<=[\w.])|(?<=\w\*\*))<[^<>@:]{1,20}>|\ufe0f"
)
"""A tag is markup where it touches a word: ``<b>Paris</b>``, but not in ``the tag <b>``."""
_SUBSCRIPT: Final = re.compile(r"(?<![a-z]{2})(?<=[A-Za-z)}\]])_\{?(\d+)\}?")
"""Subscript of a chemical formula in LaTeX: ``H_2O``."""
QUOTES: Final = str.maketrans(
    "\u2018\u2019\u2032\u201c\u201d\u2033\u00ab\u00bb\u201e\u2010\u2011\u2012\u2013\u2014\u2212\u266f\u266d",
    '\'\'\'""""""------#b',
) | {0x2192: "->"}
_NOT: Final = any_of("not")
_OR: Final = any_of("or")
_LEFT_OPEN: Final = r"\b(?:whether|(?:see|check) if) (?:(?! and | but )[^.,:;!?])*$"
"""Before what an output is going to find out: ``I will check whether it is Paris``."""
_NEGATION: Final = re.compile(
    rf"(?:\b(?:{_NOT}|{any_of('instead')})|n't)"
    rf"(?:\s+(?!(?:{any_of('but')})(?!\w))\S*[^\s.,!?;:]){{0,2}}\s*$"
    r"|,\s+no\s*$|(?:不[是为為选選]?|非|[没沒]有?|无|無)\s*$"
    r"|(?:\b(?:no(?! (?:doubt|question))|not|cannot)|n't) \w+ that [^.,;!?]*$|\b(?:nobody|no one) [^.,;!?]*$"
    r"|(?<!no )(?<!a )\bdoubt (?:that|whether|if) [^.,;!?]*$"
    rf"|{_LEFT_OPEN}"
    r"|\b(?:(?:wrong|incorrect|mistake) to \w+|(?:false|untrue|myth) that) [^.,;!?]*$"
)
_DETERMINER: Final = re.compile(
    r"(?:(?:so|thus|therefore|hence)[ ,]+)?(?:(?:it|this|that|they|he|she)(?:'s| is| was| are| were| would be)\s+)?"
    rf"(?:(?:{any_of('article')})(?!\w))?\s*"
)
OPTION_MARK: Final = re.compile(r"[(\[]?([A-Ja-j])[).:\]]\s+(?=\S)")
_ELABORATION: Final = re.compile(r"\s*(?:[(\[;]|,\s+(?=[a-z])|\s-+\s|\b(?:because|since|which|who)\b)")


_LEAD: Final = re.compile(r"^(?:=>|[=>|]) (?=\S)")


@dataclass(frozen=True, slots=True)
class Reference(ABC):
    """A reference that outputs can be compared with."""

    text: str

    @property
    def shown(self) -> str:
        """The reference as it is read, in one line."""
        return shown(self.text)

    def compare(self, output: str) -> Compared:
        """Compare an output. Raises ``RewardError`` for one that has two readings."""
        stated = stated_answer(output, denied=self._denies)
        if stated is None:
            return nothing(output)
        if not re.search(r"\bnot\b", self.text):
            stated = replace(stated, text=REJECTED.sub("", stated.text))
        *before, after = TAKES_BACK.split(stated.whole)
        again = stated_answer(after, denied=self._denies) if before else None
        later = Compared(False, "", states=again is not None)
        with suppress(RewardError):
            later = self._compare(again) if again else later
        if again and later.right and (again.is_marked or self._is_alone(again.text)):
            return later
        compared = self._compare(stated)
        unclear = later.right != compared.right and again and (later.states or UNCLEAR.search(again.text))
        if unclear:
            raise RewardError(f"{shown(after.strip())} may take back {compared.answered}")
        return Compared(False, compared.answered) if compared.right and self._is_denied_in(stated) else compared

    def _is_denied_in(self, stated: Stated) -> bool:
        """Return whether an output has the reference only where it denies it. Raise ``RewardError`` where it has no answer."""
        statement, wanted = plain(stated.text if stated.is_marked else stated.whole[-LONGEST_PART:]), plain(self.text)
        statement += "?" if stated.text.rstrip(_TRIMMED.replace("?", "!")).endswith("?") else ""
        about = re.search(rf"{_ABOUT_IT}[^.!?:,;]*?{re.escape(wanted)}", statement)
        opens = _OPENS.pattern + whole_words(wanted)
        refused = REFUSAL.search(statement.replace(wanted, "")) and not re.search(opens, statement)
        places = [*re.finditer(whole_words(wanted), statement)]
        denied = bool(places) and all(is_denied(statement, *place.span()) for place in places)
        if not denied and not stated.is_marked and (about or refused):
            raise RewardError(f"{shown(stated.whole[-LONGEST_PART:])} may state no answer")
        return denied

    def _is_alone(self, text: str, /) -> bool:
        """Return whether a text with the reference has nothing else next to it: ``it is Paris``, not ``Paris lost``."""
        head = _DETERMINER.sub("", plain(_ELABORATION.split(text)[0]), count=1)
        return len(head.split()) <= len(self.text.split()) + 1

    @property
    def _denies(self) -> bool:
        """Whether a denial may be the answer."""
        return False

    @abstractmethod
    def _compare(self, stated: Stated) -> Compared: ...


def plain(text: str) -> str:
    """Return the comparable form of a text: without markup, letter case, Unicode variants and punctuation around it."""
    text = _SUBSCRIPT.sub(r"\1", text) if "_" in text else text
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.translate(QUOTES)).casefold())
    if "\\" in text or "$" in text:
        text = LATEX_SPACE.sub(" ", _LATEX_TEXT.sub(r"\1", text))
        for pattern, symbol in VOCABULARY["symbols"].items():
            text = re.sub(rf"(?:{pattern})(?![a-z])", symbol, text)
    # Spaces are folded first: the pattern of commas would search a long run of them anew at each place.
    collapsed = _SPACED_COMMAS.sub(r"\1 ", " ".join(MARKUP.sub("", text).split()))
    if _SIGNED.fullmatch(collapsed):
        return collapsed
    bare = _LEAD.sub("", collapsed).removesuffix(" |")
    bare = bare.lstrip(_TRIMMED + "#").rstrip(_TRIMMED + "!")
    return (bare[1:-1] if bare[:1] == "<" and bare.find(">") == len(bare) - 1 else bare) or collapsed


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are the same but for letter case, markup, and white space: ``7!`` is not ``7``."""
    folded = (" ".join(MARKUP.sub("", each).translate(QUOTES).casefold().split()).rstrip(".") for each in (one, other))
    return len({*folded}) == 1


def nothing(output: str) -> Compared:
    """Return the comparison of an output that states no answer."""
    unfinished = without_reasoning(output) is None
    return Compared(False, "nothing: its reasoning has no end" if unfinished else "nothing")


_ABOUT_IT: Final = r"\b(?:(?:asks?|asked|question) (?:is )?about|(?:search|look)(?:ing)? (?:up|for))\b"
_OPENS: Final = re.compile(rf"(?:^|[.!?:] |\b(?:so|but|thus|hence|therefore) ){_DETERMINER.pattern}")
"""The beginning of a clause with an answer: what is said of others does not take it back."""
UNCLEAR: Final = re.compile(
    r"\b(?:not|wrong|wrongly|incorrect|rather than|instead of|or|but)\b|n't\b|,[^()\[\]]{0,80}[)\]]/", re.IGNORECASE
)
"""Words with which a list, a formula or letters are denied, or one of several answers."""


def denies(text: str) -> bool:
    """Return whether an answer denies something, or has alternatives."""
    return UNCLEAR.search(text) is not None


def parts_of(stated: Stated, states: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return the parts of an output that may state its answer, the likeliest first, without what follows very long ones.

    Without a mark that is the last line, then the first; the first alone where only it ``states`` an answer as a whole, as
    in an answer with a remark below. Of a list of short entries, or of options, it is the list. Raise ``RewardError`` where
    the first line and the last state answers that differ.
    """
    if stated.is_marked:
        return [stated.text[:LONGEST_PART]]
    lines = [MARKUP.sub("", each).strip() for each in stated.whole[-LONGEST_PART:].split("\n") if each.strip()]
    for mark, is_entry in ((_LISTED, _is_bare), (_LETTERED, bool)):
        listed = [*takewhile(mark.match, reversed(lines))][::-1]
        alone = len(listed) == len(lines) or not _is_bare(lines[0])
        if len(listed) > 1 and alone and all(is_entry(mark.sub("", each)) for each in listed):
            return [", ".join(mark.sub("", each) if mark is _LISTED else each for each in listed)]
    last, first = (part[:LONGEST_PART] for part in (stated.text, stated.whole.partition("\n")[0].strip()))
    if first == last or _LISTED.match(first):
        return [last]
    one, other = states(first), None if _LISTED.match(last) else states(last)
    if one is not None and other is not None and one != other:
        raise RewardError(f"the first line, {shown(first)}, and the last, {shown(last)}, state different answers")
    return [first] if one is not None and other is None else [last, first]


_LETTERED: Final = re.compile(rf"[-*> ]*{OPTION_MARK.pattern}")
_LISTED: Final = re.compile(r"\s*(?:[-*\u2022]|(?:step )?\d+[.):])\s", re.IGNORECASE)
_OPENING: Final = re.compile(rf"(?:{any_of('openings')})\b", re.IGNORECASE)
_MOST_BARE: Final = 5
"""Words of a line that is an answer as a whole."""


def _is_bare(line: str) -> bool:
    """Return whether a line may be an answer and nothing else: a few words that open no sentence."""
    statement = line.strip(' *_`"')
    words = len(statement.split())
    return 0 < words <= _MOST_BARE and statement[-1] not in ":,?!\u2026" and not _OPENING.match(statement)


@dataclass(frozen=True, slots=True)
class TextReference(Reference):
    """Text: a name, a code, a phrase. Right when the answer is it, or a sentence that holds it and no alternative.

    It has two readings where it may be a part of a longer name or of a list.
    """

    def _compare(self, stated: Stated) -> Compared:
        right = self.states(stated)
        statement, whole = only_number(stated.text), only_number(self.text)
        if not right and any(TextReference(each).equals(stated.text) for each in several_in(self.text)):
            raise RewardError(f"{shown(stated.text)} is a part of {self.shown}, which may be several accepted answers")
        said, words = plain(stated.text), self.text.split()
        is_name = re.fullmatch(r"(?=.{4})[^\W\d_]{2,}(?: [^\W\d_]+)*", said) and words[0][0].isupper()
        ends = words[-1][0].isupper() and _without_accents(plain(self.text)).endswith(f" {_without_accents(said)}")
        begins = len(words) == 2 and plain(words[0]) == said and len(plain(words[1])) < len("Ltd") + 2
        if not right and is_name and (ends or begins):
            raise RewardError(f"{shown(stated.text)} is a part of the name {self.shown}")
        bare = said[:1].isdigit() and _NAMED_NUMBER.fullmatch(self.text)
        if not right and statement and whole and (whole.abbreviated or bare) and statement.value == whole.value:
            raise RewardError(f"{shown(stated.text)} may be {self.shown}")
        options = re.findall(r"(?<!\S)-{1,2}[A-Za-z][\w-]*", self.text)  # of a command, where letter case counts
        return Compared(right and all(each in stated.whole for each in options), shown(stated.text))

    def states(self, stated: Stated) -> bool:
        """Return whether a part of an output is the text, or a sentence with it. Raises as ``compare`` does."""
        link = r"\2" if _ADDRESS.search(self.text) else r"\1"
        if _ESCAPED.search(self.text):
            text = stated.text if stated.is_marked else stated.whole
            return bool(re.search(rf"(?<![^\s`'\"/]){re.escape(self.text)}(?=[.,;:]?(?:[\s`'\"/]|$))", text))
        fenced = _FENCED.findall(stated.whole)
        only = fenced[0] if len(fenced) == 1 else stated.whole
        entries = written_value(stated.text if stated.is_marked else only)
        while (
            isinstance(entries, dict)
            and len(within := [each for each in entries.values() if isinstance(each, dict)]) == 1
        ):
            entries = within[0]  # an envelope
        if isinstance(entries, dict):
            first, *more = entries.values() or ("",)
            if isinstance(first, str) and not more and (alone := stated_answer(first)) is not None:
                return self.states(alone)
            entered = [*map(str, (first, *more))]
            places = [place for place, each in enumerate(entered) if self.equals(each)]
            return bool(places) and self._is_only_one(entered[places[-1] + 1 :], stated)
        whole = (stated.whole, only, only.replace("\n", "; "), *_LIST_BELOW.findall(stated.whole))
        if _comparable(self.text) in (_comparable(each) for each in whole if len(each) < _LONGER * len(self.text)):
            return True
        last, *first = (_FOOTNOTE.sub("", _LINK.sub(link, part)) for part in parts_of(stated))
        for part in (last, *first):
            self._refuse_list(part)
        held = self.equals(last) or (self._is_in_lines(first[0], last, stated) if first else self.is_in(last))
        rows = re.split(r"\n[ \t]*\|[-:| \t]+\n", stated.whole[-LONGEST_PART:])[-1].split("\n")  # below their head
        fields = [_FIELD.fullmatch(each) for each in rows if each.strip()]
        values = [each[1] for each in fields if each] if not stated.is_marked and all(fields) else []
        held = held or (rows[0].startswith("|") and any(map(self.equals, values)))
        return held and self._is_only_one(values, stated)

    def _is_only_one(self, values: Sequence[str], stated: Stated) -> bool:
        """Return whether no other of several values may be the answer. Raise ``RewardError`` otherwise."""
        others = [each for each in values if 0 < len(each.split()) <= _MOST_BARE and not self.is_in(each)]
        like, *unlike = ((each[0].isupper(), each[0].isdigit(), "." in each) for each in (self.text, *others))
        if like in unlike:
            raise RewardError(f"{shown(stated.whole)} has several values, one of which is {self.shown}")
        return True

    def _is_in_lines(self, first: str, last: str, stated: Stated) -> bool:
        """Return whether the first or the last of several lines states the text. Raises as ``compare`` does."""
        if self.equals(first):
            told = last.endswith(".") and len(last.split()) > _MOST_BARE // 2
            if _is_bare(last) and not told and ":" not in last and not self.is_in(last):
                raise RewardError(f"the first line, {shown(first)}, and the last, {shown(last)}, may be two answers")
            return True
        held = any(map(self.is_in, (last, first)))
        if stated.whole[len(first) :].lstrip(" ").startswith("\n\n") and _is_bare(first):
            if held:
                raise RewardError(f"{shown(first)} comes first, and {self.shown} is mentioned below it")
            return False
        return held

    def equals(self, part: str) -> bool:
        """Return whether a part is the text, but for an article before and an explanation behind it."""
        wanted = _one_spelling(self.text)
        entries = written_value(part)
        part = ", ".join(map(str, entries)) if isinstance(entries, list) else part
        bare = OPTION_MARK.sub("", part, count=1) if OPTION_MARK.match(part) else part
        for form in map(_one_spelling, (bare, _ELABORATION.split(bare)[0])):
            if {wanted, _DETERMINER.sub("", wanted, count=1) or wanted} & {form, _DETERMINER.sub("", form, count=1)}:
                return True
            if ", " in form and form != wanted and sorted(form.split(", ")) == sorted(wanted.split(", ")):
                raise RewardError(f"{shown(part)} has the parts of {self.shown} in another order")
            if self._is_written_otherwise(form, wanted):
                return True
            bare_form, bare_wanted = _without_accents(form), _without_accents(wanted)
            if bare_form == bare_wanted in (form, wanted):
                if len(wanted.split()) == 1 and not part.isupper():
                    raise RewardError(f"{shown(part)} is {self.shown} but for accents, and may be another word")
                return True
        return False

    def _refuse_list(self, part: str) -> None:
        """Raise ``RewardError`` where the text is one of several short ones with nothing else: ``red, blue and green``."""
        parts, wanted = _comparable(part).split(", "), _comparable(self.text)
        if len(parts) > 1 and wanted in parts and all(len(each.split()) <= 3 for each in parts):
            others = [each for each in parts if each != wanted]
            if not any(_VERB.search(each) or _NO_ENTRY.match(each) for each in others):
                raise RewardError(f"{shown(part)} has several, of which {self.shown} is one")

    def _is_written_otherwise(self, form: str, wanted: str) -> bool:
        """Return whether a text is the reference as a telephone number, or a name with a title or the last name first."""
        pair = (form, wanted)
        codes = [*map(_code, pair)]
        if codes[0] == codes[1] != "":
            return True
        national, whole = sorted(codes, key=lambda each: each[:1] == "+")
        if national and whole[:1] == "+" != national[0] and whole.endswith(national.lstrip("0")):
            raise RewardError(f"{shown(form)} may be {self.shown} with or without the code of a country")
        if any(len({*map(alike, pair)}) == 1 for alike in _ALIKE) or _is_short_for(form, wanted):
            return True
        bare, _, unit = wanted.partition(" ")
        if form == bare and unit in UNITS and "-" in bare[1:]:  # a range without its unit
            return True
        untitled = {_TITLE.sub("", each, count=1) for each in pair}
        turned = (re.sub("^([^,]+), ([^,]+)$", r"\2 \1", each) for each in untitled)
        shorter = {_MIDDLE.sub("", each) for each in untitled}
        if len(untitled) > 1 and len(shorter) == 1 and untitled & shorter:
            raise RewardError(f"{shown(form)} may be {self.shown} or another person")
        return len(untitled) == 1 or len({*turned}) == 1

    def is_in(self, part: str) -> bool:
        """Return whether a part is a sentence with the text, neither denied nor next to another. Raises as ``compare`` does."""
        wanted, statement = _comparable(self.text), _comparable(part)
        wanted = _without_accents(wanted) if statement.isascii() and " " in wanted else wanted
        if _SIGNED.fullmatch(wanted):
            statement = " ".join(part.translate(QUOTES).casefold().split())
        if not re.search(whole_words(wanted), statement):
            wanted = _TITLE.sub("", _ARTICLE.sub("", wanted))
            statement = re.sub(_SPACED.sub("[ _-]", re.escape(wanted)), lambda _: wanted, statement)
        statement += "?" if part.rstrip(_TRIMMED.replace("?", "!")).endswith("?") else ""
        places = [*re.finditer(whole_words(wanted) + (_END if _is_sentence(self.text) else ""), statement)]
        places = [each for each in places if not is_denied(statement, each.start(), each.end())]
        if not places and wanted in statement and re.search(f"[{UNSPACED}]", wanted):
            if re.match(
                rf"{re.escape(wanted)}(?:是|は|이|가|은|는|为)(?!\s?(?:错|錯|不|間違|아[니닙닌]))", statement
            ) or re.search(
                rf"(?<!不)(?:[是为為は:은는、\s「\"]|^)\s*{re.escape(wanted)}(?:です|だ|입니다|이다|[。,\s」\"]|$)",
                statement,
            ):
                return True
            raise RewardError(f"{shown(part)} holds {shown(self.text)}, in a script without spaces between words")
        if not places and re.search(rf"\bfrom [^ ]+ to {re.escape(plain(self.text))}(?!\w)", plain(part)):
            raise RewardError(f"{shown(part)} may state a range or a change, of which {shown(self.text)} is the end")
        if not places or any(_has_alternative(statement, each) for each in places):
            return False
        self._refuse_mention(wanted, statement, part, places)
        return True

    def _refuse_mention(self, wanted: str, statement: str, part: str, places: Sequence[re.Match[str]]) -> None:
        """Raise ``RewardError`` where a sentence may hold the text and state something else."""
        masked = MARKUP.sub("", part).replace(self.text, _MASK)
        begins = _BEGINNING.search(masked)
        head = _comparable(masked if begins is None or begins[0][0] == "?" else masked[: begins.start()])
        without = head not in ("", statement, _comparable(masked)) and _MASK not in head
        without = without and not re.search(whole_words(wanted), head)
        if without and len(head.split()) <= 3 and not _VERB.search(head) and not _NO_ENTRY.match(head):
            raise RewardError(f"{shown(part)} begins with another answer, and mentions {shown(self.text)}")
        rest = statement.replace(wanted, "")
        if REFUSAL.search(rest) or _ABOUT.search(rest) or any(_is_aside(statement, each) for each in places):
            raise RewardError(f"{shown(part)} mentions {shown(self.text)}, and may state another answer")
        if _is_told_otherwise(wanted, part) or _others_like(wanted, statement):
            raise RewardError(f"{shown(part)} mentions {shown(self.text)}, and something else")
        if ", " in wanted and all(re.match(r", \w", statement[each.end() :]) for each in places):
            raise RewardError(f"{shown(part)} may state a longer list than {shown(self.text)}")
        common = _COMMON.fullmatch(wanted) or re.search(rf"\bno {re.escape(wanted)}", statement)
        if common or _is_part_of_code(wanted, statement, places):
            raise RewardError(f"{shown(part)} may mean something else by {shown(self.text)}")
        if not _ADDRESS.search(self.text) and f"`{self.text}`" not in part:
            if all(_is_of(statement, each) for each in places):
                raise RewardError(f"{shown(part)} may state something else, of {shown(self.text)}")
            _refuse_longer_name(_ARTICLE.sub("", self.text), part)


_FIELD: Final = re.compile(r"\W*[A-Za-z][\w ]{0,30}\W*[:|]\s+(\S+(?: [^\s|]+){0,4})(?: \|)?")
_NAMED_NUMBER: Final = re.compile(r"[^\d:,\n]+[:,] \W?\d[^:\n]*")
"""A number and what it is of: ``Berlin: 3.6 million``."""
_ESCAPED: Final = re.compile(r"\\[dDwWsSbB](?![a-z])|\[\^?\w-\w+\]|\w<\w+>(?![^<]*</)")
"""What only a regular expression has, of which every sign counts."""
_LONGER: Final = 20
"""Times the length of the reference beyond which an output with other words, or in markup, cannot be it."""
_FENCED: Final = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_LIST_BELOW: Final = re.compile(r":\s*((?:\n[ \t]*(?:[-*\u2022]|\d+[.)])[ \t][^\n]*){2,})\Z")
_LINE_OF_LIST: Final = re.compile(r"\n[ \t]{0,9}(?:[-*\u2022]\s+|\d+[.)](?:\s+|(?:\.\.)?(?=[A-Za-z])))")
_JOINED: Final = re.compile(r",? (?:and|&) |(?<=\w)&(?=\w)|; ")
_SPACED: Final = re.compile(r"(?<=[^\W\d_])(?:\\[ -])(?=\w)")
"""An escaped space or hyphen between words."""
_HYPHENATED: Final = re.compile(r"(?<=[^\W\d_]{2})[-_](?=\w)")
_SCRIPTS_MEET: Final = re.compile(rf"(?<=[{UNSPACED}])(?=[a-z\d])|(?<=[a-z\d])(?=[{UNSPACED}])")
_QUOTED: Final = re.compile(r"(?<!\S)([\"*_])([A-Za-z][^\"*_\n]*)\1(?!\S)")
_SPACED_UNIT: Final = re.compile(r"(?<=\d) ([a-z]{1,3})\b")
_SPACED_SIGN: Final = re.compile(r" ?([-+=<>*/|§°%'\"(){}\[\]:]) ?")
_SUPERSCRIPT: Final = re.compile(r"(?<=[^\W\d_])\^\{?([\d+-]{1,3})\}?")
"""That of an ion or a footnote; powers are formulas, which are not compared as texts."""
_ARTICLE: Final = re.compile(r"^(?:the|an?) (?=\w{2})", re.IGNORECASE)
_DOTTED: Final = re.compile(r"\b(?:(?:[A-Z]\. ?)+[A-Z]\.|(?:[A-Z][a-z]?\.)+[A-Z]\b)", re.IGNORECASE)
"""Initials: ``U.S.A.``, ``Ph.D.``, ``J. R. R.``"""
ORDINAL: Final = re.compile(r"\b(?:(?:[a-z]+ty[ -])?[a-z]*(?:th|first|second|third)|\d+(?:st|nd|rd|th))\b")
_OF: Final = re.compile(r"(?<!out )(?<!due )\b(?:of|to|de|von) (?:the |an? )?$")
_KIND_OF: Final = re.compile(rf"\b(?:{any_of('kinds')}) of $")
"""A word for the kind of what follows: the city of Chicago is Chicago."""
_MOST_OF: Final = 7
"""Words of a phrase without a verb: ``the president of the United States``."""
_SPAN: Final = re.compile(r"(?:(?<=\d)|(?<=bc))( ?)(?:[-:]|\b(?:to|until|through)\b)\1(?=\d)")
_BETWEEN_TWO: Final = re.compile(r"\bbetween (?=\d)([^ ]{1,20}) and (?=\d)")
_DROPPED: Final = re.compile(r"^https?://(?=[\w.-]+$)|\bv(?=\d+\.\d)|(?<=\w)/$|(?<=\d0)'(?=s\b)|(?<= v)s?\.(?= )|§+ ?")
"""What is written or not: the protocol of a host, the ``v`` of a version, a dot of ``v.``, a paragraph sign."""
_FOOTNOTE: Final = re.compile(r"(?<=[^\W\d_]{3})(?:\[\d\d?\]|[\u00b9\u00b2\u00b3\u2074-\u2079]+)(?!\w)")
_NOTE: Final = re.compile(r"\b([a-g])[ -](sharp|flat)\b")
_STROKES: Final = str.maketrans("łøđıðħ", "lodidh")
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "æ": "ae", "å": "aa"})
_NAMES_OF_DAYS: Final = {
    name: names.split()[0] for names in VOCABULARY["days"] + VOCABULARY["months"] for name in names.split()
}
_ADDRESS: Final = re.compile(r"@|[/\\]|[A-Za-z]\w+\.[A-Za-z]{2,}")
_ADDRESSES: Final = (re.compile(r"[\w.+-]+@[\w-]+(?:\.\w[\w-]*)+"), re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]\w+"))
_LINK: Final = re.compile(r"\[([^\[\]\n]+)\]\((?:mailto:)?([^()\s]+)\)")
_DIGITS_OF_CODE: Final = 9
"""Digits of a code without letters, such as a telephone number, at least."""
_INITIAL: Final = re.compile(r"\b([^\W\d_])\. ?(?=[^\W\d_])|,? \b(jr|sr)\b\.?|\b(dr|mrs?|ms|prof|st)\.(?= )")
_TITLES: Final = "dr|mrs?|ms|prof|professor|sir|dame|lord|rev|herr|frau|madame|mme|monsieur|señora?"
_TITLE: Final = re.compile(rf"^(?:{_TITLES}) (?=[^ ]+ [^ ])")
_MIDDLE: Final = re.compile(r" (?:[a-z](?= [^ ])|[js]r$)")
_END: Final = r"(?=[.!?\"']|$)"
_ASIDE: Final = re.compile(r"\b(?:although|though|however|(?<!rather )than|whereas|formerly|used to)\b")
"""What makes a clause with a text one about something else, possibly."""
_OUTDONE: Final = "(?:replac|supersed|succeed|defeat|preced|outperform)e?"
_TURNED: Final = re.compile(
    rf"[,;] (?:but )?now\b|(?: (?!and|but|or)\w+)? (?:not(?! only| just)|never|nothing)\b| \w+n't\b"
    rf"| (?:is|was|were|been) (?:{_OUTDONE}d|beaten) by\b| \w{{3,}}s that (?!(?:s?he|it|they)\b)"
)
"""Behind a text, what makes its sentence one about something else: ``Paris did not``, ``Paris, now Rome``."""
RELATED: Final = re.compile(rf"\b(?:{any_of('related')}|{_OUTDONE}(?:s|d|ed)) (?:the )?$|{_LEFT_OPEN}")
"""What states something by its relation to a text, or none yet: ``near Paris``, ``London replaced Paris``."""
_ABOUT: Final = re.compile(
    r"\b(?:(?:asked|question) about|wrong answer|(?:some|others|many|people)(?: \w+)? (?:say|think|believe|confuse)"
    r"|(?<!which)(?<!that)(?<!it)(?<!this) is the (?:correct |right )?answer)\b"
)


def _comparable(text: str) -> str:
    """Return the plain form of a text with lists and ranges in one notation: ``a, b and c``, ``2 to 5``."""
    listed = _LINE_OF_LIST.sub(", ", f"\n{text}").lstrip(", ")
    listed = _DOTTED.sub(lambda found: re.sub(r"[. ]", "", found[0]), listed)
    bare = _DROPPED.sub("", plain(listed))
    bare = _NOTE.sub(lambda found: found[1] + "#b"[found[2] == "flat"], _SCRIPTS_MEET.sub(" ", bare))
    bare = _INITIAL.sub(lambda found: f"{found[1]} " if found[1] else f" {found[2]}" if found[2] else found[3], bare)
    bare = _SPACED_UNIT.sub(lambda found: found[1] if found[1] in UNITS else found[0], bare)
    bare = re.sub(r"\b(?:less than|below|under) (?=\d)", "<", re.sub(r"(?<=[<>]) (?=\d)", "", bare))
    return _SPAN.sub("-", _JOINED.sub(", ", _BETWEEN_TWO.sub(r"\1-", bare)))


def _one_spelling(text: str) -> str:
    """Return the comparable form of a text with hyphens as spaces, ordinals in digits, and no spaces around signs."""
    spelled = ORDINAL.sub(_in_digits, _HYPHENATED.sub(" ", _comparable(_QUOTED.sub(r"\2", text.translate(QUOTES)))))
    spelled = re.sub(r" (?:a|per|each|every) day\b", " daily", spelled)
    spelled = _SPACED_SIGN.sub(r"\1", _SUPERSCRIPT.sub(r"\1", spelled)).replace('"', "'")
    return str(_NAMES_OF_DAYS.get(spelled, spelled))


def _in_digits(found: re.Match[str]) -> str:
    number = ordinal(found[0])
    return found[0] if number is None else f"{number}th"


_ALIKE: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: " ".join(re.sub(r"[,()]|(?<!\d):|/(?!\d)|\b(?:of|the) ", " ", text).split()),
    lambda text: re.sub(r"[ ·()]", "", text) if re.fullmatch(r"o\([^+^]*", text) else text,
    lambda text: text.translate(_UMLAUTS),
    lambda text: text.replace(" ", "") if "->" in text else text,
    lambda text: re.sub(r"(?<=\d)(?:cm|mm|m|ft|in|px)?\s?(?:[x×]|by)\s?(?=\d)", "x", text),
)
"""Forms in which two spellings may be the same: a list without commas, ``ue`` for ``ü``, a reaction without spaces."""


def _code(text: str) -> str:
    """Return a telephone number, an account or a post code without what parts its signs; empty for another text."""
    digits = sum(map(str.isdigit, text)) if len(text) < SHOWN else 0
    parts = re.split(r"[ :-]+" if re.search("[a-z]", text) else r"[ ().:/-]+", text.strip("()"))
    short = all(part.lstrip("+").isalnum() and (len(part) < 4 or re.search(r"\d", part)) for part in parts)
    return "".join(parts) if short and digits >= (2 if re.search("[a-z]", text) else _DIGITS_OF_CODE) else ""


def _is_short_for(one: str, other: str) -> bool:
    """Return whether two texts differ only in abbreviations before the last word: ``Mt. Everest``, ``Art. 6``."""
    pairs = [sorted(pair, key=len) for pair in zip(one.split(), other.split(), strict=False)]
    same_length = len(pairs) > 1 and one.count(" ") == other.count(" ") and pairs[-1][0] == pairs[-1][1]
    return same_length and all(short == full or _abbreviates(short, full) for short, full in pairs)


def _abbreviates(short: str, full: str) -> bool:
    bare = short.rstrip(".")
    outer = len(full) > 3 and re.fullmatch(r"[^\W\d_aeiou]{2,3}", bare) and (bare[0], bare[-1]) == (full[0], full[-1])
    return bool(outer) or (len(bare) > 1 and short != bare and full.startswith(bare))


def _is_aside(statement: str, place: re.Match[str]) -> bool:
    """Return whether the clause of a text compares or concedes, or a ``but`` takes it back: ``larger than Paris``."""
    before, behind = re.split("[,;.] ", statement[: place.start()])[-1], statement[place.end() :]
    around = (before, re.split("[,;](?: |$)", behind)[0])
    moved = behind.startswith(" to ") and re.search(r"\bfrom (?:the )?$", before)
    taken = moved or " but " in behind or _TURNED.match(behind)
    taken = taken or re.search(r", (?:an?|the) (?:\w+ ){1,3}of (?:the )?$", statement[: place.start()])
    return bool(taken or any(map(_ASIDE.search, around)) or RELATED.search(before))


def _is_of(statement: str, place: re.Match[str]) -> bool:
    """Return whether a text says what something else is of: ``the capital of France``, with or without what it is."""
    if _KIND_OF.search(statement[: place.start()]):
        return False
    subject = re.match(r"\s+(?:is|are|was|were)\b", statement[place.end() :])
    rest = statement[: place.start()] + statement[place.end() :]
    phrase = not _VERB.search(statement) and len(rest.split()) <= _MOST_OF
    return bool(_OF.search(statement[: place.start()]) and (subject or phrase))


def _is_told_otherwise(wanted: str, part: str) -> bool:
    """Return whether the last clause of a sentence states what an earlier one, with a text, does not: ``X is old; it is Y``."""
    *before, last = map(_comparable, re.split(r"[;:]\s+|,\s+(?:so|hence|thus)\b", part))
    clause = next((each for each in before if re.search(whole_words(wanted), each)), "")
    first, _, then = _comparable(part).partition(". ")
    supposed = first.startswith("if ") and wanted in first and then and wanted not in then
    clause = first if supposed and not clause else clause
    place = _ELSEWHERE.search(part)
    if place and plain(place[2]) == wanted and plain(place[3]) not in (wanted, *_NAMES_OF_DAYS):
        return True
    return bool(clause) and not _states(wanted, clause) and (supposed or not re.search(whole_words(wanted), last))


_ELSEWHERE: Final = re.compile(r"\b([Ii]n|[Aa]t) ([A-Z][^.,;]{1,60})(?:[.;] [^.;]*|, the [^.;,]*)\b\1 ([A-Z]\w+)")
"""A second place, said in the same way: ``The head office is in Lyon, the plant in Marseille``."""


def _others_like(wanted: str, statement: str) -> bool:
    """Return whether a statement has another code of the same shape: ``831 BGB`` for ``823 BGB``, ``O(n)`` for ``O(1)``."""
    is_call = re.fullmatch(r"\w\([^()]*", wanted)
    numbered = re.sub(r"(?<= )[a-z]$", "[a-z]", re.sub(r"\d+", r"\\d+", re.escape(wanted).replace(r"\ ", " ")))
    address = next((each for each in _ADDRESSES if each.fullmatch(wanted.rsplit(maxsplit=1)[-1])), None)
    shape = rf"{wanted[0]}\([^()]*" if is_call else address.pattern if address else numbered
    concluded = conclusion_of(statement)
    said = concluded if wanted in concluded else statement
    head, *more = _ELABORATION.split(said)[0].split(". ")
    settled = address and (_states(wanted, head) if more else head.endswith(wanted))
    found = re.finditer(rf"(?<![\w.-]){shape}(?![\w-])", said) if not wanted.isdecimal() and not settled else ()
    found = (each for each in found if not wanted.endswith(each[0]) and not is_denied(said, *each.span()))
    return any(address is None or each.start() > said.rfind(wanted) for each in found)


def _states(wanted: str, clause: str) -> bool:
    """Return whether a clause ends by stating that something is a text."""
    return bool(re.search(rf"(?:{_VERB.pattern}|^) ?{_DETERMINER.pattern}{re.escape(wanted)}\W*$", clause))


def _is_sentence(text: str) -> bool:
    ends = text.rstrip()[-1:] in [*".!?"] and not re.search(r"\b[A-Z]\w{0,2}\.$", text)  # King Jr.
    return ends and text.count(" ") > 2


def _without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.translate(_STROKES))
    return "".join(each for each in parts if not unicodedata.combining(each))


_MASK: Final = "\ue000"
_BEGINNING: Final = re.compile(r"(?<=\w{3})[.!?]\s+(?=[A-Z\ue000])|" + _ELABORATION.pattern)
_VERB: Final = re.compile(r"\b(?:is|are|was|were|be|has|have|says?|means?|equals|ist|sind|est|es|é|è)\b|'s\b")
_NO_ENTRY: Final = re.compile(rf"(?:{any_of('openings')}|{_NOT}|{any_of('within sentences')})\b|$", re.IGNORECASE)
"""The beginning of a part of a sentence that is no entry of a list."""
_COMMON: Final = re.compile("its?|he|she|hers?|his|him|they|them|we|us|you|i|this|that|there|here|up|no|yes|not|so")
"""Words that are in most sentences, whatever they state."""


def _is_part_of_code(wanted: str, statement: str, places: Sequence[re.Match[str]]) -> bool:
    """Return whether a command is a part of a longer one, such as ``sudo ls -l / && rm -rf /``."""
    around = [(statement[: each.start()], statement[each.end() :]) for each in places]
    if not re.search(r"[\\/|$=;{}<>]|\s-+\w", wanted) and not re.match(r" --?[a-z]", around[0][1]):
        return False
    return all(
        re.match(r"\s*(?:&&|\|\|?|;|>|<)|\s+--?\w", after) or re.search(r"(?:&&|\||;|sudo)\s*$", before)
        for before, after in around
    )


def whole_words(text: str) -> str:
    """Return a pattern for a text that is no part of a longer word or number."""
    if _ADDRESS.search(text):
        return rf"(?:(?<![\w.@/+-])|(?<= \./)){re.escape(text)}(?![\w@/?#&=+-]|[.:\\]\w)"
    return rf"(?<![\w~!¬-])(?<!\d[.,:/]){re.escape(text)}(?![\w+#·=-]|[.,:/]\d|'s \w)"


def is_denied(text: str, start: int, end: int) -> bool:
    """Return whether a sentence denies what is there, or asks for it: ``not Paris``, ``Paris is wrong``, ``Is it Paris?``."""
    before, behind = text[max(0, start - _LOOK_BACK) : start], text[end : end + _LOOK_BACK]
    asked = (question := re.match(r"[^.!?\n]*\?", behind)) and (
        re.match(r"\W*\w", behind[question.end() :])  # a question that is answered by what follows it
        or re.search(r"(?:^|[.!?:]\s+)(?:is|are|was|d(?:o|oes|id)|(?:c|sh|w)ould|shall|can)\b[^.!?]*$", before)
    )
    return bool(_NEGATION.search(before) or _NEGATED_BEHIND.match(behind) or asked)


_NEGATED_BEHIND: Final = re.compile(
    r"[^\w#]{0,3}\s*(?:is|are|was|(?:would|can) be|seems|ist|est|es)\s+(?:(?:also|clearly|simply|just|an?|the)\s+)?"
    r"(?:not\b(?! (?:only|just))|wrong|incorrect|false|impossible|a distractor|considered|possible|plausible|falsch|faux|falso"
    r"|(?:exclud|eliminat|reject|deni|cancell)ed|ruled out)"
    r"|\?+\s+no\b"
    rf"|\s+(?:isn't|wasn't)\b|:?\s+(?:{_NOT}|no)\s*(?:[.,!;]|$)"
    r"|\s*(?:(?:でも\w{1,8})?(?:で|じゃ|と)[はも]?(?:な[いく]|ありません|言え)|[이가]\s?아[니닙닌])"
)


def _has_alternative(statement: str, place: re.Match[str]) -> bool:
    """Return whether another answer is offered next to this one: ``Paris or London``, ``Paris/London``."""
    before, behind = statement[max(0, place.start() - 20) : place.start()], statement[place.end() : place.end() + 20]
    return bool(
        re.match(rf"\W{{0,2}}\s*(?:{_OR}|o)(?!\w)\s*\S|\s*/", behind)
        or re.search(rf"(?:\b(?:{_OR}|either)|(?<![.{'a-z' if place[0][0].isdigit() else ''}])/)\W{{0,3}}\s*$", before)
    )


def _refuse_longer_name(name: str, part: str) -> None:
    """Raise ``RewardError`` where every occurrence of a name is a part of a longer one, or the first of a list."""
    if not any(map(str.isupper, name.split(" ", 1)[0])):
        if re.search(r"[^\W\d_]{2}", name):  # a word next to a code is no part of it: version 3.10
            _refuse_longer_term(name, part)
        return
    words = r"\s+".join(map(re.escape, name.split()))
    for each in re.finditer(words, part, re.IGNORECASE):
        before, behind = part[: each.start()], part[each.end() :]
        longer = re.match(r"[ ](?:[A-Z]\w+|[IVX]+\b|\d+\W*$)", behind)
        named = name[:1].isupper() and _NAME_BEFORE.search(before)
        if not longer and not named and not re.match(r"(?:,[ ]|[ ]and[ ])[A-Z]\w", behind):
            return
    if re.search(words, part, re.IGNORECASE):
        raise RewardError(f"{shown(part)} may state a longer name or a list, of which {shown(name)} is a part")


_NAME_BEFORE: Final = re.compile(
    r"(?:^|(?<=[a-z,:*] )|\*\*)"
    r"(?!(?:The|A|An|In|It|At|So|Is|By|On|To|Of|For|Option|Answer|Maybe|Perhaps|\w+ly|"
    rf"(?i:{_TITLES}))\b)[A-Z][a-z]+[ ]$"
)


def _refuse_longer_term(term: str, part: str) -> None:
    """Raise ``RewardError`` where a few words without a verb are the term and others next to it: ``cell wall`` for ``cell``."""
    masked = re.sub(re.escape(term), _MASK, re.split("[:?] ", part)[-1], flags=re.IGNORECASE)
    masked = masked.partition(" (")[0] if ", " in term else _ELABORATION.split(masked)[0]
    head = _DETERMINER.sub("", whole := plain(masked), count=1)
    if len(term.split()) > 2 and whole.endswith(_MASK):
        return
    if re.search(r"\b(?:we|i|this|that|it|they)\b", whole):
        return  # a sentence
    rest = [each for each in head.replace(_MASK, " ").split() if each.isalnum() and each[-2:] != "ly"]
    is_phrase = len(head.split()) <= 3 and not _VERB.search(head) and not _BETWEEN.search(" ".join(rest))
    if rest and is_phrase and term.isascii():
        raise RewardError(f"{shown(part)} may state a longer term, of which {shown(term)} is a part")


_BETWEEN: Final = re.compile(r"\b(?:an?|the|or|and|in|of|for|to|with|at|by|answer|result|final|so|thus|option)\b")
