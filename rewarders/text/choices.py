"""Compare an output with the letters of options."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import ClassVar, Final

from tfgrpo.rewarders.text import rules
from tfgrpo.rewarders.text.answers import VOCABULARY, Stated, conclusion_of, in_a_sentence, is_order_free, last_question
from tfgrpo.rewarders.text.base import LONGEST_PART, OPTION_MARK, Reference, parts_of, whole_words
from tfgrpo.rewarders.text.moments import MomentReference
from tfgrpo.rewarders.text.numbers import answered_number, numbers_agree, reference_number
from tfgrpo.rewarders.text.options import exception_asked, letters_in, narrow, sign_of
from tfgrpo.rewarders.text.rules import NEGATION, Compared, ReadAnswer, Way, first_of, is_denied, shown, stems
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.spelling import MARKUP, comparable, plain
from tfgrpo.rewarders.text.words import TextReference
from tfgrpo.stores.errors import RewardError

WORD: Final = re.compile(r"[^\W\d_]{3,}")
_AUXILIARIES: Final = frozenset(VOCABULARY["auxiliaries"].split())
_HEDGED: Final = re.compile(r"\?|\b(?:or|if|when|unless|nowhere|maybe|perhaps|might|may)\b")
_PAST: Final = re.compile(r"\b(?:was|were|did|had)\b")
_CONDITIONAL: Final = re.compile(r"(?:yes|no|true|false),? (?:but )?(?:only )?(?:if|when|unless|provided|depending)\b")


def _contents(text: str) -> list[str]:
    words = re.findall(r"[^\W\d_]{3,}|\d+", plain(text))
    return [each[:4] for each in words if each not in _AUXILIARIES and not NEGATION.fullmatch(each)]


@dataclass(frozen=True)
class _Named(ReadAnswer["OptionReference"]):
    stated: Stated

    @cached_property
    def names(self) -> frozenset[str]:
        return self.reference.named(self.text)

    @cached_property
    def polarity(self) -> str:
        """What a part says of a yes-no question by its words, in their order and with no other: ``yes``, ``no``, or nothing."""
        question = (
            re.sub(r"[(\[][^()\[\]]*[)\]]", "", last_question(self.reference.prompt).partition("?")[0])
            if self.reference.is_truth
            else ""
        )
        statement = conclusion_of(self.text) or self.text
        text = plain(statement)
        there = re.match(
            r"(?:(?:is|are|was|were) there|do(?:es)? .{1,40}? (?:contain|include|have)) (?:an? |any )?(\w+)", plain(question)
        )
        subject = there and re.match(rf"there (?:is|are|was|were)(n't| not?)? (?:an? |any )?{there[1]}\b", text)
        asks, contents = _contents(question), _contents(statement)
        whole = contents == asks or (subject and [*dict.fromkeys(contents)] == [each for each in asks if each in contents])
        past = [_PAST.search(each) is not None for each in (text, plain(question))]
        if not contents or not whole or _HEDGED.search(text) or NEGATION.search(question) or past[0] != past[1]:
            return ""
        return "no" if NEGATION.search(text) else "yes"

    def says_so(self) -> bool:
        return self.polarity == self.reference.wanted

    def is_conditional(self) -> bool:
        return self.reference.is_truth and _CONDITIONAL.match(plain(self.text)) is not None

    def repeats(self) -> bool:
        words = {*WORD.findall(last_question(self.reference.prompt).casefold())} if self.reference.is_truth else ()
        return bool(words) and "?" not in self.text and 2 * len({*WORD.findall(self.text.casefold())} & {*words}) > len(words)


@dataclass(frozen=True, slots=True)
class OptionReference(Reference):
    """One of several options or labels. Right when an output names it and no other."""

    rules: ClassVar[tuple[Rule[_Named], ...]] = (
        Rule("unclear", "names one on a condition", "yes", "Yes if it is dry, no otherwise.", _Named.is_conditional),
        Rule("right", "names it", "B", "The answer is B.", lambda it: it.names == {it.reference.wanted}),
        Rule("wrong", "names another", "B", "The answer is A.", lambda it: len(it.names) == 1),
        Rule("wrong", "hedges", "B", "Answer: A or B", lambda it: it.names and it.stated.is_marked),
        Rule("unclear", "names several", "B", "A and B fit.", lambda it: it.names),
        Rule("right", "repeats the question", "no", "Owls can't swim.", _Named.says_so, "Can owls swim?"),
        Rule("wrong", "repeats the question otherwise", "no", "Owls swim.", lambda it: it.polarity, "Can owls swim?"),
        Rule("unclear", "may say yes or no by repeating it", "no", "Most birds do fly.", _Named.repeats, "Do birds fly?"),
    )

    @property
    def wanted(self) -> str:
        """The letter of the option, or the key of the label."""
        return self.text

    @property
    def is_truth(self) -> bool:
        """Whether the labels are yes and no."""
        return False

    @abstractmethod
    def named(self, part: str) -> frozenset[str]:
        """Return the options that a part names."""

    @abstractmethod
    def whole(self, line: str) -> str | None:
        """Return the option that a line is."""

    def _parts(self, stated: Stated) -> list[str]:
        return parts_of(stated, lambda line: self.whole(line) or self.whole(OPTION_MARK.sub("", MARKUP.sub("", line))))

    def _compare(self, stated: Stated) -> Compared:
        sentence = in_a_sentence(stated.whole) if stated.is_marked else None  # \boxed{-150.8}, so the answer is (D)
        stated_parts = ((each, part) for each in filter(None, (stated, sentence)) for part in self._parts(each))
        behind = ((stated, part) for part in self._behind(stated)) if stated.source == "sentence" else ()
        verdicts = (first_of(self.rules, _Named(self, part, each)) for each, part in chain(stated_parts, behind))
        return next(filter(None, verdicts), Compared(False, f"{shown(stated.text)}, which names none", states=False))

    def _behind(self, stated: Stated) -> Iterator[str]:
        """Yield what decides where a sentence with "answer" names none: a conclusion or last line behind it, or the opening."""
        rest = stated.whole.rpartition(stated.text)[2].strip(" .\n") if stated.text else ""
        if rest:
            yield conclusion_of(rest) or rest.splitlines()[-1]
        yield from filter(self.stated_in, re.split(r"(?<=\w)[.:!]\s", stated.whole, maxsplit=1)[:1])

    def stated_in(self, line: str) -> str | None:
        """Return the option that a line states, and no other."""
        return self.whole(line)


@dataclass(frozen=True)
class _Letters(ReadAnswer["ChoiceReference"]):
    @cached_property
    def bare(self) -> str:
        bare = narrow(self.text).strip()
        is_small = _SMALL_OPTIONS.search(self.reference.prompt) and not re.search(r"(?<!\w)[B-HJ](?!\w)", bare)
        return _SMALL_LETTER.sub(lambda letter: letter[0].upper(), bare) if is_small else bare

    @cached_property
    def marks(self) -> list[re.Match[str]]:
        return letters_in(self.bare, self.reference.options)

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters that are not denied; of these, those that are never denied, where there are any."""
        named = frozenset(sign_of(each) for each in self.marks if not self.is_denied(each))
        return named - self.denied or named

    @cached_property
    def denied(self) -> frozenset[str]:
        return frozenset(sign_of(each) for each in self.marks if self.is_denied(each))

    @cached_property
    def excepted(self) -> frozenset[str]:
        """The options that are denied, by letter or by text: all of what the answer is where a question has NOT."""
        lowered, statement = self.bare.lower(), comparable(self.text)
        denied = [each for each in self.marks if self.is_denied(each)]
        named = {*self.denied} - {sign_of(each) for each in denied if not self._excepts(lowered, *self.span(each))}
        for letter, option in self.reference.options.items():
            occurrences = [(statement, *each.span()) for each in re.finditer(whole_words(comparable(option)), statement)]
            named |= {letter} if occurrences and all(self._excepts(*each) for each in occurrences) else set()
        return frozenset(named)

    def _excepts(self, text: str, start: int, end: int) -> bool:
        """Return whether an option is denied by what the question asks, not as an answer: ``not a fruit``, not ``is wrong``."""
        if not is_denied(text, start, end) or _REJECTS.search(text[:start]):
            return False
        predicate = _PREDICATE.match(text, end)
        words = stems(predicate[1]) - {"not", "the"} if predicate else set()
        return not words or not words.isdisjoint(stems(exception_asked(self.reference.prompt)))

    def span(self, letter: re.Match[str]) -> tuple[int, int]:
        """Return where a letter is, with its option."""
        option = re.escape(self.reference.options.get(sign_of(letter), ""))
        behind = re.compile(f" ?{option}", re.IGNORECASE).match(self.bare, letter.end())
        return letter.start(), (behind or letter).end()

    def is_denied(self, letter: re.Match[str]) -> bool:
        return is_denied(self.bare.lower(), *self.span(letter))

    def alone(self) -> frozenset[str]:
        return frozenset(filter(None, [self.reference.whole(self.text)]))

    def marked(self) -> frozenset[str]:
        mark = _LETTER_OF_TEXT.match(self.bare)
        other = self.reference.whole(mark.string[mark.end() :]) if mark else None
        return frozenset((mark[1].upper(), other)) if mark and other else frozenset()

    def first(self) -> frozenset[str]:
        signs = "".join(re.findall(r"(?<!\w)([A-J])[).:\]] *\w", self.bare.upper()))
        is_list = {"A", "B"} <= self.letters and signs.startswith("AB")
        first = sign_of(self.marks[0]) if self.marks and self.marks[0].start() == 0 else ""
        joined = first and re.match(_JOINED, self.bare[self.span(self.marks[0])[1] :])  # (A) red and (C) green
        is_first = first in self.letters and _LETTER_FIRST.match(self.bare) and not (is_list or joined)
        return frozenset({first}) | self.concluded() if is_first else frozenset()

    def praised(self) -> frozenset[str]:
        praised = frozenset(sign_of(each) for each in self.marks if _PRAISE.match(self.bare, each.end()))
        return praised if len(praised) == 1 and praised <= self.letters and not _OR_LETTER.search(self.bare) else frozenset()

    def only(self) -> frozenset[str]:
        return self.letters if len(self.letters) == 1 else frozenset()

    def concluded(self) -> frozenset[str]:
        conclusion = conclusion_of(self.bare) if len(self.letters) > 1 else ""
        return self.reference.named(conclusion) if conclusion else frozenset()

    def valued(self) -> frozenset[str]:
        """Return the option that is the number of an answer, where each is a number."""
        options = {letter: reference_number(option) for letter, option in self.reference.options.items()}
        with suppress(RewardError):
            number = None if None in options.values() else answered_number(self.text)
            pairs = [(letter, number, each) for letter, each in options.items() if number is not None and each is not None]
            return frozenset(letter for letter, ours, theirs in pairs if numbers_agree(ours, theirs))
        return frozenset()

    def held(self) -> frozenset[str]:
        """Return the options in it; of those within each other the longest: ``both A and B``, ``rises and then falls``."""
        held = {letter: plain(option) for letter, option in self.reference.options.items() if _holds(self.text, option)}
        longest = {letter for letter, text in held.items() if not any(text in each != text for each in held.values())}
        longest -= self.denied
        if len(longest) > 1 and (concluded := conclusion_of(self.bare)):
            return self.reference.named(concluded)
        hedged = len(self.letters) > 1 and _OR_LETTER.search(self.bare)
        return frozenset(self.letters if self.letters and (hedged or len(longest) != 1) else longest)


@dataclass(frozen=True, slots=True)
class ChoiceReference(OptionReference):
    """The letter of an option. Right when the output states this letter, or the text of the option."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Empty when the prompt shows none."""
    ways: ClassVar[tuple[Way[_Letters, frozenset[str]], ...]] = (
        Way("the option alone", "paris", _Letters.alone),
        Way("a letter with an option", "(B) Paris", _Letters.marked),
        Way("the letter that comes first", "B, as A and C are older.", _Letters.first),
        Way("the letter that is better", "I find that B is better than A.", _Letters.praised),
        Way("the only letter", "The answer is (B).", _Letters.only),
        Way("what it concludes with", "Of A and B the larger, so B.", _Letters.concluded),
        Way("the only one with its number", "It is 36.", _Letters.valued),
        Way("the option in it", "I think that it is Paris.", _Letters.held),
    )

    @property
    def shown(self) -> str:
        """The letter, and the option if it is known."""
        option = self.options.get(self.text)
        return shown(self.text if option is None else f"{self.text}) {option}")

    def whole(self, line: str) -> str | None:
        """Return the letter that a line is, or whose option it is."""
        bare = plain(line)
        if both := re.fullmatch(r"(.+?) \(([a-j])", bare):
            return both[2].upper() if plain(self.options.get(both[2].upper(), "")) == plain(both[1]) else None
        if len(bare) == 1 and "a" <= bare <= "j":
            return bare.upper()
        return next((letter for letter, option in self.options.items() if plain(option) == bare), None)

    def is_denied_in(self, stated: Stated) -> bool:
        """Return whether an output has the reference only where it denies it, as ``Reference`` does; not if that is asked."""
        return not exception_asked(self.prompt) and Reference.is_denied_in(self, stated)

    def named(self, part: str) -> frozenset[str]:
        """Return the letters that a part names, by the first way that finds any."""
        if (reasoned := _REASONED.fullmatch(part)) and len(self.named(reasoned[1])) == 1:
            part = reasoned[1]
        letters = _Letters(self, part)
        if exception_asked(self.prompt) and len(letters.excepted) == 1 and letters.first() <= letters.excepted:
            return letters.excepted
        return next(filter(None, (way.of(letters) for way in self.ways)), frozenset())


_SMALL_OPTIONS: Final = re.compile(r"(?m)^[ \t>*-]*[(\[]?a[.):\]]\s*\S")
# A letter alone, beside options that the question shows with small ones; ``a`` not before a word.
_SMALL_LETTER: Final = re.compile(r"(?<![\w'’.^*/+=-])(?:[b-hj]|[ai](?=\W*$|[;,.:)]))(?![\w'’^*/+=-]|\.\w| ?[=+*/<>^]|\()")
# What denies that an option is the answer, and nothing of the option.
_REJECTS: Final = re.compile(r"(?i)(?:\bnot|n't) (?:\w+ )?$")
# What is said of an option.
_PREDICATE: Final = re.compile(
    r"(?i)\W*(?:is|are|was|were|do|does|did|can|would|will)(?:n't| not)?\b((?:(?! but )[^.,;!?\n])*)"
)
# A letter before its option: ``B. Paris``, ``B--Paris``.
_LETTER_OF_TEXT: Final = re.compile(r"[(\[]?([A-Ja-j])(?:[).:\]]\s*|\s?[-\u2013\u2014]{1,2}\s?)(?=\S)")
_PRAISE: Final = re.compile(r" (?:is|was|seems) (?:(?:clearly|much|slightly|the) )*(?:best|better|correct|right)\b(?! or\b)")
# The second of two letters, between which an answer leaves the choice: ``D) attic or E) shed``.
_OR_LETTER: Final = re.compile(r"\bor \W{0,3}[A-J]\b")
# A choice with its reason, in one clause.
_REASONED: Final = re.compile(r"(?s)(.*?),?\s+(?:because|since|as)\s+(?:(?!\b(?:but|so|yet)\b|[.;!?]\s).)*")
# A second letter next to the first, which is then no answer alone: ``(A) or (B)``.
_JOINED: Final = r"\s*(?:,|[/&]|,?\s*(?:and|or)\b)\s*(?:(?:and|or)\s+)?[(\[]?[A-J]\b"
_LETTER_FIRST: Final = re.compile(rf"[(\[]?[A-Ja-j](?:[).\]:](?!{_JOINED})|(?!{_JOINED}),|\s+(?:because|since|as)\b)")
_CLAUSE: Final = re.compile(r"[;.] |\n|,?\s*\b(?:while|whereas|but)\b")
# A line of the answers to several questions: ``21. B``.
_ANSWERS: Final = re.compile(r"(?im)^[^\w\n]{0,9}(\d{1,3})[^\w\n]{1,9}(?:(?:答案|answer)[^\w\n]{0,9})?([A-J])[^\w\n]*$")
_PARTED: Final = r"(?:[\s,;/&+.()\[\]{}|*\u3001\u060c\u0964]|\b(?:and|und|et|y|e)\b|[和与及와과])*"
_LETTERS_ALONE: Final = re.compile(
    rf"{_PARTED}(?:(?:(?:options?|choices?)\b|选项|选){_PARTED})?(?:[A-J](?:{_PARTED}[A-J])*|[a-j](?:\W+[a-j])+){_PARTED}"
)
JOINED_LETTERS: Final = re.compile("(?=..)A?B?C?D?E?F?G?H?I?J?")
SEVERAL_LETTERS: Final = re.compile(r"\(?[A-J]\)?(?:(?:, ?|;|\s+and\s+)\(?[A-J]\)?)+")


def _holds(part: str, option: str) -> bool:
    reference = MomentReference.of(option) or TextReference(option)
    try:
        if isinstance(reference, MomentReference):
            return reference.compare(part).right
        return reference.equals(part) or reference.is_in(part)
    except RewardError:
        return True


@dataclass(frozen=True, slots=True)
class ChoicesReference(Reference):
    """The letters of several options, in any order: ``A, C``."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Empty when the prompt shows none."""

    @property
    def shown(self) -> str:
        """The letters."""
        return shown(", ".join(re.findall("[A-J]", self.text)))

    def _compare(self, stated: Stated) -> Compared:
        letters, wanted = self._letters(stated), re.findall("[A-J]", self.text)
        free = is_order_free(self.prompt)
        is_ordered = re.search(r"\b(?:order|sort|rank|sequence|arrange)\b", self.prompt, re.IGNORECASE) and not free
        same = {*letters} == {*wanted} and not is_ordered and len({*wanted}) == len(wanted)
        if same and letters != wanted != sorted(wanted) and not free:
            raise RewardError(f"{shown(stated.text)} has the letters in another order")
        return Compared(same or letters == wanted, shown(stated.text))

    def _letters(self, stated: Stated) -> list[str]:
        """Return the letters of an answer; of a list as it is. Raise ``RewardError`` for what is denied beside them."""
        lines = narrow(stated.whole[-LONGEST_PART:])
        numbered = _ANSWERS.findall(lines)  # those of several questions
        if len(numbered) > 1 and all(int(one) + 1 == int(other) for (one, _), (other, _) in pairwise(numbered)):
            return [letter for _, letter in numbered]
        parts = parts_of(stated, self._alone) if re.search(r"\w{2}", lines) else [lines]
        return next(filter(None, (self._letters_of(narrow(part)) for part in parts)), [])

    def _alone(self, line: str) -> list[str] | None:
        """Return the letters of a line that has nothing else."""
        text = narrow(line)
        alone = _LETTERS_ALONE.fullmatch(text)
        return re.findall("[A-J]", text.upper() if text.islower() else text) if alone else None

    def _letters_of(self, text: str) -> list[str]:
        if alone := self._alone(text):
            return alone
        named = [letter_of(each, self.options) for each in comparable(text).split(", ")]
        if all(named):
            return named
        letters: list[str] = []
        names = False
        for clause in _CLAUSE.split(text):
            marks = letters_in(clause, self.options)
            denied = [is_denied(clause.lower(), *each.span()) for each in marks]
            if not marks or not all(denied):
                if any(denied) or rules.denies(clause):
                    raise RewardError(f"{shown(text)} denies an option, or has several answers")
                letters += map(sign_of, marks)
            names = names or bool(marks)
        if names and not letters:
            raise RewardError(f"{shown(text)} denies all that it names")
        if not names and not rules.denies(text):
            held = {plain(option): letter for letter, option in self.options.items()}
            return [letter for option, letter in held.items() if re.search(whole_words(option), plain(text))]
        return [*dict.fromkeys(letters)]


def letter_of(text: str, options: Mapping[str, str]) -> str:
    """Return the letter of the only option that a text is, with or without its letter; empty for none."""
    forms = {letter: (option, *(f"{letter}{mark} {option}" for mark in ").:")) for letter, option in options.items()}
    same = [letter for letter, written in forms.items() if plain(text) in map(plain, written)]
    return same[0] if len(same) == 1 else ""
