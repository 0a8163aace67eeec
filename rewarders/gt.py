r"""The ``gt`` rewarder: compare what each output states as its answer with the item's reference.

No model, no arithmetic, no partial credit. Without a reference it abstains, and so it does on an output with two readings.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import chain
from math import gcd
from statistics import median
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import Name, NonNegative, Options, Texts, accepts, refusal
from tfgrpo.rewarders.scorer import NO_REFERENCE, Abstained, GraderInput, ItemScorer, Verdict, answer_text, field_of, references
from tfgrpo.rewarders.text.answers import SEVERAL_ASKED, bare_reference, is_order_free, stated_answer
from tfgrpo.rewarders.text.base import Reference
from tfgrpo.rewarders.text.choices import JOINED_LETTERS, SEVERAL_LETTERS, ChoiceReference, ChoicesReference, letter_of
from tfgrpo.rewarders.text.formulas import NEEDS_MATH, FormulaReference, is_formula
from tfgrpo.rewarders.text.labels import TRUTH, TRUTH_ABROAD, LabelReference, LabelsReference
from tfgrpo.rewarders.text.lexer import MAGNITUDES, UNITS, DecimalMark
from tfgrpo.rewarders.text.moments import SLASHED, DateOrder
from tfgrpo.rewarders.text.numbers import reference_number
from tfgrpo.rewarders.text.options import LETTERS, ends_in_numbered_options, field_asked_for, options_of
from tfgrpo.rewarders.text.quantities import NumberReference
from tfgrpo.rewarders.text.references import INTEGER_ASKED, ExactReference, JsonReference, PairReference, read_reference
from tfgrpo.rewarders.text.rules import Compared, shown
from tfgrpo.rewarders.text.spelling import INVISIBLE, plain, same_text
from tfgrpo.rewarders.text.words import TextReference
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import pluralize

Match: TypeAlias = Literal["auto", "numeric", "label", "choice", "text", "normalized", "exact"]
_MATCHES: Final = "auto, numeric, label, choice, text, normalized, exact"
_EXAMPLES: Final = 5
MATCH_OF: Final[dict[ReferenceKind, Match]] = {"numbers": "numeric", "labels": "label", "options": "choice", "codes": "text"}
"""The match of each kind of column; every other kind is read reference by reference."""


class Comparing(ItemScorer):
    """Compares what an output states with each accepted reference: right by any, else not graded where any is unclear."""

    knows_algebra: bool = False
    equal: Callable[[str, str], bool] | None = None
    """Compares formulas, in a process that has loaded the library for it."""

    @abstractmethod
    def reference(self, text: str, options: Mapping[str, str] = ..., prompt: str = ..., /) -> Reference:
        """Return a reference as it is read, given the options of a multiple-choice question, and the question.

        Raise ``RewardError`` for one that cannot be compared.
        """

    def accepted(self, item: GraderInput) -> list[str]:
        """Return the accepted answers of a record."""
        return [answer_text(each) for each in references(item)]

    def wanted(self, item: GraderInput) -> list[Reference]:
        """Return the usable references of a record. Raise ``RewardError`` without any."""
        prompt = str(field_of(item, "prompt") or "")
        options = options_of(prompt, field_of(item, "metadata"))
        usable: list[Reference] = []
        reasons: list[str] = []
        texts = tuple(self.accepted(item))
        texts = (", ".join(texts),) if len(texts) > 1 and SEVERAL_ASKED.search(prompt) else texts
        for text in texts:
            try:
                usable.append(replace(self.reference(text, options, prompt), prompt=prompt, accepted=texts))
                if isinstance(usable[-1], NumberReference) and ends_in_numbered_options(prompt, options):
                    usable.append(replace(_numbered(text.strip(), options), prompt=prompt))
            except RewardError as error:
                reasons.append(str(error))
        if not usable:
            raise RewardError(reasons[0] if reasons else NO_REFERENCE)
        return usable

    def compared(self, item: GraderInput, output: str, how: str) -> Verdict:
        """Return the verdict on an output; ``how`` is shown. The same text is right, no matter what the reference is."""
        try:
            wanted = self.wanted(item)
        except RewardError as error:
            stated, text = stated_answer(output), next(iter(self.accepted(item)), "")
            if stated is not None and text.strip() and same_text(stated.text, text):
                return RewardScore("", 1.0, f"{how}: the same text as the reference {shown(text)}")
            return Abstained("", str(error))
        if echo := next((text for text in wanted[0].accepted if text.strip() == output.strip() != ""), ""):
            return RewardScore("", 1.0, f"{how}: answered the reference {shown(echo)} itself")
        output = output.translate(INVISIBLE)
        unclear, undecided, compared = "", False, Compared(False, "nothing")
        field = field_asked_for(output, str(field_of(item, "prompt") or ""))
        for reference in wanted:
            try:
                compared = reference.compare(output if field is None or isinstance(reference, JsonReference) else field)
            except RewardError as error:
                unclear = unclear or str(error)
                undecided |= NEEDS_MATH in str(error) and self.knows_algebra
                continue
            if compared.right:
                return RewardScore("", 1.0, f"{how}: answered {compared.answered} = reference {reference.shown}")
        if unclear:
            return Abstained("", unclear, undecided=undecided)
        return RewardScore("", 0.0, f"{how}: answered {compared.answered} ≠ reference {wanted[0].shown}")


@dataclass(frozen=True, slots=True)
class GroundTruth(Options, Comparing):
    r"""Scores 1.0 when the stated answer is the reference, 0.0 otherwise; abstains where a reader could not tell.

    Reasoning is cut. The stated answer is the last marked one (``Answer:``, ``<answer>``, ``\boxed{}``, ``####``), else the
    rest of "the answer is …", else the last line, else the whole output. The reference is read by the same rule.
    """

    match: Annotated[Match, accepts(_MATCHES)] = "auto"
    """``numeric``: equal values. ``label``: exactly this one of ``labels`` occurs. ``choice``: the letter of an option, or
    its text. ``text``: the answer is the reference, or a sentence with it. ``normalized``: the answer is the reference but
    for letter case, markup, and punctuation around it. ``exact``: every character but outer white space. ``auto``: by the
    references of the dataset, or each by its form."""
    tolerance: NonNegative = 0.0
    """Greatest absolute difference of equal values; for numbers only."""
    decimal: Annotated[DecimalMark, accepts('"." or ","')] = "."
    """Mark before the decimals of references, and first reading of those in outputs."""
    dates: Annotated[DateOrder, accepts('"day", "month" or ""')] = ""
    """What comes first in dates such as ``03/04/2024``; none: either."""
    labels: Texts = ()
    """The set of labels, for ``label`` only; none: those of the dataset."""
    first: Annotated[Literal[0, 1], accepts("0 or 1")] = 0
    """Number of the first option where a reference is the number of one, for ``choice`` only."""
    rewarder_id: Name = "gt"

    @field_validator("tolerance", "labels")
    @classmethod
    def _for_its_match_only(cls, value: float | tuple[str, ...], info: ValidationInfo) -> float | tuple[str, ...]:
        nothing, matches = ("none", ("label",)) if info.field_name == "labels" else ("0", ("numeric", "auto"))
        match = info.data.get("match", matches[0])
        if value and match not in matches:
            raise refusal(f"{nothing}, because match is {match!r}")
        return value

    def for_references(self, references: Sequence[str]) -> GroundTruth:
        """Return this rewarder as it reads the references of a dataset: what ``auto`` leaves open is decided."""
        if self.match != "auto" and not (self.match == "label" and not self.labels):
            return self
        column = read_column(references)
        if self.match == "label":
            distinct = {plain(text): text for text in reversed(references) if text.strip()}
            return replace(self, labels=column.labels or tuple(distinct.values()))
        match = MATCH_OF.get(column.kind, "auto")
        tolerance = self.tolerance if match in ("numeric", "auto") else 0.0
        read = replace(self, match=match, decimal=column.decimal, labels=column.labels, tolerance=tolerance)
        return replace(read, dates=column.dates)

    def readings(self, records: Sequence[GraderInput]) -> str:
        """Return how the references of records are read, and the first of them, in one line."""
        accepted = [text for each in records for text in self.accepted(each)]
        examples = []
        for record in records[:_EXAMPLES]:
            with suppress(RewardError):
                text, read = shown(self.accepted(record)[0]), self.wanted(record)[0].shown
                examples.append(text if read == text else f"{text} as {read}")
        read_as = f"{len(accepted):,} references read as options" if self.match == "choice" else read_column(accepted)
        return f"{read_as}; the first: {', '.join(examples)}"

    def missing(self, references: Sequence[str]) -> str:
        """Return what has to be installed for some of the references; empty when nothing has to."""
        formulas = 0
        for text in references if self.match == "auto" and not self.knows_algebra else ():
            with suppress(RewardError):
                formulas += isinstance(self.reference(text), FormulaReference)
        if not formulas:
            return ""
        share = f"{formulas:,} of {len(references):,} references"
        return f"{share} are formulas: those written otherwise are not graded; {NEEDS_MATH}"

    def reference(self, text: str, options: Mapping[str, str] = MappingProxyType({}), prompt: str = "") -> Reference:
        """Return a reference as it is read. Raise ``RewardError`` for one that cannot be compared."""
        if not text.strip():
            raise RewardError(NO_REFERENCE)
        # By way of the text, which makes the tolerance 0.1 one tenth exactly.
        tolerance = Fraction(str(self.tolerance))
        listed = self.decimal == "," and is_order_free(prompt) and re.fullmatch(r"-?\d+(?:,-?\d+)+", text)
        if listed:
            return read_reference(text, ".", tolerance, {}, self.equal)
        if self.match == "auto":
            lettered = {} if "1" in options else options  # numbered lines of a prompt may be anything
            return read_reference(text, self.decimal, tolerance, lettered, self.equal, self.dates, prompt=prompt)
        if self.match == "numeric":
            number = reference_number(text, self.decimal)
            if number is None:
                raise RewardError(f"the reference {shown(text)} is no single number")
            return NumberReference(text, number, self.decimal, tolerance, self.equal)
        return self._textual(bare_reference(text), options, prompt)

    def _textual(self, bare: str, options: Mapping[str, str], prompt: str) -> Reference:
        if self.match == "label":
            return self._labelled(bare)
        if self.match == "choice":
            numbered = "1" in options
            if numbered and not re.fullmatch(r"\(?[A-J]\)?", bare):
                return _numbered(bare, options)
            return _lettered(bare, {} if numbered else options, prompt, self.first)
        if self.match == "text" and bare.isdecimal() and INTEGER_ASKED.search(prompt) and (number := reference_number(bare)):
            return NumberReference(bare, number)  # 025 of a competition, not a code
        if self.match == "text" and _PAIR.fullmatch(bare):
            return PairReference(bare)
        return TextReference(bare) if self.match == "text" else ExactReference(bare, self.match == "normalized")

    def _labelled(self, bare: str) -> Reference:
        labels = [*map(plain, self.labels)]
        several = [bare] if plain(bare) in labels else _SEVERAL.split(bare)
        if not all(plain(each) in labels for each in several):
            raise RewardError(f"the reference {shown(bare)} is none of the labels")
        truths = next((each for each in (TRUTH, TRUTH_ABROAD) if {*labels} <= {*each}), {})
        if len(several) > 1:
            return LabelsReference(bare, self.labels, several=tuple(several))
        return LabelReference(bare, self.labels, truths)

    @property
    def knows_algebra(self) -> bool:  # type: ignore[override]
        """Whether formulas that are written differently can be compared."""
        return self.match == "auto" and find_spec("math_verify") is not None

    def score_one(self, item: GraderInput) -> Verdict:
        """Score one attempt. Abstain when no reference is usable."""
        return self.compared(item, item.completion, self.match)


def option_sign(text: str) -> str:
    """Return the letter or the digit of an option that a text is: ``B``, ``(b)``, ``option_b``, ``3``; empty for none."""
    sign = re.fullmatch(r"(?:(?:option|choice|opt|op|answer|ans)[ _]?)?([a-j0-9])", plain(text))
    return sign[1].upper() if sign else ""


def _lettered(bare: str, options: Mapping[str, str], prompt: str, first: int) -> Reference:
    letter = option_sign(bare) or plain(bare)
    if letter.isdecimal() and len(letter) == 1 and int(letter) >= first:
        letter = LETTERS[int(letter) - first]
    if SEVERAL_LETTERS.fullmatch(bare) or JOINED_LETTERS.fullmatch(bare):
        return ChoicesReference(bare, options)
    same = "" if bare.strip("() ") in options else letter_of(bare, options)  # of elements, B is both
    last = max(options or LETTERS)
    if letter in LETTERS[1:] and letter > last and re.search(rf"{letter}[.:)\]\u3001\uff09\uff0e\uff1a]", prompt):
        return ChoiceReference(letter)  # options in a layout that is not read whole
    if not same and not (len(letter) == 1 and "A" <= letter <= last):
        raise RewardError(f"the reference {shown(bare)} is no letter from A to {last}, and no option of its item")
    return ChoiceReference(same or letter, options)


def _numbered(bare: str, options: Mapping[str, str]) -> LabelReference:
    texts = {plain(option): number for number, option in options.items() if plain(option) not in options}
    number = texts.get(plain(bare), plain(bare))
    if number not in options:
        raise RewardError(f"the reference {shown(bare)} is no number from 1 to {max(options)}, and no option of its item")
    return LabelReference(number, tuple(options), texts)


def options_for_references(name: str, options: Mapping[str, Any], references: Sequence[str]) -> dict[str, Any]:
    """Return the options of a rewarder, or of the members of a composite, with what only the references can tell.

    ``gt`` gets its match, its decimal mark, its order of dates and its labels, ``number_match`` its decimal mark, and
    ``label_match`` its labels. What the options say stays.
    """
    decided = dict(options)
    if name == "composite":
        for key in ("parts", "gates"):
            members = options.get(key) or ()
            decided[key] = [
                {**each, "options": options_for_references(each["name"], each.get("options", {}), references)}
                for each in members
            ]
    elif name == "gt":
        read = GroundTruth(**options).for_references(references)
        decided |= {"match": read.match}
        decided |= {"decimal": ","} if read.decimal == "," else {}
        decided |= {"dates": read.dates} if read.dates else {}
        decided |= {"labels": list(read.labels)} if read.labels else {}
    elif name == "number_match" and decimal_mark(references) == ",":
        decided.setdefault("decimal", ",")
    elif name == "label_match" and (labels := read_column(references).labels):
        decided.setdefault("labels", list(labels))
    return decided


ReferenceKind: TypeAlias = Literal["numbers", "options", "labels", "codes", "formulas", "JSON", "long texts", "texts", "mixed"]

_COMMA: Final = re.compile(r"(?<![\w.,])(?:0,\d+|\d+,(?:\d{1,2}|\d{4,})|[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+|\.\d{3}))(?![\w.,]*\d)")
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)+(?:-[a-z]\w*)?", re.IGNORECASE)
_PAIR: Final = re.compile(r"\d+/\d+")
_POINT: Final = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}|0?\.\d+|\d+\.(?:\d{1,2}|\d{4,}))(?![\w.,]*\d)"
)
_THOUSANDS: Final = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w.,]*\d)")
# A pair, a list or an interval, whose commas are none of numbers.
_BRACKETED: Final = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
_SPACED_LIST: Final = re.compile(r"\d,\s+\d")
_MOST_LABELS: Final = 20
# Between the labels of one cell: ``refund, damaged``.
_SEVERAL: Final = re.compile(r"\s*[,;|]\s*")
# Words.
_LONGEST_LABEL: Final = 6
# What code, formulas and numbers have, and no label.
_NO_LABEL: Final = re.compile(r"[()\[\]{}\\|<>=*^$;\"]|(?:^|\s)-\w|^[\d.,%€£ -]+$")
# What a label may have besides words: ``positive (4-5)``, ``A>B``.
_REMARK: Final = re.compile(r"(?<=\w) \([\w ,/.-]{1,30}\)$|(?<=^[A-Z])(?:>>?|<<?|=)(?=[A-Z]$)")
# Items that a label has on average, at least: fewer are names that happen to recur.
_EACH: Final = 3
# Words of a reference beyond which few outputs repeat it word for word.
_LONG: Final = 12


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How the references of a dataset are to be read."""

    kind: ReferenceKind
    total: int
    """References that are not empty."""
    decimal: DecimalMark = "."
    labels: tuple[str, ...] = ()
    """The distinct labels, most frequent first."""
    dates: DateOrder = ""
    """What comes first in dates such as ``03/04/2024``."""

    def __str__(self) -> str:
        count = pluralize(self.total, "reference")
        comma = " with decimal commas" if self.decimal == "," else ""
        if self.kind == "labels":
            names = ", ".join(self.labels[:6]) + (", …" if len(self.labels) > 6 else "")
            return f"{count} with {len(self.labels)} distinct values, read as labels: {names}"
        order = f", dates with the {self.dates} first" if self.dates else ""
        return f"{count} read {'each by its form' if self.kind == 'mixed' else f'as {self.kind}'}{comma}{order}"


def read_column(references: Sequence[str], most_labels: int = _MOST_LABELS) -> ColumnReading:
    """Return how references are to be read.

    A kind is chosen only if every reference has it. ``codes`` are digits with leading zeros, which are no numbers; ``mixed``
    ones are read each by its form. ``most_labels``: how many distinct values may be labels.
    """
    texts = [text.strip() for text in references if text.strip()]
    total = len(texts)
    decimal = decimal_mark(texts)
    if decimal == "." and _are_codes(texts):
        return ColumnReading("codes", total)
    # Prose that mentions one number is none: what a reference states, in a mark or at its end, is short.
    stated = (read.text if (read := stated_answer(text)) else text for text in texts)
    is_prose = texts and median(len(text.split()) for text in stated) > _LONG
    if texts and not is_prose and all(reference_number(text, decimal) is not None for text in texts):
        return ColumnReading("numbers", total, decimal)
    letters = [re.fullmatch(r"\(?[A-J]\)?\.?|\([a-j]\)", text) is not None for text in texts]
    lists = [SEVERAL_LETTERS.fullmatch(text) or (total > 1 and JOINED_LETTERS.fullmatch(text)) for text in texts]
    if texts and all(one or several for one, several in zip(letters, lists, strict=True)):
        return ColumnReading("options", total)
    for labels in ([*chain.from_iterable(map(_SEVERAL.split, texts))] if _are_sets(texts) else [], texts):
        if frequent := _labels_of(labels, most_labels):
            return ColumnReading("labels", total, labels=frequent)
    kind: ReferenceKind = "mixed"
    if texts and all(JsonReference.of(text) is not None for text in texts):
        kind = "JSON"
    elif texts and sum(map(is_formula, texts)) * 2 > total:
        kind = "formulas"
    elif texts and median(len(text.split()) for text in texts) > _LONG:
        kind = "long texts"
    elif not any(reference_number(text) is not None or is_formula(text) for text in texts):
        kind = "texts"
    dates = [each for each in map(SLASHED.fullmatch, texts) if each and "." not in each[0]]
    # The month comes first where the other part can only be a day.
    days = [any(int(each[part]) > 12 for each in dates) for part in ("one", "two")]
    return ColumnReading(kind, total, decimal, dates="" if days[0] == days[1] else "day" if days[0] else "month")


def _are_sets(texts: Sequence[str]) -> bool:
    """Return whether cells have several labels, not the parts of one, ``Paris, France``, nor so many in different orders.

    Two labels are alone in one cell and beside others in another, or there are fewer labels than cells that differ.
    """
    sets = {plain(text): _SEVERAL.split(plain(text)) for text in texts}
    alone, beside = (
        {label for each in sets.values() if (len(each) > 1) is several for label in each} for several in (False, True)
    )
    ordered = len({*map(len, sets.values())}) == 1 and len({*map(frozenset, sets.values())}) < len(sets)
    return not ordered and bool(beside) and (len(alone & beside) > 1 or len(alone | beside) < len(sets))


def _labels_of(texts: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the distinct labels that texts are, the most frequent first; empty where they are none."""
    spellings = {plain(text): text for text in reversed(texts)}
    frequent = tuple(spellings[each] for each, _ in Counter(map(plain, texts)).most_common())
    short = all(len(label.split()) <= _LONGEST_LABEL and "\n" not in label for label in frequent)
    few = len(frequent) <= most and len(frequent) * _EACH <= len(texts)
    few = few and not any(_NO_LABEL.search(_REMARK.sub("", each)) for each in frequent)
    truth = {*spellings} <= {"yes", "no"} or {*spellings} <= {"true", "false"}
    return frequent if short and (few or truth) else ()


def _are_codes(texts: Sequence[str]) -> bool:
    """Return whether what looks like numbers is none: ``007``, ``3.10`` next to ``3.1`` or ``3.1.4``, ``120/80``, ``12A``."""
    if all(re.fullmatch(r"\d+", text) for text in texts):
        return any(re.fullmatch(r"0\d+", text) for text in texts)
    if texts and all(re.fullmatch(r"\d+[A-Z]|#[\dA-Fa-f]+", text) for text in texts):
        return any(text[-1] not in UNITS and text[-1].lower() not in MAGNITUDES for text in texts)
    if texts and all(map(_PAIR.fullmatch, texts)):
        reduced = (gcd(*map(int, text.split("/"))) == 1 for text in texts)
        return 3 * sum(reduced) < 2 * len(texts)
    numbers = [*map(reference_number, {*texts})] if all(map(_VERSION.fullmatch, texts)) else []
    return 0 < len({number.value for number in numbers if number is not None}) < len(numbers)


def decimal_mark(references: Sequence[str]) -> DecimalMark:
    """Return the decimal mark of a column: a comma where some number can only have one, and none can only have a point."""
    if any(re.search(r"\\[a-zA-Z]{2,}|[a-z]\^", text) for text in references):
        return "."  # lists of numbers among formulas
    texts = [_BRACKETED.sub(" ", text) for text in references]
    commas, thousands = (sum(pattern.search(text) is not None for text in texts) for pattern in (_COMMA, _THOUSANDS))
    behind = [each.partition(".")[2] for each in texts if re.fullmatch(r"-?\d{1,3}(?:\.\d{3})?", each)]
    if len(behind) == len(texts) and "" in behind and any(each.endswith("0") for each in behind):
        return ","  # 850 beside 12.000: those are no decimals
    lists = any(map(_SPACED_LIST.search, texts))
    return "," if commas > thousands and not lists and not any(map(_POINT.search, texts)) else "."
