"""Define an item, one task of a dataset, read from a row by the mapped names of its fields; count what scorers cannot use."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from string import ascii_uppercase
from typing import Any, Final

from tfgrpo.pipelines.settings.tree import (
    METADATA,
    FieldMap,
    columns_of,
    first_part,
    is_template,
    mixed_columns,
    template_parts,
)
from tfgrpo.rewarders.composite import AnyScorer, scorers_within
from tfgrpo.rewarders.gt import MATCH_OF, read_column
from tfgrpo.rewarders.scorer import Scorer
from tfgrpo.rewarders.text.answers import written_value
from tfgrpo.rewarders.text.options import options_of
from tfgrpo.stores.errors import DatasetError, PipelineError, Problem
from tfgrpo.stores.json_values import canonical_json, key_digest, mapping_of
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.text import quoted_names

_ABSENT = object()
OPTION_COLUMNS: Final = (
    "choices", "options", "endings", "answer_choices", "answer_options", "alternatives", "candidates", "question_choices",
)  # fmt: skip
DROP_KEYS: Final = frozenset({"number", "spans", "date"})
"""Keys of an answer in the form of DROP, which is one of them."""
_EXAMPLES: Final = 3
_KEYWORDS: Final = 5


@dataclass(frozen=True, slots=True)
class Item:
    """One task. ``answer`` is shown to rewarders and to the reflecting model, never to an actor."""

    id: str
    prompt: str
    answer: str
    """The first accepted answer; empty when there is no reference answer."""
    system_prompt: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    source: str = ""
    alternatives: tuple[str, ...] = ()
    """Further accepted answers, in the order of the dataset."""

    @property
    def foreign(self) -> bool:
        """Whether strangers wrote it: it was kept from the traffic of production, which the gateway marks."""
        return bool(self.metadata.get("foreign"))

    def as_record(self) -> dict[str, Any]:
        """Return what scorers of single attempts see of it."""
        answer = list(self.accepted) if self.alternatives else self.answer or None
        return {"prompt": self.prompt, "answer": answer, "metadata": dict(self.metadata)}

    @property
    def accepted(self) -> tuple[str, ...]:
        """All accepted answers; empty when there is no reference answer."""
        return (self.answer, *self.alternatives) if self.answer.strip() else ()


def item_of(values: Mapping[str, Any], fields: FieldMap, *, number: int, source: str) -> Item:
    """Return the item of a row; ``number`` is its id where ``fields.id`` is None.

    Raise ``DatasetError`` naming the field.
    """
    text = partial(_text, values, source)
    answer, *alternatives = _answers(values, source, fields.answer)
    return Item(
        id=str(number) if fields.id is None else text(fields.id, numbers=True, required=fields),
        prompt=text(fields.prompt, required=fields),
        answer=answer,
        system_prompt=text(fields.system_prompt),
        metadata=_metadata(values, source, fields),
        domain=text(fields.domain),
        source=source,
        alternatives=tuple(alternatives),
    )


def _text(values: Mapping[str, Any], source: str, name: str, *, numbers: bool = False, required: FieldMap | None = None) -> str:
    """Return a field as text. Absent and null are empty, unless ``required``; a number becomes its text."""
    template = is_template(name)
    value = _filled(values, source, name) if template else value_at(values, name)
    what = f"the columns of the template {name!r}" if template else f"the field {name!r}"
    remedy = required.remedy(columns_of(name)[0]) if required is not None else ""
    accepted = f"{'text or a number' if numbers else 'text'} in {what}"
    if value is None and remedy:
        received = f"{'nothing' if template else 'null'} in {what}"
        if not template and name not in values:
            received = f"no {name!r} among the fields {quoted_names(values)}"
        raise DatasetError.one(source, received, f"{accepted}, {remedy}")
    if value is None:
        return ""
    if numbers and is_number(value, allow_nan=False):
        value = str(value)
    if not isinstance(value, str):
        received = str(value) if isinstance(value, float) else type(value).__name__
        raise DatasetError.one(source, f"{received} in {what}", accepted)
    if remedy and not value.strip():
        raise DatasetError.one(source, f"no {name!r}", f"{accepted} that is not empty")
    return value


def _answers(values: Mapping[str, Any], source: str, name: str) -> Sequence[str]:
    """Return the accepted answers, at least one, which is empty without a reference. Of a list every entry is one."""
    value = _filled(values, source, name) if is_template(name) else value_at(values, name)
    value = _in_drop(value) if isinstance(value, dict) and value.keys() >= DROP_KEYS else value
    # A list in a cell of a table.
    if isinstance(value, str) and name.lower().endswith(("answers", "aliases")):
        listed = written_value(value)
        value = listed if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed) else value
    try:
        if not isinstance(value, list) or any(isinstance(each, list | dict) for each in value):
            return [_as_text(value)]
        return [*dict.fromkeys(text for text in map(_as_text, value) if text.strip())] or [""]
    except ValueError:
        received = str(value) if isinstance(value, float) else "NaN or infinity"
        raise DatasetError.one(source, f"{received} in the field {name!r}", f"text or a number in the field {name!r}") from None


def _in_drop(answer: Mapping[str, Any]) -> object:
    # The content of an answer of DROP: a number, spans of the text, or a date.
    date = answer["date"] if isinstance(answer["date"], Mapping) else {}
    spans = answer["spans"] if isinstance(answer["spans"], list) else [answer["spans"]]
    parts = ([answer["number"]], spans, [date.get(name) for name in ("day", "month", "year")])
    texts = ([text for each in part if (text := _as_text(each).strip())] for part in parts)
    number, all_spans, moment = texts
    return "".join(number) or ", ".join(all_spans) or " ".join(moment)


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else str(value) if is_number(value, allow_nan=False) else canonical_json(value)


def _as_part(value: object) -> str:
    # Options are lines with letters: a list of texts, which may start with their letters, or an object of letters.
    if isinstance(value, Mapping) and value and all(re.fullmatch("[A-Za-z]", key) for key in value):
        return "\n".join(f"{letter.upper()}) {_as_text(each)}" for letter, each in value.items() if each is not None)
    fits = isinstance(value, list) and 0 < len(value) <= len(ascii_uppercase)
    if not isinstance(value, list) or not fits or any(isinstance(each, list | dict) for each in value):
        return _as_text(value)
    lettered = list(zip(ascii_uppercase, map(_as_text, value), strict=False))
    marks = [re.match(rf"[(\[]?{letter} ?[).:\]]\s*", text, re.IGNORECASE) for letter, text in lettered]
    bare = [text[mark.end() :] for (_, text), mark in zip(lettered, marks, strict=True) if mark is not None]
    texts = bare if len(bare) == len(value) else [text for _, text in lettered]
    return "\n".join(f"{letter}) {text}" for letter, text in zip(ascii_uppercase, texts, strict=False))


def option_list(value: object) -> object:
    """Return the options that a text lists as JSON, as Python, or between bars, semicolons or line ends; else the value."""
    if not isinstance(value, str) or len(options_of(value)) > 1:
        return value
    marks = (mark for mark in "|;\n" if mark in value)
    listed: object = written_value(value) or [each.strip() for each in value.split(next(marks, value)) if each.strip()]
    return listed or value


def _filled(values: Mapping[str, Any], source: str, template: str) -> str | None:
    """Return a template with its columns filled in; None when all of them are empty."""
    columns = {name: value_at(values, name, _ABSENT) for name in columns_of(template)}
    if missing := [name for name, value in columns.items() if value is _ABSENT]:
        received = f"no {quoted_names(missing)} among the fields {quoted_names(values)}"
        raise DatasetError.one(source, received, f"a value for every column of the template {template!r}")
    parts = template_parts(template)
    try:
        mixed = {name: _mixed([columns[each] for each in several]) for _, name in parts if (several := mixed_columns(name))}
        texts = {"": ""}
        for name, value in (columns | mixed).items():
            texts[name] = _as_part(option_list(value) if name.lower() in OPTION_COLUMNS else value)
    except ValueError:
        raise DatasetError.one(source, "NaN or infinity", f"text or numbers for the template {template!r}") from None
    if not any(text.strip() for text in texts.values()):
        return None
    return "".join(literal + texts[name] for literal, name in parts)


def _mixed(values: Sequence[object]) -> list[str] | None:
    # In an order of chance, the same every time; a single text would be the answer.
    texts = [_as_text(each) for value in values for each in (value if isinstance(value, list) else [value])]
    every = {line: None for text in texts if (line := " ".join(text.split()))}
    return sorted(every, key=lambda text: key_digest(canonical_json([text, *sorted(every)]))) if len(every) > 1 else None


def _metadata(values: Mapping[str, Any], source: str, fields: FieldMap) -> Mapping[str, Any]:
    # It may be text, as cells of tables have it; of another kind than an object it is a column as any other.
    own = values.get(METADATA)
    if isinstance(own, str) and own.lstrip()[:1] == "{":
        own = written_value(own)
        if not isinstance(own, dict):
            received = f"no JSON in the field {METADATA!r}, which begins as an object"
            raise DatasetError.one(source, received, f"a JSON object in the field {METADATA!r}")
    columns = {name: value for name, value in values.items() if value not in (None, "")}
    for name in fields.withheld:
        columns.pop(first_part(name, values), None)
    if not isinstance(own, dict) or METADATA in fields.withheld:
        return columns
    inside = {name.split(".")[1] for name in fields.withheld if name.startswith(f"{METADATA}.")}
    columns.pop(METADATA, None)
    return {**columns, **{name: value for name, value in own.items() if name not in inside}}


def value_at(values: Mapping[str, Any], name: str, default: object = None) -> Any:
    """Return the column of exactly this name, else the value at the dotted path; ``default`` if absent.

    A number in the path is a position in a list; another name takes that of every object in the list.
    """
    if name in values or "." not in name:
        return values.get(name, default)
    value: object = values
    for key in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(key, _ABSENT)
        elif isinstance(value, list) and key.isdecimal():
            value = value[int(key)] if int(key) < len(value) else _ABSENT
        elif isinstance(value, list):
            value = [each[key] for each in value if isinstance(each, Mapping) and key in each] or _ABSENT
        else:
            return default
    return default if value is _ABSENT else value


def text_digest(item: Item) -> int:
    """Return the digest of the prompts, with white space folded: equal for the same question."""
    return key_digest("\x1f".join(" ".join(text.split()) for text in (item.system_prompt, item.prompt)))


def item_texts(item: Item) -> list[str]:
    """Return the fields that actors, rewarders and graders read; alternatives and metadata last, if there are any."""
    alternatives = [json.dumps(item.alternatives)] if item.alternatives else []
    metadata = [json.dumps(dict(item.metadata), sort_keys=True, default=str)] if item.metadata else []
    return [item.id, item.prompt, item.answer, item.system_prompt, *alternatives, *metadata]


def same_questions(items: Sequence[Item]) -> list[list[int]]:
    """Return the indices of items that ask the same in the same words, grouped, in order of first occurrence."""
    groups: dict[int, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(text_digest(item), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


class RecordCounts:
    """Counts what each of some scorers cannot use."""

    def __init__(self, scorers: Iterable[AnyScorer]) -> None:
        singles = (each for scorer in scorers for _, each in scorers_within(scorer) if isinstance(each, Scorer))
        self._counts = [_Count(each) for each in singles if each.unusable is not None or each.overlooked is not None]

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, where: str, record: object) -> None:
        """Count the record of the item at ``where``."""
        for count in self._counts:
            count.add(where, mapping_of(record))

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each scorer that cannot use some records, or does not look at all of them."""
        return tuple(sentence for count in self._counts for sentence in count.sentences())

    def refuse_useless(self, names: Collection[str], answers: Sequence[str]) -> None:
        """Raise ``PipelineError`` for scorers of these names that can use no record at all."""
        useless = [count for count in self._counts if count.name in names and 0 < count.total == count.unusable]
        if useless:
            column = read_column(answers)
            fitting = f"a rewarder that can; for gt `match: {MATCH_OF.get(column.kind, 'auto')}` fits: {column}"
            raise PipelineError([Problem(f"rewarders: {each.name}", str(each), fitting) for each in useless])


class _Count:
    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.rewarder_id
        self.total = self.unusable = 0
        self._scorer = scorer
        self._examples: list[str] = []
        self._overlooked: Counter[str] = Counter()
        self._partly, self._first = 0, ""

    def add(self, where: str, record: Mapping[str, Any]) -> None:
        # Counted as an item without an answer.
        if self._scorer.needs_answer and record.get("answer") in (None, "", []):
            return
        self.total += 1
        reason = self._scorer.unusable(record) if self._scorer.unusable is not None else None
        if reason is not None:
            self.unusable += 1
            if len(self._examples) < _EXAMPLES:
                self._examples.append(f"{where}: {reason}")
        if self._scorer.overlooked is not None and (names := self._scorer.overlooked(record)):
            self._partly += 1
            self._first = self._first or where
            self._overlooked.update(names)

    def __str__(self) -> str:
        return f"{self.unusable:,} of {self.total:,} items that it cannot grade: {'; '.join(self._examples)}"

    def sentences(self) -> Iterator[str]:
        if self.unusable:
            yield f"{self.name}: {self}; they have no reward"
        if self._partly:
            names = [name for name, _ in self._overlooked.most_common()]
            which = ", ".join(names[:_KEYWORDS]) + (" and more" if len(names) > _KEYWORDS else "")
            where = f"in {self._partly:,} of {self.total:,} schemas, the first at {self._first}"
            yield f"{self.name} does not look at {which} {where}; json_conforms validates against the whole schema"
