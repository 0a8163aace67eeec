"""Compare an output with a label of a set, or with yes or no."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from tfgrpo.rewarders.text.answers import UNSPACED, VOCABULARY, Stated, conclusion_of, in_words, last_question, written_value
from tfgrpo.rewarders.text.base import LONGEST_PART, Reference, parts_of
from tfgrpo.rewarders.text.choices import SEVERAL_LETTERS, WORD, ChoiceReference, ChoicesReference, OptionReference, letter_of
from tfgrpo.rewarders.text.rules import NEGATION, RELATED, STEM, Compared, denies, is_denied, shown
from tfgrpo.rewarders.text.spelling import NAMES_OF_DAYS, is_form_of, plain, without_accents
from tfgrpo.stores.errors import RewardError


@dataclass(frozen=True, slots=True)
class LabelReference(OptionReference):
    """One of a set of labels. Right when exactly this label of the set occurs in the answer."""

    labels: tuple[str, ...]
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Plain texts that are read as a label, to the label."""

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.labels

    @property
    def is_truth(self) -> bool:
        """Whether the labels are yes and no."""
        return bool(self.synonyms)

    @property
    def wanted(self) -> str:
        """The key of the label."""
        return self._key(self.text)

    def _compare(self, stated: Stated) -> Compared:
        compared = super(LabelReference, self)._compare(stated)  # with slots the class that a bare super means is another one
        answer = self._spelled(stated.text[:LONGEST_PART], idle=False)
        has_idle = answer != self._spelled(answer) and self._readings.pattern.search(answer)
        if not (compared.right or compared.states or self.is_truth) and (has_idle or self._inflected(answer, loosely=True)):
            raise RewardError(f"{shown(answer)} may name a label in another form")  # it does not entail that
        return compared

    def _parts(self, stated: Stated) -> list[str]:
        entries = written_value(stated.text if stated.is_marked else stated.whole)
        pairs = ((key, TRUTH.get(plain(str(each)))) for key, each in entries.items()) if isinstance(entries, dict) else ()
        flags = ["not " * (each == "no") + key for key, each in pairs if each and self.named(key)]
        if flags:  # {"is_spam": false}
            return [", ".join(flags)]
        field = _FIELD_LAST.search(stated.text[-80:]) if "\n" not in stated.whole else None
        if field and self.whole(field[1]) is not None:
            return [field[1]]
        head, *remark = _EXPLAINED.split(stated.text if stated.is_marked else stated.whole[:LONGEST_PART], maxsplit=1)
        if remark and len(self.named(head)) == 1:
            return [head]
        concluded = "" if stated.is_marked else conclusion_of(plain(stated.text))
        if concluded and len(self.named(concluded)) == 1:
            return [concluded]
        parts = parts_of(stated, self.stated_in)
        is_whole = stated.is_marked or self.stated_in(parts[0]) is not None
        return parts if len(parts) == 1 and is_whole else [*parts, stated.whole[-LONGEST_PART:]]

    def named(self, part: str) -> frozenset[str]:
        """Return the labels that a part names."""
        _, keys, pattern, *_ = self._readings
        statement = self._spelled(part)
        if key := (_TRUTH_LETTERS if self.is_truth else self._readings.keys).get(statement) or keys.get(statement):
            return frozenset({key})
        pairs = re.findall(r"\*\*([^*\n]+)\*\*|__([^_\n]+)__", part)
        bold = {keys[plain(each)] for pair in pairs for each in pair if plain(each) in keys}
        opening = self._opening(statement)
        if opening is not None or len(bold) == 1:
            return frozenset(bold if opening is None else {opening})
        predicated = self._predicated(statement)
        both = re.search(r"\bboth (.+?) and ", statement)
        if both and both[1] in keys and not predicated and (other := pattern.match(statement, both.end())):
            return frozenset({keys[both[1]], keys[other[0]]})
        named, denied = self._mentioned(statement)
        if len(named) > 1:
            states = re.findall(rf"\bis ({'|'.join(map(re.escape, map(plain, self.labels)))})\b(.?)", statement)
            last = states[0][0] if len(states) == 1 and not states[0][1] else ""  # … is the last word
            ends = (frozenset(self.named(each)) for each in (conclusion_of(statement), last) if each)
            return next(filter(None, ends), predicated or named)
        others = {self._key(label) for label in self.labels} - denied
        if not named and denied and len(others) == 1:
            return frozenset(others)  # of two labels, not the one is the other
        inflected = frozenset() if named or denied or self.is_truth else self._inflected(statement)
        return inflected or named or frozenset(denied and {*denied, ""})  # any but the denied

    def stated_in(self, line: str) -> str | None:
        """Return the label that a line is, opens with, or is a sentence about: ``Yes, it does``, ``It is negative``."""
        if (label := self.whole(line)) is not None:
            return label
        statement = self._spelled(line)
        opening = None if re.match(r"[^,.;!]*:", statement) else self._opening(statement)
        return opening or next(iter(self._predicated(statement)), None)

    def _opening(self, statement: str) -> str | None:
        """Return the label that a statement opens with, and no other behind it."""
        _, keys, pattern, either, _ = self._readings
        first = pattern.match(statement)
        rest = rf"\s*(?:[,;/|]\s*|[:(].*(?<![a-z0-9_-])(?=[a-z0-9_ -]+ ?[:(]))(?:{either})(?![a-z0-9_-])"
        more = rf"; [^,;]*\b(?:it|that|this) is (?:now )?(?:{either})$"
        if first is None or not _CLAUSE_ENDS.match(statement, first.end()) or is_denied(statement, *first.span()):
            return None
        return None if re.match(rest, statement[first.end() :]) or re.search(more, statement) else keys[first[0]]

    def _mentioned(self, statement: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the labels that a statement names, and those that it denies."""
        named: set[str] = set()
        denied: set[str] = set()
        matches, clear = [*self._readings.pattern.finditer(statement)], statement
        for match in matches:
            word, (start, end) = match[0], match.span()
            # A word may say yes or no by the way, as in "the correct year".
            judges = self.is_truth and word in ("correct", "incorrect") and (matches[1:] or word not in map(plain, self.labels))
            no_idea = word == "no" and re.match(r"\s+(?!(?:is|or|and)\b)[a-z]", statement[end:])
            if no_idea or (judges and _ATTRIBUTE.match(statement, start)) or RELATED.of(statement, start, start):
                continue
            key = self._readings.forms[word]
            if judges and _ERROR_ASKED.search(last_question(self.prompt)):  # then correct says no
                key = {"yes": "no", "no": "yes"}[key]
            (denied if _NO_SIGN.search(statement[:start]) or is_denied(clear, start, end) else named).add(key)
            # What is in a label denies no other behind it: not applicable, rejected.
            clear = clear if self.is_truth else clear[:start] + "x" * (end - start) + clear[end:]
        return frozenset(named), frozenset(denied)

    def _predicated(self, statement: str) -> frozenset[str]:
        """Return the only label that something is said to be, ``it is negative``, not ``some positive points``; else none."""
        if self.is_truth:
            return frozenset()
        stated = {
            self._readings.forms[match[0]]
            for match in self._readings.pattern.finditer(statement)
            if _IS.search(statement[max(0, match.start() - 80) : match.start()])
            and _IS_ALL.match(statement, match.end())
            and not is_denied(statement, *match.span())
        }
        return frozenset(stated) if len(stated) == 1 else frozenset()

    def is_denied_in(self, stated: Stated) -> bool:
        """Return what ``Reference`` does, but of an answer that says yes or no: it may deny something else."""
        named = self.is_truth or plain(stated.text) in self._readings.keys  # "not applicable (N/A)"
        return not named and Reference.is_denied_in(self, stated)

    def _inflected(self, statement: str, *, loosely: bool = False) -> frozenset[str]:
        """Return the labels that a short statement has in another form: ``supported`` for ``SUPPORTS``, ``nontoxic``."""
        tight = {re.sub(r"\W|_", "", label): key for label, key in self._readings.keys.items() if len(label) > STEM}
        if squeezed := tight.get(re.sub(r"\W|_", "", statement)):
            return frozenset({squeezed})
        long = len(statement.split()) > 8 or re.search(rf"\w[_./:]\w|{NEGATION.pattern}", statement)
        if (long and not loosely) or re.search(r"\b(?:nothing|none|nobody)\b", statement):
            return frozenset()
        shared = {label.rpartition(" ")[2] for label in self._readings.keys}
        heads = {label.rpartition(" ")[0]: key for label, key in self._readings.keys.items()} if len(shared) == 1 else {}
        if statement in heads:
            return frozenset({heads[statement]})
        words = [*re.finditer(r"(?<![\w-])[^\W\d_]{3,}(?![\w-])", statement)]
        held = {}
        for label, key in self._readings.keys.items():
            own = WORD.findall(label)
            forms = [next((each for each in words if is_form_of(each[0], word)), None) for word in own]
            matches = [each for each in forms if each is not None]
            same = len(matches) < len(own) or [each[0] for each in matches] == own
            if not same and (loosely or not is_denied(statement, *matches[-1].span())):
                held[key] = len(own)
        return frozenset(key for key, size in held.items() if size == max(held.values()))

    def _spelled(self, part: str, *, idle: bool = True) -> str:
        """Return the plain form of a part with the words of each label parted by spaces, without words that may say nothing."""
        borders = rf"(?<=[{UNSPACED}])(?=[A-Za-z])|(?<=[A-Za-z])(?=[{UNSPACED}])"
        bare = _BY_THE_WAY.sub(" ", part) if idle else part
        several = len({*self._readings.pattern.findall(plain(bare))}) > 1
        bare = self._readings.idle.sub(lambda it: f"-{it[0]}" if several or not it["either"] else it[0], bare) if idle else bare
        statement = plain(re.sub(borders, " ", _ASIDE.sub("", bare if re.search(r"\w", bare) else part)))
        spaced = sorted((name for name in self._readings.forms if " " in name), key=len, reverse=True)
        written = "|".join(re.escape(name).replace(r"\ ", "[ _-]") for name in spaced) or "(?!)"
        return re.sub(rf"(?<!\w)(?:{written})(?!\w)", lambda it: re.sub("[_-]", " ", it[0]), statement)

    @property
    def _readings(self) -> _Readings:
        return _read_labels(self.labels, tuple(self.synonyms.items()))

    def whole(self, line: str) -> str | None:
        """Return the label that a line is."""
        labels = self._readings.keys
        return labels.get(plain(re.sub(r"^\s*[A-Za-z ]{1,20}:\s*", "", line))) or labels.get(plain(line))

    def _key(self, label: str) -> str:
        return self.synonyms.get(plain(label), plain(label))


@dataclass(frozen=True, slots=True)
class LabelsReference(LabelReference):
    """Several labels of a set, in any order. Right when the answer names these and no others."""

    several: tuple[str, ...] = ()

    def _compare(self, stated: Stated) -> Compared:
        bold = [*filter(None, map(self.whole, re.findall(r"\*\*([^*\n]+?):?\*\*", stated.whole)))]  # entries with reasons
        parts = [", ".join(bold)] if bold and not stated.is_marked else parts_of(stated, self._alone)
        for part in parts:
            if denies(part) and not any(map(denies, self.labels)):
                raise RewardError(f"{shown(part)} denies some, or has others")
            if named := self._mentioned(self._spelled(in_words(part)))[0]:
                return Compared(named == {*map(self._key, self.several)}, shown(part))
        return Compared(False, f"{shown(stated.text)}, which names none", states=False)

    def _alone(self, line: str) -> frozenset[str] | None:
        """Return the labels of a line that has nothing else."""
        statement = self._spelled(in_words(line))
        rest = re.sub(r"\band\b", "", self._readings.pattern.sub("", statement))
        return None if re.search(r"\w", rest) else self._mentioned(statement)[0] or None


class _Readings(NamedTuple):
    """The texts that are read as a label."""

    keys: Mapping[str, str]
    """Each in plain form, to the key of its label."""
    forms: Mapping[str, str]
    """The same, and the other number of labels of several words: ``no mental disorders``."""
    pattern: re.Pattern[str]
    """What finds a form, but for what is longer: ``tech.app.android`` is not ``tech.app``."""
    either: str
    idle: re.Pattern[str]
    """What finds labels where they are likely words of a sentence: ``it is Spanish``, ``let me think`` beside ``ME``."""


@lru_cache(maxsize=64)  # each attempt is read several times by the labels of one dataset
def _read_labels(labels: tuple[str, ...], synonyms: tuple[tuple[str, str], ...]) -> _Readings:
    keys = dict(synonyms)
    names = {plain(label): keys.get(plain(label), plain(label)) for label in labels}
    spaced = {re.sub(r"(?<=\w)[_-](?=\w)", " ", name): key for name, key in names.items()}
    bare = {without_accents(each): key for name, key in names.items() for each in (name, re.sub("ll(?=ed|ing)", "l", name))}
    tight = {re.sub(r"(?<=\w)([/&+])(?=\w)", r" \1 ", name): key for name, key in names.items()}
    heads = Counter(_REMARK.sub("", name) for name in names)
    short = {head: key for name, key in names.items() if heads[head := _REMARK.sub("", name)] == 1}
    numbers = {name.removesuffix("s") if name.endswith("s") else f"{name}s": key for name, key in spaced.items() if " " in name}
    names = {**short, **bare, **tight, **_other_names(names), **spaced, **names, **keys}
    forms = {**numbers, **names}
    either = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    letter = rf"[^\W{UNSPACED}]"
    own = "".join({sign for label in forms for sign in "./:" if re.search(rf"\w{re.escape(sign)}\w", label)})
    longer = r"[+#-]|'(?!s (?:answer|output|reply|response|solution)\b)[a-z]" + (rf"|[{own}]\w" if own else "")
    pattern = re.compile(rf"(?<!\w')(?<!{letter})(?<!-)(?:{either})(?!{letter}|{longer})")
    alone = {number: key for key, (_, number) in _numbered(names).items()}
    return _Readings({**alone, **names}, forms, pattern, either, _idle(labels))


def _idle(labels: tuple[str, ...]) -> re.Pattern[str]:
    always, small = (VOCABULARY["idle words"][name].split() for name in ("always", "in small letters"))
    own = [rf"(?<!is )(?<!: )(?i:{each})" for each in labels if each.islower() and each in always]
    codes = len(labels) > 3 and all(len(each) < 4 for each in labels)  # such as those of countries
    own += [rf"(?!{each})(?i:{each})" for each in labels if not each.islower() and each.lower() in always + small * codes]
    # These may be the label, too, and say nothing only beside another one: "It is up, not in force: down".
    either = [rf"(?!{each})(?i:{each})" for each in labels if not each.islower() and each.lower() in small and not codes]
    if "A" in labels:
        either.append(r"(?:^|(?<=[.!?:] ))A(?!\s+(?:or|and|is|because|since|fits|seems|minus|plus)\b)(?=\s+[a-z])")
    words = rf"(?:{'|'.join(own) or '(?!)'}|(?P<either>{'|'.join(either) or '(?!)'}))"
    return re.compile(rf"(?<![\w\"'*`(]){words}(?!\s+is the answer)(?=(?:'s)?\s+[*\"'`]{{0,3}}\w)")


def _other_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what else labels are called, to the label: ``female`` for ``f``, ``priority 1`` for ``p1``, ``o negative``."""
    names: dict[str, str] = {}
    for letters, spelled in VOCABULARY["labels"].items():
        if {*labels} <= {*letters.split()}:
            names |= {name: letter for name, letter in spelled.items() if letter in labels}
    days = {NAMES_OF_DAYS.get(name, ""): key for name, key in labels.items()}
    names |= {name: days[day] for name, day in NAMES_OF_DAYS.items() if "" not in days and day in days}
    for short, long in VOCABULARY["short labels"].items():
        if key := labels.get(short) or labels.get(long):
            names |= dict.fromkeys((short, long, f"{long} ({short}"), key)
    for name, key in labels.items():
        signs = VOCABULARY["signs of labels"].get(name[-1:], "").split()
        names |= {f"{name[:-1]} {sign}{word}": key for word in signs for sign in ("", "rh ", "rh-")}
    for key, (head, number) in _numbered(labels).items():
        word = VOCABULARY["numbered labels"].get(head, head)
        names |= dict.fromkeys((f"{word} {number}", f"{word} is {number}", f"{head[0]}{number}"), key)
    return {name: key for name, key in names.items() if name not in labels}


def _numbered(labels: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return labels that are one word with different numbers or letters, each with that word and its own."""
    parts = {key: match for key in labels.values() if (match := _NUMBERED.fullmatch(key))}
    is_one = len({match[1] for match in parts.values()}) == 1 and len(parts) == len({*labels.values()}) > 1
    return {key: (match[1], match[2] or match[3]) for key, match in parts.items()} if is_one else {}


# A label that is a word with a number or a letter: ``p1``, ``level 2``, ``speaker b``.
_NUMBERED: Final = re.compile(r"([a-z]+)(?:[ _-]?(\d{1,2})|[ _-]([a-z]))")

# Where an answer is followed by its reason: ``It is negative. Reasoning: …``.
_EXPLAINED: Final = re.compile(r"(?i)(?<=[.!\n])\s*\**(?:Explanation|Justification|Rationale|Reason|Reasoning)\**:")
# What a label has in brackets, in plain form: ``positive (4-5``.
_REMARK: Final = re.compile(r" \([^()]*$")
# What may be answered, and a reason: ``The answer (yes or no) is``, ``his aunt (since she is his mother's sister)``.
_ASIDE: Final = re.compile(r"(?<=\w) \((?:[^()\n]{1,30}\bor\b[^()\n]{1,30}|(?:as|because|since)\b[^()\n]{1,200})\)")
# What a sentence has before or beside its answer: ``As an AI, I …``, ``If it were …, it would …``.
_BY_THE_WAY: Final = re.compile(
    r"(?i)(?:^|(?<=[.!?]\s))(?:(?:as an? [^,.:!?\n]{1,40}|to be (?:safe|sure|fair|clear|honest)|to answer your question"
    r"|if i (?:see|read|understand|recall) [^,.:!?\n]{1,30}|after careful consideration|first(?=, i )"
    r"|you(?:'re| are) right[^,.:!?\n]{0,20})[,:]\s|if [^.!?\n]*\bwould\b[^.!?\n]*)"
    r"|(?<=\wed) before (?:it|they|he|she) [^.,;!?\n]*|-(?=(?:severity|priority|risk|level|quality|impact|urgency)\b)"
)
# Says nothing of the question: ``the correct year``.
_ATTRIBUTE: Final = re.compile(r"(?:in)?correct (?!(?:as|because|since|and|in|for|if)\b)[a-z0-9]")
# A question for an error, to which ``correct`` says no; not the one whether it is right or wrong.
_ERROR_ASKED: Final = re.compile(
    r"(?is)\A(?!.*\bor\W+(?:in)?correct|.*correct\W+or\b|.*\bor (?:right|wrong))"
    r".*\b(?:errors?|mistakes?|wrong|incorrect|flaws?)\b"
)
# Before what there is no sign of: ``no mention of school``.
_NO_SIGN: Final = re.compile(
    r"(?:^|\s)no $|\bno (?:\w+ ){1,6}(?:such as|like) $"
    r"|\bno (?:mention|signs?|evidence|indications?|hints?|traces?) of (?:\w+ )?$"
)
_IS: Final = re.compile(
    r"\b(?:is|are|was|were|be|(?<!such )as|under|category|class|label|sentiment):?"
    r" (?:(?:an?|the|clearly|mostly|overall|very) )*$"
)
# With the one before: around a label that something is said to be.
_IS_ALL: Final = re.compile(r"\W*(?:$|(?<=[.,;:!?)\n])\s|(?:because|since|as|in|for|here|overall|and|with)\b)")
# A field as the last thing: ``It sounds fine. Sentiment: positive``.
_FIELD_LAST: Final = re.compile(r"(?:^|[.;!] )\W{0,3}(?!Not|Wrong)[A-Z][A-Za-z ]{2,20}:\W*([^:.;!?]{1,40}?)[*_`.\"' ]*$")
_BLOOD_GROUPS: Final = ("A+", "A-", "B+", "B-", "AB+", "AB-", "O+", "O-")
_TRUTH_LETTERS: Final = {"y": "yes", "t": "yes", "n": "no", "f": "no"}
_CLAUSE_ENDS: Final = re.compile(r"\s*(?:[,.;:!()]|-+\s|because\b|since\b|as\b)")
TRUTH: Final[Mapping[str, str]] = VOCABULARY["truth"]
"""Readings of the labels of a yes-no question."""
TRUTH_ABROAD: Final[Mapping[str, str]] = {
    **TRUTH,
    **{plain(name): truth for truth in ("yes", "no") for name in VOCABULARY[truth].split()},
}
"""With words for yes and no in other languages, where the reference is one."""


def label_reference(label: str, options: Mapping[str, str]) -> Reference | None:
    """Return the letter or text of an option, or a truth value, as a reference; None for any other text."""
    if SEVERAL_LETTERS.fullmatch(label):
        return ChoicesReference(label, options)
    if re.fullmatch(r"\(?[A-J]\)?|\([a-j]\)", label):
        return ChoiceReference(label.strip("()").upper(), options)
    if letter := letter_of(label, options):
        return ChoiceReference(letter, options)
    truths = TRUTH if plain(label) in ("yes", "no", "true", "false") else TRUTH_ABROAD
    if label in _BLOOD_GROUPS:
        return LabelReference(label, _BLOOD_GROUPS)
    return LabelReference(label, ("yes", "no"), truths) if plain(label) in truths else None
