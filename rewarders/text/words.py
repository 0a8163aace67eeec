"""Compare an output with one reference of words: a text, or a label."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from tfgrpo.rewarders.text import answers, base, rules, spelling
from tfgrpo.rewarders.text.answers import MOST_BARE, Stated, any_of, is_order_free, last_question, written_value
from tfgrpo.rewarders.text.base import ADDRESS, DETERMINER, ELABORATION, VERB, Reference, is_bare, parts_of, whole_words
from tfgrpo.rewarders.text.lexer import UNITS
from tfgrpo.rewarders.text.numbers import REFUSAL, only_number
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Compared, ReadAnswer, first_of, is_denied, shown, stems, verdict_by
from tfgrpo.rewarders.text.spelling import BOLD, MARKUP, QUOTES, TRIMMED, code, comparable, one_spelling, plain, without_accents
from tfgrpo.stores.errors import RewardError


@dataclass(frozen=True)
class _Spelled(ReadAnswer["TextReference"]):
    form: str
    wanted: str

    def both(self, read: Callable[[str], str]) -> bool:
        return read(self.form) == read(self.wanted)

    def is_same(self) -> bool:
        bare, bare_wanted = (DETERMINER.sub("", each, count=1) for each in (self.form, self.wanted))
        return bool({self.wanted, bare_wanted or self.wanted} & {self.form, bare})

    def is_in_base(self) -> bool:
        return spelling.is_same_in_base(self.reference.prompt, self.text, self.reference.text)

    def is_same_address(self) -> bool:
        return spelling.is_same_address(self.form, self.wanted)

    @property
    def is_acronym(self) -> bool | None:
        """Whether the answer is an acronym of the text; None where it may be, or the other way round."""
        answer, wanted = (MARKUP.sub("", each).strip(TRIMMED + "!") for each in (self.text, self.reference.text))
        if spelling.is_acronym(answer, wanted):
            return len(answer) > len("UK") or None
        return None if spelling.is_acronym(wanted, answer) else False

    def has_other_order(self) -> bool:
        ours, theirs = (_LISTS.sub("", each).split(", ") for each in (self.form, self.wanted))
        return len(theirs) > 1 and ours != theirs and sorted(ours) == sorted(theirs)

    def has_all_asked(self) -> bool:
        question = last_question(self.reference.prompt) if self.has_other_order() else ""
        two = _TWO_ASKED.search(question) and not answers.ORDER_ASKED.search(question)
        return question != "" and (bool(two) or is_order_free(self.reference.prompt))

    def may_lack_country(self) -> bool:
        national, whole = sorted(map(code, (self.form, self.wanted)), key=lambda each: each[:1] == "+")
        return bool(national) and whole[:1] == "+" != national[0] and whole.endswith(national.lstrip("0"))

    def lacks_preposition(self) -> bool:
        bare = re.sub(r"^(?:in|at|on|by|from|to|for|because of|due to) (?=\w{3})", "", self.wanted)
        return bare != self.wanted and self.form in (bare, DETERMINER.sub("", bare, count=1))

    def lacks_unit(self) -> bool:
        bare, _, unit = self.wanted.partition(" ")
        return self.form == bare and ("/" in bare or ("-" in bare[1:] and unit in UNITS))

    def has_word_asked(self) -> bool:
        """Return whether one name is the other with words of the question next to it: the river is the Po River."""
        shorter, longer = sorted((_ARTICLE.sub("", self.form), _ARTICLE.sub("", self.wanted)), key=len)
        if not shorter or longer.count(",") > 1 or not _is_capital(self.reference.text):
            return False
        before, inside, behind = longer.partition(shorter)
        extra = f"{before} {behind}".strip(" ,")
        apart = (not before or before[-1] == " ") and (not behind or behind[0] in " ,")
        few = len(extra.split()) <= MOST_BARE // 2 + 1 and not VERB.search(extra)
        question = stems(last_question(self.reference.prompt).partition("?")[0])
        return bool(inside and extra and apart and few and self.reference.is_asked(extra) and stems(extra) <= question)

    def is_joined(self) -> bool:
        both = (re.sub(r"(?<=[^\W\d_])-(?=[^\W\d_]{2})", "", comparable(each)) for each in (self.text, self.reference.text))
        return len({*both}) == 1  # email, e-mail

    def may_be_another_person(self) -> bool:
        return spelling.may_be_same_person(self.form, self.wanted, self.reference.text)

    def is_same_unaccented(self) -> bool:
        return self.both(without_accents) and without_accents(self.wanted) in (self.form, self.wanted)

    def may_be_another_word(self) -> bool:
        may_be_noun = self.reference.text[:1].islower() or re.search("[äöü]", self.form + self.wanted)  # Äpfel, Apfel
        return len(self.wanted.split()) == 1 and bool(may_be_noun) and self.is_same_unaccented()


@dataclass(frozen=True)
class _Mention(ReadAnswer["TextReference"]):
    """A part of an output beside a text that it may state within a sentence."""

    wanted: str
    statement: str
    """The part in the same form as what is wanted."""
    occurrences: list[re.Match[str]]
    """Where it has what is wanted and does not deny it."""
    other_name: str
    """What may be the same, where it does not have it; empty for nothing."""

    @classmethod
    def of(cls, reference: TextReference, part: str, *, respelled: bool = False) -> _Mention:
        wanted, statement = comparable(reference.text), comparable(part)
        if spelling.SIGNED.fullmatch(wanted):
            statement = " ".join(part.translate(QUOTES).casefold().split())
        statement = spelling.without_accepted(statement, wanted, reference.accepted)
        statement = rules.as_asked(statement, reference.prompt)
        statement = statement if re.search(r"\W'\w", wanted) else _IN_QUOTES.sub(r'"\1"', statement)
        if not re.search(whole_words(wanted), statement):
            wanted, statement = _ARTICLE.sub("", spelling.american(wanted)), spelling.american(statement)
            if article := _ARTICLE_ABROAD.match(wanted):
                statement = re.sub(rf"{_INFLECTED}(?={re.escape(wanted[article.end() :])}(?!\w))", article[0], statement)
            if f"{wanted}'" in statement and _OWNER_ASKED.search(last_question(reference.prompt)):
                statement = re.sub(rf"(?<!\w)({re.escape(wanted)})'s? (?=\w)", r"\1 ", statement)
        statement = re.sub(rf"https?://(?={re.escape(wanted)})", "", statement)
        statement = re.sub(r'(?<= )"(\w+)"(?= \w)', r"\1", statement)  # Robert "Ted" Turner
        statement += "?" if part.rstrip(TRIMMED.replace("?", "!")).endswith("?") else ""
        ends = reference.text.rstrip()[-1:] in [*".!?"] and not re.search(r"\b[A-Z]\w{0,2}\.$", reference.text)  # King Jr.
        is_sentence = ends and reference.text.count(" ") > 2
        ends_in = r"(?:\?|(?=[.!\"']|$))" if is_sentence else r"\??" * reference.text.endswith("?")
        matches = [*re.finditer(whole_words(wanted) + ends_in, statement)]
        named = matches or respelled or is_sentence
        name, surely = ("", False) if named else reference.written_in(part)
        if surely:
            again = cls.of(replace(reference, text=name), part, respelled=True)
            written = MARKUP.sub("", part).replace(name, reference.text)
            is_held = re.search(whole_words(again.wanted), again.statement)
            return again if is_held else cls.of(reference, written, respelled=True)
        occurrences = [each for each in matches if not is_denied(statement, *each.span())]
        return cls(reference, part, wanted, statement, occurrences, name)

    def is_spaceless(self) -> bool:
        return bool(not self.occurrences and self.wanted in self.statement and re.search(f"[{answers.UNSPACED}]", self.wanted))

    def is_stated_spaceless(self) -> bool:
        if not self.is_spaceless():
            return False
        wanted = re.escape(self.wanted)
        begins = rf"{wanted}(?:是|は|이|가|은|는|为)(?!\s?(?:错|錯|不|間違|아[니닙닌]))"
        ends = rf"(?<!不)(?<!不是)(?:[是为為は:은는、\s「\"]|^)\s*{wanted}(?:です|だ|입니다|이다|[。,\s」\"]|$)"
        place = rf"[^,。;]*(?<!不)(?:在|[位设設]于|は|는|은) ?{wanted}(?:にあり?[るま]す?|에 있습니다)?\W*$"
        return bool(re.match(rf"{begins}|{place}", self.statement) or re.search(ends, self.statement))

    def is_end_of_range(self) -> bool:
        end = re.escape(plain(self.reference.text))
        return not self.occurrences and re.search(rf"\bfrom [^ ]+ to {end}(?!\w)", plain(self.text)) is not None

    @cached_property
    def alternatives(self) -> list[str]:
        """What parts each place from an alternative; empty where it has none, as where it is explained or a version."""
        versions = re.compile(r"(?<=[a-z]/)\d")  # nginx/1.24
        are_versions = (versions.match(self.statement, each.start()) is not None for each in self.occurrences)
        names = (rules.ALTERNATIVES.of(self.statement, *each.span()) for each in self.occurrences)
        return ["" if at else by.replace("explained", "") for at, by in zip(are_versions, names, strict=True)]

    def may_have_other_name(self) -> bool:
        """Return whether not all places have an alternative, or one may be another name: ``it is called X or Y``."""
        if not any(self.alternatives):
            return False
        first = self.alternatives.index(next(filter(None, self.alternatives)))
        (begins, ends), (others, _) = (self.occurrences[at].span() for at in (0, first))
        settled = first > 0 and ". " in self.statement[ends:others] and ". " not in self.statement[:begins]
        named = any(_CALLED.search(self.statement[: each.start()]) for each in self.occurrences)
        return not settled and (named or not all(self.alternatives) or "renamed" in self.alternatives)

    def is_with_another(self) -> bool:
        wanted = re.escape(self.wanted)
        is_label = re.fullmatch("[a-z_]+", self.reference.text)
        also = rf"|\b(?:is|are) (?:{wanted}, [a-z_]+|[a-z_]+, {wanted})$" if is_label else ""
        return re.search(rf"\bboth (?:{wanted},|[^,.;]+(?:[.@/][^,.; ]+)*, {wanted}){also}", self.statement) is not None

    def is_emphasised(self) -> bool:
        spans = [each for each in BOLD.finditer(self.text) if each[1][-1] != ":"]
        with suppress(RewardError):
            equal = spans and all(self.reference.equals(each[1]) for each in spans)
            return bool(equal) and not any(map(self._is_set_aside, spans))
        return False

    def _is_set_aside(self, span: re.Match[str]) -> bool:
        before = self.text[: span.start()]
        return bool(_SETS_ASIDE.search(before) or (before.strip() and _SUBJECT.match(self.text, span.end())))

    def has_other_in_bold(self) -> bool:
        """Return whether the one thing in bold is another answer: ``It is **Paris** (not far from Lyon)``."""
        spans = [each for each in BOLD.finditer(self.text) if ":" not in each[1][-1] + self.text[each.end() :][:1]]
        bold = spans[0][1] if len(spans) == 1 and not self._is_set_aside(spans[0]) else ""
        own = re.search(whole_words(self.wanted), comparable(bold)) or self.reference.is_asked(bold)
        return bool(bold) and len(bold.split()) <= MOST_BARE and not own and _shape(bold) == _shape(self.reference.text)

    def begins_otherwise(self) -> bool:
        """Return whether the first words, before the text, are an answer: ``Rome. Paris is larger``."""
        masked = _SHORTENED.sub(r"\1", MARKUP.sub("", self.text)).replace(self.reference.text, _MASK)
        begins = _BEGINNING.search(masked)
        head = comparable(masked if begins is None or begins[0][0] == "?" else masked[: begins.start()])
        without = head not in ("", self.statement, comparable(masked)) and _MASK not in head
        without = without and not re.search(whole_words(self.wanted), head) and not self.reference.is_asked(head)
        return without and len(head.split()) <= 3 and not VERB.search(head) and not _NO_ENTRY.match(head)

    def is_aside(self) -> bool:
        main_clause = base.BECAUSE.split(self.statement)[0]
        rest = (main_clause if self.wanted in main_clause else self.statement).replace(self.wanted, "")
        beside = (rules.is_aside(self.statement, *each.span()) for each in self.occurrences)
        return bool(REFUSAL.search(rest) or rules.ABOUT.search(rest) or any(beside))

    def is_told_otherwise(self) -> bool:
        """Return whether the last clause states what an earlier one, with the text, does not: ``X is old; it is Y``."""
        wanted = self.wanted
        *before, last = map(comparable, re.split(r"[;:]\s+|,\s+(?:so|hence|thus)\b", self.text))
        clause = next((each for each in before if re.search(whole_words(wanted), each)), "")
        first, _, then = comparable(self.text).partition(". ")
        supposed = first.startswith("if ") and wanted in first and then and wanted not in then
        clause = first if supposed and not clause else clause
        second = _ELSEWHERE.search(self.text)
        if second and plain(second[2]) == wanted and plain(second[3]) not in (wanted, *spelling.NAMES_OF_DAYS):
            return True
        return bool(clause) and not base.states_text(wanted, clause) and (supposed or not re.search(whole_words(wanted), last))

    def is_outdone(self) -> bool:
        """Return whether a clause without the text states what looks like it, and says as much of what is asked for."""
        question_stems = stems(last_question(self.reference.prompt).partition("?")[0])
        clauses = [each for each in _CLAUSES.split(MARKUP.sub("", self.text)) if each]
        forms = [*map(comparable, clauses)]
        held = [at for at, each in enumerate(forms) if re.search(whole_words(self.wanted), each)]
        if not held or any(self.reference.is_alone(forms[at]) for at in held):
            return False
        about = [stems(each) & question_stems for each in clauses]
        like = [at not in held and self.reference.has_like(each) for at, each in enumerate(clauses)]
        support = max(len(about[at]) + base.states_text(self.wanted, forms[at]) for at in held)
        return any(
            is_like and (_SETTLES.match(clauses[at]) or (len(about[at]) >= max(support, 1) and (at > held[-1] or not support)))
            for at, is_like in enumerate(like)
        )

    def has_others_like(self) -> bool:
        """Return whether another code has the same shape: ``831 BGB`` for ``823 BGB``, ``O(n)`` for ``O(1)``."""
        wanted, statement = self.wanted, self.statement
        is_call = re.fullmatch(r"\w\([^()]*", wanted)
        numbered = re.sub(r"(?<= )[a-z]$", "[a-z]", re.sub(r"\d+", r"\\d+", re.escape(wanted).replace(r"\ ", " ")))
        address = next((each for each in _ADDRESSES if each.fullmatch(wanted.rpartition(" ")[2])), None)
        shape = rf"{wanted[0]}\([^()]*" if is_call else address.pattern if address else numbered
        concluded = answers.conclusion_of(statement)
        scope = concluded if wanted in concluded else statement
        head, *more = ELABORATION.split(scope)[0].split(". ")
        settled = address and (base.states_text(wanted, head) if more else head.endswith(wanted))
        similar = re.finditer(rf"(?<![\w.-]){shape}(?![\w-])", scope) if not wanted.isdecimal() and not settled else ()
        similar = (each for each in similar if not wanted.endswith(each[0]) and not is_denied(scope, *each.span()))
        return any(address is None or each.start() > scope.rfind(wanted) for each in similar)

    def is_longer_list(self) -> bool:
        return ", " in self.wanted and all(re.match(r", \w", self.statement[each.end() :]) for each in self.occurrences)

    def is_common(self) -> bool:
        return bool(_COMMON.fullmatch(self.wanted) or re.search(rf"\bno {re.escape(self.wanted)}", self.statement))

    def is_part_of_code(self) -> bool:
        """Return whether a command is a part of a longer one, such as ``sudo ls -l / && rm -rf /``."""
        around = [(self.statement[: each.start()], self.statement[each.end() :]) for each in self.occurrences]
        if not re.search(rf"{spelling.CODE}|[\\/|$=;{{}}<>]|\s-+\w", self.wanted) and not re.match(r" --?[a-z]", around[0][1]):
            return False
        return all(
            re.match(r"\s*(?:&&|\|\|?|;|>|<)|\s+--?\w|[\"')\]]*(?:\.\w|[(\[][\w)]|, [\w.]+[(=])|[\"'\]]*\)\)", after)
            or re.search(r"(?:&&|\||;|sudo)\s*$|\w\($|\), $", before)
            for before, after in around
        )

    def is_literal(self) -> bool:
        is_code = re.search(rf"{spelling.CODE}(?! \w)", self.statement)
        return bool(is_code or ADDRESS.search(self.reference.text)) or f"`{self.reference.text}`" in self.text

    def is_of_it(self) -> bool:
        """Return whether a text says what something else is of: ``the capital of France``, with or without what it is."""
        around = [(self.statement[: each.start()], self.statement[each.end() :]) for each in self.occurrences]
        phrase = not VERB.search(self.statement)
        return all(
            not _KIND_OF.search(before)
            and _OF.search(before)
            and (re.match(r"\s+(?:is|are|was|were)\b", behind) or (phrase and len(f"{before}{behind}".split()) <= 7))
            for before, behind in around
        )

    def is_longer_name(self) -> bool:
        """Return whether every occurrence of a name is a part of a longer one, or the first of a list."""
        name = _ARTICLE.sub("", self.reference.text)
        around = DETERMINER.sub("", self.statement, count=1).replace(self.wanted, "")
        if not _is_capital(name) or self.reference.is_asked(around):
            return False
        matches = [*re.finditer(r"\s+".join(map(re.escape, name.split())), self.text, re.IGNORECASE)]
        region = re.compile("(?!)") if _REGION.fullmatch(name) else _REGION
        others = [
            (not region.match(self.text, each.end()) and _NAME_BEHIND.match(self.text, each.end()))
            or (name[:1].isupper() and _NAME_BEFORE.search(self.text[: each.start()]))
            for each in matches
        ]
        return bool(others) and all(each and not self.reference.is_asked(each[0].replace(" and ", " ")) for each in others)

    def may_be_other_name(self) -> bool:
        """Return whether there is, in its place, what may be the same and is not surely: ``Antonio Lucio Vivaldi``."""
        name = comparable(self.other_name)
        start = self.statement.find(name)
        return bool(name) and not (start >= 0 and is_denied(self.statement, start, start + len(name)))

    def is_longer_term(self) -> bool:
        """Return whether a few words without a verb are the term and others next to it: ``cell wall`` for ``cell``."""
        term = _ARTICLE.sub("", self.reference.text)
        is_name = _is_capital(term) and not re.fullmatch(rf"\W*{re.escape(term)} [a-z]{{5,}}(?<!ed)(?<!s)\W*", self.text)
        if is_name or not re.search(r"[^\W\d_]{2}", term):  # a word next to a code is no part of it: version 3.10
            return False
        masked = re.sub(re.escape(term), _MASK, re.split("[:?] ", self.text)[-1], flags=re.IGNORECASE)
        masked = masked.partition(" (")[0] if ", " in term else ELABORATION.split(masked)[0]
        head = DETERMINER.sub("", whole := plain(masked), count=1)
        if (len(term.split()) > 2 and whole.endswith(_MASK)) or re.search(r"\b(?:we|i|this|that|it|they)\b", whole):
            return False  # a sentence
        rest = [each for each in head.replace(_MASK, " ").split() if each.isalnum() and each[-2:] != "ly"]
        if self.reference.is_asked(" ".join(rest)):
            return False
        is_phrase = len(head.split()) <= 3 and not VERB.search(head) and not _BETWEEN.search(" ".join(rest))
        return bool(rest) and is_phrase and term.isascii() and _MASK in head


@dataclass(frozen=True)
class _Said(ReadAnswer["TextReference"]):
    stated: Stated

    @cached_property
    def is_stated(self) -> bool:
        return self.reference.states(self.stated)

    @cached_property
    def calls(self) -> spelling.CallsBeside:
        """What the calls that the answer makes are beside those of the reference."""
        return spelling.calls_beside(self.reference.text, self.stated)

    def has_arguments(self) -> bool:
        wanted, answer = self.reference.text, self.stated.whole
        call = re.escape(wanted[:-1]) + r"\s*[^\s)]"
        return wanted.endswith("()") and wanted not in answer and re.search(call, answer) is not None

    def has_other_literal(self) -> bool:  # of code, where every sign counts
        literal, wanted = (_LITERAL.fullmatch(each.strip(" `*")) for each in (self.stated.text, self.reference.text))
        return bool(literal and wanted and literal["inside"] != wanted["inside"])

    def is_same_outcome(self) -> bool:
        return rules.is_same_outcome(plain(self.reference.text), plain(self.stated.text))

    def says_absent(self) -> bool | None:
        return rules.says_absent(plain(self.reference.text), plain(self.stated.text))

    def may_be_other_word(self) -> bool:
        """Return whether a short word with capitals, which another is without, is not there as it is written."""
        answer = self.stated.text if self.stated.is_marked else self.stated.whole
        word, answer = self.reference.text.strip(), MARKUP.sub("", answer).replace(".", "")
        capital = word if re.search(r"\bsymbol\b", self.reference.prompt) else word.upper()  # Co and CO
        written = re.search(rf"(?<!\w)(?:{re.escape(word)}|{re.escape(capital)})(?!\w)", answer)
        other = re.fullmatch(rf"[^\W\d_]{{2}}|[^\W\d_a-z]{{3}}|(?i:{any_of('other words')})", word)
        short = other and word != word.lower() and not spelling.is_acronym(word, answer)
        return bool(short and not written and answer != answer.lower() and self.is_stated)

    def states(self, text: str) -> bool:
        """Return whether another text, in the place of the reference, is stated. Raises as ``compare`` does."""
        return text.strip() != "" and replace(self.reference, text=text).states(self.stated)

    def names_all(self) -> bool:
        several = [comparable(each) for each in answers.several_in(self.reference.text)]
        named = _LISTS.sub("", comparable(self.stated.text)).split(", ")
        return bool(several) and sorted(several) == sorted(named)

    def is_one_of_several(self) -> bool:
        return any(map(self.states, answers.several_in(self.reference.text)))

    def has_short_name(self) -> bool:
        bare, remark = spelling.without_remark(self.reference.text)
        return spelling.is_short_name(remark, bare) and self.states(remark)

    def lacks_remark(self, *, may_matter: bool = False) -> bool:
        """Return whether only a remark in brackets is missing, neither another one there nor what is left in the question."""
        bare, remark = spelling.without_remark(self.reference.text)
        other = f"{bare} (" in self.stated.whole or self.reference.is_asked(bare)
        matters = spelling.tells_apart(remark, bare) or _REGION.fullmatch(remark) is not None
        return remark != "" and not other and matters is may_matter and self.states(bare)

    def may_lack_remark(self) -> bool:
        _, remark = spelling.without_remark(self.reference.text)
        alone = remark != "" and replace(self.reference, text=remark).equals(self.stated.text)
        return alone or self.lacks_remark(may_matter=True)

    def is_part_of_name(self) -> bool:
        answer, words = plain(self.stated.text), self.reference.text.split()
        is_name = re.fullmatch(r"(?=.{4})[^\W\d_]{2,}(?: [^\W\d_]+)*", answer) and words[0][0].isupper()
        last = words[-1][0].isupper() and without_accents(plain(self.reference.text)).endswith(f" {without_accents(answer)}")
        of_house = len(words) > 1 and words[1].islower()  # Leonardo da Vinci
        first = plain(words[0]) == answer and (of_house or (len(words) == 2 and len(plain(words[1])) < len("Ltd") + 2))
        city, comma, _ = self.reference.text.partition(", ")
        is_city = comma and plain(city) == answer  # of a city and its country the city
        return bool(is_name and (last or first or is_city))

    def may_be_number(self) -> bool:
        ours, theirs = only_number(self.stated.text), only_number(self.reference.text)
        named = plain(self.stated.text)[:1].isdigit() and _NAMED_NUMBER.fullmatch(self.reference.text)
        both = ours is not None and theirs is not None and ours.value == theirs.value
        return both and bool(named or (theirs is not None and theirs.abbreviated))


@dataclass(frozen=True, slots=True)
class TextReference(Reference):
    """Text: a name, a code, a phrase. Right when the answer is it, or a sentence that holds it and no alternative.

    It has two readings where it may be a part of a longer name or of a list.
    """

    rules: ClassVar[tuple[Rule[_Said], ...]] = (
        Rule("right", "makes the same calls", "[f(a=1, b=2)]", "[\nf(b=2.0, a=1)\n]", lambda it: it.calls == "same"),
        Rule("unclear", "makes other calls, too", "f(a=1)", "f(a=1)\ng(b=2)", lambda it: it.calls == "more"),
        Rule("wrong", "makes other calls", "[f(a=1)]", "[f(a=1), g(b=2)]", lambda it: it.calls == "others"),
        Rule("wrong", "adds arguments to the call", "f()", "f(a=1)", _Said.has_arguments),
        Rule("wrong", "is another literal", "'a b'", "'A b'", _Said.has_other_literal),
        Rule("right", "says that there is no value, too", "does not exist", "undefined", _Said.is_same_outcome),
        Rule("right", "says too that there is none", "none", "N/A", lambda it: it.says_absent()),
        Rule("unclear", "may mean another word, by its letter case", "May", "It may be June.", _Said.may_be_other_word),
        Rule("right", "is or states the text", "Paris", "It is **Paris**.", lambda it: it.is_stated),
        Rule("unclear", "may say that there is none", "none", "No name is given.", lambda it: it.says_absent() is None),
        Rule("right", "names all of several", "red | blue", "red and blue", _Said.names_all),
        Rule("right", "lacks a remark", "War of the Roses (1455-1487)", "War of the Roses", _Said.lacks_remark),
        Rule("right", "has its short name", "sodium chloride (NaCl)", "NaCl", _Said.has_short_name),
        Rule("unclear", "lacks a remark that may matter", "approve (with changes)", "approve", _Said.may_lack_remark),
        Rule("unclear", "may be one of several accepted answers", "red | blue", "red", _Said.is_one_of_several),
        Rule("unclear", "is a part of the name", "Marie Curie", "Curie", _Said.is_part_of_name),
        Rule("unclear", "may be the number of the reference", "5k", "5000", _Said.may_be_number),
        Rule("wrong", "is another text", "Paris", "Rome", lambda _: True),
    )
    spellings: ClassVar[tuple[Rule[_Spelled], ...]] = (
        Rule("right", "is the text but for an article", "the Nile", "Nile", _Spelled.is_same),
        Rule("right", "has all that is asked for", "red, blue", "blue, red", _Spelled.has_all_asked, "List all colours."),
        Rule("unclear", "has the parts in another order", "red, blue", "blue, red", _Spelled.has_other_order),
        Rule("right", "is the same code", "030 1234567", "030-1234567", lambda it: code(it.form) == code(it.wanted) != ""),
        Rule("unclear", "may have the code of a country", "+49 30 1234567", "030 1234567", _Spelled.may_lack_country),
        Rule("right", "is written alike", "Müller", "Mueller", lambda it: any(map(it.both, spelling.ALIKE))),
        Rule("right", "has a hyphen, or none", "email", "e-mail", _Spelled.is_joined),
        Rule("right", "is the number in the base asked for", "ff", "0xff", _Spelled.is_in_base, "What is 255 in base 16?"),
        Rule("right", "is its acronym", "World Health Organization", "WHO", lambda it: it.is_acronym),
        Rule("unclear", "may be its acronym", "EU", "European Union", lambda it: it.is_acronym is None),
        Rule("right", "is short for it", "Mount Everest", "Mt. Everest", lambda it: spelling.is_short_for(it.form, it.wanted)),
        Rule("right", "is the same address", "http://abc.org/x", "abc.org/x/", _Spelled.is_same_address),
        Rule("right", "is the text without its preposition", "in the cell", "the cell", _Spelled.lacks_preposition),
        Rule("right", "is the range without its unit", "2-5 hours", "2-5", _Spelled.lacks_unit),
        Rule("right", "has a word of the question, too", "Po", "the River Po", _Spelled.has_word_asked, "Which river is it?"),
        Rule("right", "is the same company", "Apple", "Apple Inc.", lambda it: spelling.is_same_company(it.form, it.wanted)),
        Rule("unclear", "may be another person", "John F. Kennedy", "John Kennedy", _Spelled.may_be_another_person),
        Rule("right", "has a title, or is turned", "John Watson", "Watson, John", lambda it: it.both(spelling.turned_name)),
        Rule("unclear", "lacks accents, and may be another word", "résumé", "resume", _Spelled.may_be_another_word),
        Rule("right", "lacks or has accents", "São Paulo", "Sao Paulo", _Spelled.is_same_unaccented),
    )
    mentions: ClassVar[tuple[Rule[_Mention], ...]] = (
        Rule("right", "states it in a script without spaces", "東京", "答えは東京です", _Mention.is_stated_spaceless),
        Rule("unclear", "holds it, in a script without spaces", "東京", "東京都庁", _Mention.is_spaceless),
        Rule("unclear", "may be the end of a range or a change", "5", "from 2 to 5", _Mention.is_end_of_range),
        Rule("unclear", "may be another name", "Tom Ford", "It is Tom Carl Ford.", _Mention.may_be_other_name),
        Rule("wrong", "denies it, or does not have it", "Paris", "It is not Paris.", lambda it: not it.occurrences),
        Rule("unclear", "has two names of it", "jaw", "It is the jaw, or the mandible.", _Mention.may_have_other_name),
        Rule("wrong", "has an alternative", "Paris", "It is Paris or Rome.", lambda it: all(it.alternatives)),
        Rule("unclear", "states another, too", "Paris", "It is both Paris and Rome.", _Mention.is_with_another),
        Rule("right", "has nothing else in bold", "positive", "It is **positive**. I like it.", _Mention.is_emphasised),
        Rule("unclear", "has another in bold", "Lyon", "It is **Paris** (founded in Lyon).", _Mention.has_other_in_bold),
        Rule("unclear", "begins otherwise", "Paris", "Rome, because Paris is larger.", _Mention.begins_otherwise),
        Rule("unclear", "may state another answer", "Paris", "It is larger than Paris.", _Mention.is_aside),
        Rule("unclear", "concludes otherwise", "Paris", "Paris is old; it is Rome.", _Mention.is_told_otherwise),
        Rule("unclear", "states another answer", "Ann", "Ben signed it. Ann was there.", _Mention.is_outdone, "Who signed it?"),
        Rule("unclear", "has another code like it", "823 BGB", "It is 831 BGB and 823 BGB.", _Mention.has_others_like),
        Rule("unclear", "may state a longer list", "red, blue", "They are red, blue, green.", _Mention.is_longer_list),
        Rule("unclear", "may mean something else by a common word", "it", "It is there.", _Mention.is_common),
        Rule("unclear", "may be a longer command", "ls -l /", "sudo ls -l / && rm x", _Mention.is_part_of_code),
        Rule("right", "has the address or the quoted text", "a@b.org", "Write to a@b.org today.", _Mention.is_literal),
        Rule("unclear", "may state something of it", "France", "the capital of France", _Mention.is_of_it),
        Rule("unclear", "may state a longer name or a list", "Paris", "It is Paris Hilton.", _Mention.is_longer_name),
        Rule("unclear", "may state a longer term", "cell", "cell wall", _Mention.is_longer_term),
        Rule("right", "is a sentence with it", "Paris", "I would say that it is Paris.", lambda _: True),
    )

    def compare(self, output: str) -> Compared:
        """Compare an output; code, where it is as it is written, as a word. Raises ``RewardError`` for two readings."""
        code = () if spelling.makes_calls(self.text) else spelling.written_code(self.text)
        if not code:
            return Reference.compare(self, output)
        masked, prompt = (spelling.with_code_as_word(each, code) for each in (output, self.prompt))
        if masked == output and spelling.lacks_signs(self.text, output) and Reference.compare(self, output).right:
            raise RewardError(f"{shown(output)} lacks signs of it, or has other spaces")
        if masked == output:
            return Compared(False, shown(output))
        try:
            compared = Reference.compare(replace(self, text=spelling.CODE, prompt=prompt), masked)
        except RewardError as error:
            raise RewardError(str(error).replace(spelling.CODE, self.text)) from None
        return compared._replace(answered=compared.answered.replace(spelling.CODE, self.text))

    def _compare(self, stated: Stated) -> Compared:
        return verdict_by(self.rules, _Said(self, stated.text, stated))

    def states(self, stated: Stated) -> bool:
        """Return whether a part of an output is the text, or a sentence with it. Raises as ``compare`` does."""
        link = r"\2" if ADDRESS.search(self.text) else r"\1"
        only = (_FENCED.findall(stated.whole) or [stated.whole])[-1]
        if self.text.endswith("?") and plain(self.text) in map(plain, re.split(r"\n+|(?<=:)\s", MARKUP.sub("", only))):
            return True  # a question that was asked for, such as a translation
        entries = answers.without_envelope(written_value(stated.text if stated.is_marked else only))
        if isinstance(entries, dict):
            first, *more = entries.values() or ("",)
            if isinstance(first, str) and not more and (alone := answers.stated_answer(first)) is not None:
                return self.states(alone)
            entered = [*map(str, (first, *more))]
            others = [each for each in entered if not self.equals(each)]
            return len(others) < len(entered) and self._is_only_one(others, stated)
        below = stated.whole[stated.whole.rfind(stated.text) if stated.is_marked else 0 :] if {*"\n,"} & {*self.text} else ""
        whole = (below.partition("\n\n")[0], stated.whole, only, only.replace("\n", "; "))
        forms = (comparable(each) for each in whole if len(each) < 20 * len(self.text))
        if comparable(self.text).replace(",", "") in (each.replace(",", "") for each in forms):
            return True
        last, *first = (_FOOTNOTE.sub("", _LINK.sub(link, part)) for part in parts_of(stated))
        for part in (last, *first):
            self._refuse_list(part)
        rows = re.split(r"\n[ \t]*\|[-:| \t]+\n", stated.whole[-base.LONGEST_PART :])[-1].split("\n")  # below their head
        fields = [_FIELD.fullmatch(each) for each in rows if each.strip()]
        values = [each[1] for each in fields if each] if not stated.is_marked and all(fields) else []
        held = self.equals(last) or (rows[0].startswith("|") and any(map(self.equals, values)))
        held = held or (self._is_in_lines(first[0], last, stated) if first else self.is_in(last))
        return held and self._is_only_one(values, stated)

    def _is_only_one(self, values: Sequence[str], stated: Stated) -> bool:
        """Return whether no other of several values may be the answer. Raise ``RewardError`` otherwise."""
        others = [each for each in values if 0 < len(each.split()) <= MOST_BARE and not self.is_in(each)]
        if _shape(self.text) in map(_shape, others):
            raise RewardError(f"{shown(stated.whole)} has several values, one of which is {self.shown}")
        return True

    def _is_in_lines(self, first: str, last: str, stated: Stated) -> bool:
        """Return whether the first or the last of several lines states the text. Raises as ``compare`` does."""
        if self.equals(first):
            is_sentence = last.endswith(".") and len(last.split()) > MOST_BARE // 2
            if is_bare(last) and not is_sentence and ":" not in last and not self.is_in(last):
                raise RewardError(f"the first line, {shown(first)}, and the last, {shown(last)}, may be two answers")
            return True
        if not (held := self.is_in(last)) and (held := self.is_in(first)):
            both = _Mention.of(self, f"{first}\n{last}")
            if both.is_outdone() or (both.is_spaceless() and not both.is_stated_spaceless()):
                raise RewardError(f"{shown(last)} may be the answer, and {self.shown} is mentioned above it")
        apart = stated.whole[len(first) :].lstrip(" ").startswith("\n\n") and is_bare(first)
        if held and apart and not self.is_in(first):
            raise RewardError(f"{shown(first)} comes first, and {self.shown} is mentioned below it")
        return held

    def equals(self, part: str) -> bool:
        """Return whether a part is the text, but for an article before and an explanation behind it."""
        wanted = one_spelling(self.text)
        part = answers.in_words(part)
        part = _REMARK.sub("", part) if ", " in self.text and ", " in part and "(" not in self.text else part
        if ", " in self.text and answers.ORDER_ASKED.search(self.prompt) and not re.search("[<>→]", self.text):  # a ranking
            ranks = re.split(r" ?(?:<|>|→|->) ?", re.sub(r"^[^<>→:]*: ", "", part))
            part = ", ".join(ranks[::-1] if "<" in part else ranks) if len(ranks) > 2 else part
        bare = base.OPTION_MARK.sub("", part, count=1) if base.OPTION_MARK.match(part) else part
        head = ELABORATION.split(bare)[0]
        whole = (", " in self.text or spelling.makes_calls(self.text)) and bare.startswith(",", len(head))  # of a list no part
        full, short = spelling.without_remark(part)
        short = short if spelling.is_acronym(short, full) else bare  # Chief Financial Officer (CFO)
        forms = dict.fromkeys(map(one_spelling, (bare, bare if whole else head, short)))
        return any(first_of(self.spellings, _Spelled(self, part, form, wanted)) for form in forms)

    def is_in(self, part: str) -> bool:
        """Return whether a part is a sentence with the text, neither denied nor next to another. Raises as ``compare`` does."""
        return verdict_by(self.mentions, _Mention.of(self, part)).right

    def written_in(self, part: str) -> tuple[str, bool]:
        """Return another spelling of the text that a sentence has, and whether it surely is one; empty for none."""
        bare, entries = MARKUP.sub("", part), comparable(self.text).count(", ")
        endings = [_STATED_LAST.match(each.rstrip(TRIMMED + "!")) for each in _CLAUSES.split(bare)]
        ends = {each["name"] for each in endings if each and len(each["name"].split()) < len(self.text.split()) + MOST_BARE}
        ends = {each for each in ends if not entries or comparable(each).count(", ") <= entries}
        lists = entries and ("," not in self.text or self.text.islower())  # but no company, no address
        alike = dict.fromkeys((*(() if lists else spelling.written_alike(self.text, bare)), *ends))
        asks, unsure = one_spelling(last_question(self.prompt)) if alike else "", ""
        for each in alike:
            if plain(each) == plain(self.text) or (" or " not in asks and re.search(whole_words(one_spelling(each)), asks)):
                continue  # a part of something else, or what the question says
            try:
                if self.equals(each):
                    return each, True
                if each in ends and _Said(self, each, Stated(each, "sentence", each)).is_part_of_name():
                    unsure = unsure or each
            except RewardError:
                unsure = unsure or each
        return unsure, False

    def is_asked(self, text: str) -> bool:
        """Return whether the question has every word of a text, in some form, and the reference is none of its choices."""
        words = stems(text)
        return bool(words) and words <= stems(self.prompt) and not re.search(whole_words(plain(self.text)), plain(self.prompt))

    def has_like(self, clause: str) -> bool:
        """Return whether a clause states, at its end or as its subject, what looks like the text: a name, a code, a word."""
        matches = (pattern.match(clause.rstrip(TRIMMED + "!")) for pattern in (_STATED_LAST, _STATED_FIRST))
        names = [each["name"] for each in matches if each and " also " not in clause and len(each["name"].split()) < MOST_BARE]
        like = (_shape(each) == _shape(self.text) and not self.is_asked(each) for each in names)
        short = len(DETERMINER.sub("", comparable(clause), count=1).split()) <= len(self.text.split()) + 1
        return short or any(like)

    def _refuse_list(self, part: str) -> None:
        """Raise ``RewardError`` where the text is one of several short ones with nothing else: ``red, blue and green``."""
        parts, wanted = [each.rstrip("!") for each in comparable(answers.in_words(part)).split(", ")], comparable(self.text)
        if len(parts) > 1 and wanted in parts and all(len(each.split()) < MOST_BARE for each in parts):
            others = [each for each in parts if each != wanted]
            is_sentence = any(VERB.search(each) or _NO_ENTRY.match(each) for each in others)
            in_region = not _REGION.fullmatch(wanted) and all(map(_REGION.fullmatch, others))
            if not is_sentence and not in_region and not all(map(self.is_asked, others)):
                raise RewardError(f"{shown(part)} has several, of which {self.shown} is one")


def _is_capital(name: str) -> bool:
    return any(map(str.isupper, name.split(" ", 1)[0]))


def _shape(text: str) -> tuple[bool, bool, bool]:
    """Return what tells names, codes and words apart."""
    return text[:1].isupper(), text[:1].isdigit(), re.search(r"\w[.@]\w", text) is not None


_FIELD: Final = re.compile(r"\W*[A-Za-z][\w ]{0,30}\W*[:|]\s+(\S+(?: [^\s|]+){0,4})(?: \|)?")
_NAMED_NUMBER: Final = re.compile(r"[^\d:,\n]+[:,] \W?\d[^:\n]*")  # Berlin: 3.6 million
_FENCED: Final = re.compile(r"(?ms)^```[\w+-]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$")
# A text in single quotes, of which the last one is no possessive: ``'Friends'``.
_IN_QUOTES: Final = re.compile(r"(?<!\w)'(\w(?:[^'\n]|(?<=\w)'(?=\w))*)'(?!\w)")
# A question for several things in no order: ``Between which two countries``.
_TWO_ASKED: Final = re.compile(r"(?i)\bbetween (?:which|what)\b|\b(?:which|what) (?:two|three|four|five) \w+s\b")
_OWNER_ASKED: Final = re.compile(r"(?i)^(?:\w+ )?whose\b|\b(?:which|what)(?: [\w-]+){1,3}(?:'s|s') ")  # Whose house
_ARTICLE: Final = re.compile(r"(?i)^(?:the|an?) (?=\w{2})")
_ARTICLE_ABROAD: Final = re.compile(r"(?:d(?:er|ie|as) |l')(?=\w{3})")
# With the one above: articles, some within prepositions, of one name: ``Der Rhein``, ``am Rhein``.
_INFLECTED: Final = r"\b(?:d(?:e[rmns]|ie|as)|am|im|en|beim|zu[mr]) "
_FOOTNOTE: Final = re.compile(r"(?<=[^\W\d_]{3})(?:\[\d\d?\]|[\u00b9\u00b2\u00b3\u2074-\u2079]+)(?!\w)")
_LINK: Final = re.compile(r"\[([^\[\]\n]+)\]\((?:mailto:)?([^()\s]+)\)")
# A second place, stated in the same way: ``The head office is in Lyon, the plant in Marseille``.
_ELSEWHERE: Final = re.compile(r"\b([Ii]n|[Aa]t) ([A-Z][^.,;]{1,60})(?:[.;] [^.;]*|, the [^.;,]*)\b\1 ([A-Z]\w+)")
_REMARK: Final = re.compile(r" \((?!wrong|not\b|no\b|incorrect)[^()]*\)(?=, |$)")
_LITERAL: Final = re.compile(r"(?s)(?P<sign>['\"])(?P<inside>.*)(?P=sign)")
_MASK: Final = "\ue000"
_SHORTENED: Final = re.compile(r"\b(Mrs|Prof|Rev|Gen|Col|Sgt|Inc|Ltd|Vol)\.")  # whose dot ends no sentence
_BEGINNING: Final = re.compile(r"(?<=\w{3})[.!?]\s+(?=[A-Z\ue000])|" + ELABORATION.pattern)
# The beginning of a part of a sentence that is no entry of a list.
_NO_ENTRY: Final = re.compile(rf"(?i)(?!no one\b)(?:{any_of('openings')}|{any_of('not')}|{any_of('within sentences')})\b|$")
_COMMON: Final = re.compile("its?|he|she|hers?|his|him|they|them|we|us|you|i|this|that|there|here|up|no|yes|not|so")
_NAME_BEHIND: Final = re.compile(
    r"[ ](?:[A-Z]\w+|[IVX]+\b|\d+\W*$)|(?:,[ ]|[ ]and[ ])[A-Z]\w+"
    r"|,[ ]and[ ][A-Z]\w+\b(?:[ ][A-Z]\w+\b)*(?![ ](?:[A-Z]|is\b|was\b|has\b|\w+ed\b))"
)
_REGION: Final = re.compile(rf"(?i)(?:, )?(?:{any_of('regions')})(?!\w|,? (?:and|or) )")  # Cincinnati, Ohio
_NAME_BEFORE: Final = re.compile(
    r"(?:^|(?<=[a-z,:*] )|\*\*)"
    r"(?!(?:The|A|An|In|It|At|So|Is|By|On|To|Of|For|Option|Answer|Maybe|Perhaps|\w+ly|"
    rf"(?i:{spelling.TITLES}))\b)[A-Z][a-z]+[ ]$"
)
_ADDRESSES: Final = (re.compile(r"[\w.+-]+@[\w-]+(?:\.\w[\w-]*)+"), re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]\w+"))
_SETS_ASIDE: Final = re.compile(
    r"(?i)\b(?:from|unlike|than|near|like|replac\w+|except|without|no|not|never|nor|n't)\s+(?:an? |the )?\W{0,2}$"
)
# Around what is in bold and not what a sentence states: ``unlike **Paris**``, ``the letter to **Ann** was``.
_SUBJECT: Final = re.compile(r"\W*(?:was|is|were|are|had)\b")
_OF: Final = re.compile(r"(?<!out )(?<!due )\b(?:of|to|de|von) (?:the |an? )?$")
# A word for the kind of what follows: the city of Chicago is Chicago.
_KIND_OF: Final = re.compile(rf"\b(?:{any_of('kinds')}) of $")
_BETWEEN: Final = re.compile(r"\b(?:an?|the|or|and|in|of|for|to|with|at|by|answer|result|final|so|thus|option)\b")
# Before two names of one thing: ``it is called X or Y``.
_CALLED: Final = re.compile(r"\b(?:called|known as|named|termed|mean(?:s|ing)?|referred to as)\b[^.;:]{0,60}$")
# What announces a list: ``The colours are red, blue``.
_LISTS: Final = re.compile(r"^[\w ]{1,40} (?:are|includes?)(?:: ?| )")
# The beginning of a sentence that states the answer: ``Hence Paris``, ``The right one is``.
_SETTLES: Final = re.compile(
    r"(?i)\W*(?:(?:so|thus|therefore|hence|overall|finally|in fact)\b|[^.;]{0,30}\bthe (?:right|correct|name)[ ,]+\w)"
)
_STATED_LAST: Final = re.compile(
    rf"(?i).*(?:{VERB.pattern}|=|\b(?:by|in|at|hence|thus)\b|:) (?:(?:the|an?|in|at|by) )?(?P<name>\S.*)$"
)
# With the one above: what a sentence states or is about.
_STATED_FIRST: Final = re.compile(
    r"^(?:\w+, )?(?!(?:The|An?|It|This|That|He|She|They|There|We|I|You|Who|What|Where|When|Which|How)\b)"
    r"(?P<name>\S+(?: [A-Z]\S*)*) (?:is|was|are|were|\w+(?:ed|s))\b"
)
_CLAUSES: Final = re.compile(
    r"\n+|(?<=\w{3}[.!?])\s+|(?:(?<=[a-z]{2}[.!?])|(?<=\S\d[.!?]))\s+(?=[A-Z])|;\s+"
    r"|,? (?:and|but|while) (?=[^,;.]{1,40} (?:is|are|was|were|has|had|will)\b)"
    r"|(?<!ed)(?<!en)(?<!wn)(?<!made)(?<!built)(?<!sung),? (?:and|but|while) (?=\w+(?:ed|s) (?:at|by|from|in|to) )"
)
