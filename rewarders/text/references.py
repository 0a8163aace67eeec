"""Compare an output with one reference of a form: a number, a list, JSON or a formula, and read any reference.

What has two readings is no score: ``compare`` raises ``RewardError``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Final

from tfgrpo.rewarders.text import answers
from tfgrpo.rewarders.text.answers import Stated, bare_reference, conclusion_of, is_order_free, stated_answer, written_value
from tfgrpo.rewarders.text.base import OPTION_MARK, Reference, nothing, parts_of
from tfgrpo.rewarders.text.choices import letter_of
from tfgrpo.rewarders.text.formulas import NEEDS_MATH, FormulaReference, in_latex, is_formula, is_in_prompt, told_last
from tfgrpo.rewarders.text.labels import label_reference
from tfgrpo.rewarders.text.lexer import DecimalMark, Number
from tfgrpo.rewarders.text.moments import DateOrder, MomentReference, PeriodReference
from tfgrpo.rewarders.text.numbers import REMARK, only_number, reference_number
from tfgrpo.rewarders.text.quantities import NAMED_VALUE, NumberReference
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Compared, ReadAnswer, denies, is_denied, says_absent, shown, stems, verdict_by
from tfgrpo.rewarders.text.spelling import BOLD, LATEX_SPACE, MARKUP, QUOTES, comparable, makes_calls, plain
from tfgrpo.rewarders.text.words import TextReference
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.json_values import canonical_json, load_json


@dataclass(frozen=True, slots=True)
class ExactReference(Reference):
    """Text that is equal in every character, except outer white space."""

    normalized: bool = False
    """Compare the ``plain`` forms instead."""

    def _compare(self, stated: Stated) -> Compared:
        read: Callable[[str], str] = plain if self.normalized else str.strip
        return Compared(any(read(each) == read(self.text) for each in stated.candidates), shown(stated.text))


@dataclass(frozen=True)
class _Series(ReadAnswer["ListReference"]):
    stated: Stated

    @cached_property
    def read(self) -> ListReference | None:
        parts = (*parts_of(self.stated), *BOLD.findall(self.stated.text), self.stated.text.rstrip("| ").rpartition("| ")[2])
        return next((each for each in map(self.reference.read, parts) if each is not None), None)

    @cached_property
    def pair(self) -> tuple[list[tuple[Fraction, ...]], list[tuple[Fraction, ...]]]:
        ours, theirs = (each.points if each else [] for each in (self.read, self.reference))
        return ours, theirs

    def is_equal(self) -> bool:
        return self.pair[0] == self.pair[1]

    def may_be_relation(self) -> bool:
        is_asked = _SETS_ASKED.search(self.reference.prompt) or re.search(r"[\[\]]", self.reference.text)
        return bool(is_asked and self.is_relation())

    def needs_algebra(self) -> bool:
        return self.reference.equal is None and self.may_be_relation()

    def is_its_relation(self) -> bool:
        repeats = is_in_prompt(self.stated.text, self.reference.prompt)
        equal = self.reference.equal if self.may_be_relation() and not repeats else None
        with suppress(RewardError):
            return equal is not None and equal(in_latex(self.stated.text), in_latex(self.reference.text))
        return False

    def is_relation(self) -> bool:
        """Return whether an answer is an inequality, where the reference may be the interval that it describes."""
        interval = re.match(r"\W*[(\[].*[)\]]\W*$", self.reference.text)
        return bool(interval and re.search(r"[<>\u2264\u2265]|\\[lg](?:eq?|t)\b", self.stated.text.lstrip("> ")))

    @cached_property
    def others(self) -> list[set[str]]:
        """What the answer counts in the place of what the reference counts: ``3 pears, 5 apples``."""
        ours, theirs = (each.counted if each else [] for each in (self.read, self.reference))
        if [value for value, _ in ours] != [value for value, _ in theirs] or len({*map(str, (name for _, name in theirs))}) < 2:
            return []
        pairs = [(name, wanted) for (_, name), (_, wanted) in zip(ours, theirs, strict=True)]
        return [name for name, wanted in pairs if name and wanted and name.isdisjoint(wanted)]

    def counts_others(self) -> bool:
        names = set[str]().union(*(name for _, name in self.reference.counted))
        return any(names & name for name in self.others)

    def has_same(self) -> bool:
        ours, theirs = (sorted({*each} if self.reference.has_points else each) for each in self.pair)
        return self.read is not None and ours == theirs

    def has_same_apart(self) -> bool:
        ours, theirs = self.pair
        return len(ours) != len(theirs) and sorted(sum(ours, ())) == sorted(sum(theirs, ()))

    def is_same_text(self) -> bool:
        text, whole = self.stated.text, self.stated.whole
        block = whole[whole.rfind(text) :].partition("\n\n")[0] if self.stated.is_marked else whole
        wanted, *forms = (comparable(each.replace("\n", "; ")) for each in (self.reference.text, text, block))
        return wanted in forms and re.search(r"[()\[\]{}]", self.reference.text) is None

    def has_all_asked(self) -> bool:
        """Return whether the question is for all of something, or for the values of a variable, in no order."""
        wanted = self.reference
        entries = [sorted(comparable(each).split(", ")) for each in (self.stated.text, wanted.text)]
        if entries[0] == entries[1] and all(re.search(r"[a-z]{3}", each) for each in entries[1]):
            return True
        of_one = NAMED_VALUE.search(wanted.text) and wanted.text.count("=") == 1
        prompt = _POINTS_ASKED.sub("", wanted.prompt)
        return bool((is_order_free(prompt) or of_one) and not wanted.is_ordered and self.has_same())

    @property
    def edges(self) -> list[str]:
        return [re.sub(r"[^()\[\]]", "", each.text) for each in (self.read, self.reference) if each is not None]

    def may_be_open(self) -> bool:
        """Return whether round brackets are an interval without its ends, or another notation of a pair."""
        ours = self.pair[0]
        return self.is_equal() and len(ours) == 2 and ours[0] < ours[1] and self.edges == ["()", "[]"]

    def may_be_set(self) -> bool:
        """Return whether just one of two lists in brackets is in those of a set."""
        both = [re.sub(r"[^()\[\]{}]", "", each.text)[:1] for each in (self.read, self.reference) if each is not None]
        return self.has_same() and all(both) and both.count("{") == 1

    def has_other_edges(self) -> bool:
        edges = self.edges
        nested = edges[-1] == "[]" and edges[0][:2] == "[["  # [1, 2, [3]]
        closed = "[" in edges[0] and len(self.pair[1]) == 2 and len(edges[-1]) == 2
        mixed = any({*each} in ({"[", ")"}, {"(", "]"}) for each in edges)
        return nested or ((mixed or closed) and edges[0] != edges[-1] != "")


@dataclass(frozen=True, slots=True)
class ListReference(Reference):
    """Several numbers: ``(3, 4)``, ``1, 2, 3``; two readings for the same ones in another order, where none is stated."""

    numbers: tuple[Number, ...]
    decimal: DecimalMark = "."
    equal: Callable[[str, str], bool] | None = None
    """As in ``FormulaReference``."""
    rules: ClassVar[tuple[Rule[_Series], ...]] = (
        Rule("unclear", "denies a list, or has several", "1, 2", "1, 2 or 1, 3", lambda it: denies(it.stated.text)),
        Rule("right", "is the inequality of the interval", "(3, 4]", "3 < x ≤ 4", _Series.is_its_relation),
        Rule("unclear", f"is an inequality; {NEEDS_MATH}", "(3, 4]", "3 < x ≤ 4", _Series.needs_algebra),
        Rule("unclear", "is an inequality, and may be an interval", "(3, 4]", "3 < x ≤ 4", _Series.is_relation),
        Rule("right", "is the same text", "a: 1, b: 2", "a: 1\nb: 2", _Series.is_same_text),
        Rule("wrong", "is no list", "1, 2", "three", lambda it: not it.read),
        Rule("wrong", "counts something else", "3 apples, 5 pears", "3 pears, 5 apples", _Series.counts_others),
        Rule("unclear", "may count something else", "3 apples, 5 pears", "3 plums, 5 figs", lambda it: it.others),
        Rule("unclear", "may be a set, or none", "{1, 2}", "[1, 2]", _Series.may_be_set),
        Rule("right", "is the same set", "{1, 2}", "{2, 1}", lambda it: it.reference.is_set and it.has_same()),
        Rule("unclear", "may be an open interval", "[1, 2]", "(1, 2)", lambda it: it.may_be_open()),
        Rule("wrong", "has other edges", "[1, 2]", "[1, 2)", lambda it: it.is_equal() and it.has_other_edges()),
        Rule("right", "has these numbers", "1, 2, 3", "They are 1, 2 and 3.", lambda it: it.is_equal()),
        Rule("right", "has all that is asked for", "1, 2", "2, 1", _Series.has_all_asked, "Find all solutions."),
        Rule("unclear", "has another order", "1, 2", "2, 1", lambda it: it.has_same() and not it.reference.is_ordered),
        Rule("unclear", "may pair them otherwise", "(1, 2), (3, 4)", "1, 2, 3, 4", _Series.has_same_apart),
        Rule("wrong", "has other numbers", "1, 2", "1, 3", lambda _: True),
    )

    @classmethod
    def of(cls, text: str, decimal: DecimalMark = ".", equal: Callable[[str, str], bool] | None = None) -> ListReference | None:
        """Return the list that a text is; None when it is none."""
        if re.search(r"°\s*[NSEW]", text):
            return None  # two places with the same numbers
        commas = decimal == "," or re.fullmatch(r"\s*\d+,\d+(?:; ?\d+(?:,\d+)?)+\s*", text)
        parts = _list_parts(re.sub(r"(?<=\d),(?=\d)", ".", text) if commas else text)
        numbers = tuple(number for part in parts if (number := only_number(part, decimal)) is not None)
        return cls(text, numbers, decimal, equal) if len(parts) > 1 and len(numbers) == len(parts) else None

    @property
    def is_set(self) -> bool:
        """Whether the reference is written as a set."""
        return self.text.lstrip("$ \\").startswith("{")

    @property
    def is_ordered(self) -> bool:
        """Whether brackets make it a point or an interval, of which the order counts, or braces a set."""
        return self.is_set or (("(" in self.text or "[" in self.text) and not self.has_points)

    @property
    def has_points(self) -> bool:
        """Whether it is a list of points: ``(1, 2), (3, 4)``."""
        return len(self.points) < len(self.numbers)

    @property
    def points(self) -> list[tuple[Fraction, ...]]:
        """The values, those of a point together if there are several points, else each alone."""
        values = iter(number.value for number in self.numbers)
        sizes = [len(_list_parts(each)) for each in _POINT.findall(self.text)]
        several = len(sizes) > 1 and sum(sizes) == len(self.numbers)
        return [tuple(islice(values, size)) for size in (sizes if several else [1] * len(self.numbers))]

    @property
    def counted(self) -> list[tuple[Fraction, set[str]]]:
        """Its values in order of size, each with the beginnings of the words next to it, which say what is counted."""
        parts, whole = ([], []) if "\\" in self.text else (_list_parts(self.text), re.split(r"[,;]|\band\b", self.text))
        if not len(self.numbers) == len(parts) == len(whole):
            return []
        counted = (stems(part).union(_VARIABLE.findall(entry)) for part, entry in zip(parts, whole, strict=True))
        values = (number.value for number in self.numbers)
        return sorted(zip(values, counted, strict=True), key=lambda each: each[0])

    def _compare(self, stated: Stated) -> Compared:
        both = _EITHER_SIGN.search(stated.text[-200:])
        roots = () if both else _ROOTS.search(MARKUP.sub("", stated.text))
        value = "" if both or roots else told_last(stated.text)
        several = f"{_sum(both, 1)}, {_sum(both, -1)}" if both else f"{roots[2]}, {roots[3]}" if roots else ""
        if several and re.match(r"\W*[(\[]", self.text):
            return Compared(False, shown(stated.text))  # solutions are neither a point nor an interval
        stated = replace(stated, text=several or value or stated.text)
        return verdict_by(self.rules, _Series(self, stated.text, stated))

    def read(self, text: str) -> ListReference | None:
        """Return the only list of a text. Raise ``RewardError`` for several that are no points, and for a multiple of one."""
        text = REMARK.sub("", _NAMES.sub("", text))
        text = conclusion_of(text) or text
        if self.has_points and (points := _POINTS.search(text)) and not _POINT.search(text.replace(points[0], "")):
            return ListReference.of(points[0], self.decimal)
        inside = [*re.finditer(r"[(\[{⟨][^()\[\]{}⟨⟩]*\d[^()\[\]{}⟨⟩]*[)\]}⟩]", _ANGLES.sub(r"(\1)", text))]
        lists = [each for each in inside if ListReference.of(each[0], self.decimal) is not None]
        if len(lists) > 1 or (lists and _FACTOR.search(lists[0].string[: lists[0].start()])):
            raise RewardError(f"{shown(text)} has several lists, or a multiple of one")
        spaced = re.sub(r"(?<=\d) (?=-?\d)", ", ", text) if re.fullmatch(r"-?\d+(?: -?\d+)+", text) else text
        return ListReference.of((lists[0][0] if lists else spaced), self.decimal)


_POINT: Final = re.compile(r"(?:\\left)?[(\[](?=[^()\[\]]*\d)[^()\[\]]*[)\]]")
_BETWEEN_POINTS: Final = r"(?:[,;$\s]|and\b|\\(?:q?quad|[,;\s()]|text\s?\{\s?and\s?\}))*"
# Several points: ``(1, 2), (3, 4)``.
_POINTS: Final = re.compile(rf"{_POINT.pattern}(?:{_BETWEEN_POINTS}{_POINT.pattern})+")
# Those of the coordinates of a point: ``(x, y) = (3, 4)``.
_NAMES: Final = re.compile(r"^[$\s]*\([A-Za-z, ]+\)\s*=\s*")
_POINTS_ASKED: Final = re.compile(r"(?i)\bordered (?=pair|triple|quad|tuple|n-)")
# Between the solutions of an equation: ``x = 2 or x = 3``.
_ROOTS: Final = re.compile(r"(?i)\b(?P<name>[a-z]\w{0,3}) ?= ?([^=,]{1,30}?)\$?,? (?:or|and) \$?(?P=name) ?= ?(.{1,60})")
# Two solutions in one: ``x = 1 ± 2``.
_EITHER_SIGN: Final = re.compile(r"(?:^|[=$ ])(-?(?:\d+(?:\.\d+)?)?)\s?(?:\\pm|±)\s?(\d+(?:\.\d+)?)\W{0,9}$")
_SETS_ASKED: Final = re.compile(r"(?i)\b(?:interval|domain|range|solve|inequalit\w+|values)\b")
_VARIABLE: Final = re.compile(r"\b([A-Za-z]) ?=")
_ANGLES: Final = re.compile(r"\\langle\b(.*?)\\rangle\b")
# Before a list that is multiplied: ``2(3, 4)``, ``-(3, 4)``, but neither ``**(3, 4)**`` nor ``- (3, 4)``.
_FACTOR: Final = re.compile(r"[\d)]\s*$|[\w)]\s*[*/\u00b7\u00d7]\s*$|[-+\u2212]$")
# What is around and between objects that are a list together: each in its tag, or one below the other.
_BETWEEN_OBJECTS: Final = re.compile(
    r"(?m)</?(?:tool|function)_?calls?>|^[ \t]*```\w*[ \t]*$|(?<=\})[ \t]*(?:,[ \t]*)?\n\s*(?=\{)"
)
INTEGER_ASKED: Final = re.compile(r"(?i)\b(?:integer|remainder|how many)\b")


def _sum(match: re.Match[str], sign: int) -> str:
    return str(Decimal(match[1] or 0) + sign * Decimal(match[2]))


def _list_parts(text: str) -> list[str]:
    inside = LATEX_SPACE.sub(" ", re.sub(r"\\text\{([^{}]*)\}", r"\1", text.translate(QUOTES))).strip(" .\n*`")
    inside = re.sub(r"^[-*|\u2022]\s+|\s*\|$|^(?:[A-Za-z]+\s+)*[A-Za-z]+,\s+(?=[-\d])", "", inside)
    inside = _NAMES.sub("", inside)
    inside = re.sub(r"^[A-Za-z\s=,']*(?:[:=\u2192>]|\b(?:is|are)\b|'s\b)\s*|^[\w\s]* are (?=[-\d])", "", inside.rstrip("!"))
    inside = re.sub(r"^\\?[(\[{]|\\?[)\]}]$", "", inside)
    parts = [part.strip() for part in re.split(r"[,;]\s+|;|\s+and\s+|,(?!\d{3}(?!\d))", inside)]
    return [part for part in parts if part] if all(re.search(r"\d|^$", part) for part in parts) else []


@dataclass(frozen=True)
class _Json(ReadAnswer["JsonReference"]):
    @cached_property
    def value(self) -> Any:
        """The value; the error where there is none, or none that can be read."""
        try:
            return self.reference.value_in(self.text)
        except ValueError as error:
            return error

    @property
    def answered(self) -> str:
        if isinstance(self.value, ValueError):
            return f"{shown(self.text.strip())} ({self.value})"
        return shown(json.dumps(self.value, ensure_ascii=False))

    def says_empty(self) -> bool | None:
        """Return whether an output without JSON says that there is nothing, where the reference is empty; None if it may."""
        stated = stated_answer(self.text) if self.reference.value == [] and isinstance(self.value, ValueError) else None
        return stated is not None and says_absent("none", plain(stated.text))

    def states(self, *texts: object) -> bool:
        is_text = isinstance(self.value, ValueError) and isinstance(self.reference.value, list)
        stated = stated_answer(self.text) if is_text else None
        return stated is not None and any(TextReference(str(each)).states(stated) for each in texts if str(each).strip())

    @property
    def span(self) -> tuple[int, int]:
        begins = [at for sign in "{[" if (at := self.text.find(sign)) >= 0]
        return min(begins, default=0), max(self.text.rfind("}"), self.text.rfind("]")) + 1

    def is_equal(self) -> bool:
        value, wanted = map(_calls, (self.value, self.reference.value))
        return bool(value == wanted) and _truths(value) == _truths(wanted)

    def has_same(self) -> bool:
        both = (self.value, self.reference.value)
        ours, theirs = (sorted(map(canonical_json, each)) if isinstance(each, list) else None for each in both)
        return ours is not None and ours == theirs


def _calls(value: Any) -> list[Any]:
    """Return calls of tools with their arguments as values, since some interfaces have them as text; of one call, a list."""
    each_with = ((each, _arguments(each)) for each in (value if isinstance(value, list) else [value]))
    return [each if arguments is None else {**each, "arguments": arguments} for each, arguments in each_with]


def _arguments(value: Any) -> Any:
    arguments = value.get("arguments") if isinstance(value, dict) else None
    return written_value(arguments) if isinstance(arguments, str) else None


@dataclass(frozen=True, slots=True)
class JsonReference(Reference):
    """A JSON object or list, compared by value."""

    value: Any
    rules: ClassVar[tuple[Rule[_Json], ...]] = (
        Rule("right", "says too that it is empty", "[]", "none", lambda it: it.says_empty()),
        Rule("unclear", "may say that it is empty", "[]", "There are no labels.", lambda it: it.says_empty() is None),
        Rule("right", "lists its entries", '["a", "b"]', "a, b", lambda it: it.states(answers.in_words(it.reference.text))),
        Rule("unclear", "is one of several", '["a1", "b2"]', "a1", lambda it: it.states(*it.reference.value)),
        Rule("wrong", "has no JSON", '{"a": 1}', "a is 1", lambda it: isinstance(it.value, ValueError)),
        Rule("wrong", "is denied", '{"a": 1}', 'It is not {"a": 1}.', lambda it: is_denied(it.text.lower(), *it.span)),
        Rule("unclear", "is a multiple", '["a"]', '2 * ["a"]', lambda it: _FACTOR.search(it.text[: it.span[0]])),
        Rule("right", "is the same value", '{"a": 1}', '{"a": 1.0}', lambda it: it.is_equal()),
        Rule("unclear", "has the values in another order", '["a", "b"]', '["b", "a"]', lambda it: it.has_same()),
        Rule("wrong", "is another value", '{"a": 1}', '{"a": 2}', lambda _: True),
    )

    @classmethod
    def of(cls, text: str) -> JsonReference | None:
        """Return the JSON value that a text is, if it is an object, or a list of more than numbers."""
        value = written_value(text)
        is_list = isinstance(value, list) and (not value or any(not isinstance(each, int | float) for each in value))
        return cls(text, value) if isinstance(value, dict) or is_list else None

    def _compare(self, stated: Stated) -> Compared:
        return self.compare(stated.whole)

    def compare(self, output: str) -> Compared:
        """Compare the JSON of an output, however long it is. Raises ``RewardError`` for several different values."""
        rest = answers.without_reasoning(output) or ""
        return verdict_by(self.rules, _Json(self, rest)) if rest.strip() else nothing(output)

    def value_in(self, rest: str) -> Any:
        """Return the value that is marked or is the last line, else the only one. Raises as ``answers.json_in`` does."""
        several = isinstance(self.value, list) and len(self.value) > 1 and all(isinstance(each, dict) for each in self.value)
        objects = [written_value(each) for each in _BETWEEN_OBJECTS.split(rest) if each.strip()] if several else []
        if len(objects) > 1 and all(isinstance(each, dict) for each in objects):
            return objects
        stated = stated_answer(rest)
        opened = re.search(r"[{\[]", rest)
        value = written_value(rest[opened.start() : max(rest.rfind("}"), rest.rfind("]")) + 1]) if opened else None
        if value is None and stated is not None and stated.source != "object":
            with suppress(ValueError, RewardError):
                value = (answers.json_in if stated.is_marked else load_json)(bare_reference(stated.text))
        value = value if isinstance(value, dict | type(self.value)) else answers.json_in(rest)
        only = [*value.values()] if isinstance(value, dict) and len(value) == 1 else []
        if only and self.value != value and ("answer" in value or (isinstance(only[0], list) and isinstance(self.value, list))):
            value = only[0]
        return written_value(value) if isinstance(value, str) else value


def _truths(value: Any) -> int:
    """Return how many truth values a JSON value has: to Python, true is 1."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) + sum(map(_truths, inner))


class PairReference(TextReference):
    """Two numbers with a slash that are no fraction: ``120/80`` is ``120 over 80``, ``60/40`` is ``60:40``."""

    def _compare(self, stated: Stated) -> Compared:
        text, wanted = stated.text if stated.is_marked else stated.whole, tuple(self.text.split("/"))
        pairs = {*re.findall(r"(\d+) ?%?(?: ?[/:\u2013-] ?| over | of | out of | to )(\d+)", text)}
        if len(pairs) == 1 or self.states(stated):
            return Compared(wanted in pairs, shown(stated.text))
        if {*wanted} <= {*re.findall(r"\d+", text)}:
            raise RewardError(f"{shown(stated.text)} may state the pair in another form")
        return Compared(False, shown(stated.text))


def read_reference(
    text: str,
    decimal: DecimalMark,
    tolerance: Fraction,
    options: Mapping[str, str],
    equal: Callable[[str, str], bool] | None,
    order: DateOrder = "",
    *,
    prompt: str = "",
) -> Reference:
    """Return a reference by its own form: a number, a letter with options, a truth value, a list, JSON, a formula, text."""
    bare = bare_reference(text)
    number = None if makes_calls(bare) else reference_number(text, decimal)
    is_code = re.fullmatch(r"0\d+", bare) and not INTEGER_ASKED.search(prompt)
    if options and ("A" in options or OPTION_MARK.match(bare)) and letter_of(bare, options):
        number = None  # 15 minutes, of (A) 1 hour (B) 15 minutes
    if number is not None and not is_code:  # digits with leading zeros are a code
        return NumberReference(text, number, decimal, tolerance, equal)
    begins = [reference_number(each, decimal) for each in _list_parts(bare)[:1]]
    return (
        label_reference(bare, options)
        or (TextReference(bare) if makes_calls(bare) else None)
        or MomentReference.of(bare, order)
        or PeriodReference.of(bare, order)
        or JsonReference.of(bare)
        or (ListReference.of(bare, decimal, equal) if None not in begins else None)
        or (FormulaReference(bare.replace("**", "^"), equal) if is_formula(bare, prompt) else TextReference(bare))
    )
