"""Propose how items and rewards are read from a dataset: columns by their names and values, rewarders by the references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.tree import RewarderSettings, is_template
from tfgrpo.rewarders.gt import GroundTruth, options_for_references
from tfgrpo.rewarders.text.columns import read_column
from tfgrpo.stores.errors import DatasetError

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "item_id", "question_id", "uid", "uuid", "key"),
    "prompt": (
        "prompt", "question", "question_stem", "query", "problem", "instruction", "instructions", "input", "task", "goal",
        "ctx", "sentence", "text", "review",
        "frage", "aufgabe", "pregunta", "pergunta", "domanda", "问题", "질문", "質問", "вопрос",
    ),
    "answer": (
        "answer", "answers", "solution", "expected", "expected_output", "expected_answer", "reference", "references",
        "ground_truth", "ground_truths", "target", "gold", "answer_key", "correct_answer", "best_answer", "*_answer",
        "correct_option", "correct", "cop", "label", "labels", "output", "response", "completion", "category", "class",
        "sentiment", "intent", "result", "gold_label", "label_text", "summary", "translation",
        "antwort", "lösung", "loesung", "ergebnis", "réponse", "reponse", "respuesta", "resposta", "risposta", "答案",
        "답변", "回答", "ответ",
    ),
    "system_prompt": ("system_prompt", "system"),
    "metadata": ("metadata",),
    "domain": ("domain",),
}  # fmt: skip
"""Names of columns by the field that they probably are, likeliest first."""
_BESIDE: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    **dict.fromkeys(
        ("question", "query"),
        (("context", "passage", "paragraph", "document", "article", "story", "text", "table"), ()),
    ),
    **dict.fromkeys(("instruction", "instructions"), ((), ("input", "context"))),
}
"""What a prompt is not complete without, by the name of its column: names of columns before and after it."""
_LETTERED: Final = re.compile(r"(?:(option|choice|opt|op|answer_option|ending|sol)_?)?([a-j]|[1-9])")
_LISTED: Final = ("choices", "options", "endings", "answer_choices")
_TEXTS: Final = ("text", "texts", "aliases", "value")
"""Keys of an object that holds the accepted answers."""
_LOOKED_AT: Final = 1_000
"""Items whose references are looked at."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a dataset that its fields are probably read from."""

    fields: Mapping[str, str | None]
    """Column or template by name of the field; None for a field that no column is surely."""
    options: str = ""
    """The template of the options of multiple-choice questions; empty without any."""
    count: int = 0
    """Options of the first item."""

    def prompt_with_options(self) -> str:
        """Return the template of a prompt with its options."""
        prompt = self.fields["prompt"] or ""
        return f"{prompt if is_template(prompt) else f'{{{prompt}}}'}\n\n{self.options}"


def proposed_columns(columns: Sequence[str], row: Mapping[str, Any], chosen: Mapping[str, str | None]) -> Columns:
    """Return the columns of the fields, by their names and the values of the first row; ``chosen`` ones are given."""
    # Reversed: of columns that differ in case and punctuation only the first counts.
    by_name = {_name(column): column for column in reversed(columns)}
    answers = [column for name, column in by_name.items() if name.endswith("_answer")]
    by_name |= {"*_answer": answers[0]} if len(answers) == 1 else {}
    found: dict[str, str | None] = {}
    for field, names in _NAMES.items():
        taken = {*found.values()}
        guess = next((by_name[name] for name in names if name in by_name and by_name[name] not in taken), None)
        found[field] = chosen.get(field) or guess
    answer = found["answer"]
    if answer is not None and isinstance(value := row.get(answer), Mapping):
        found["answer"] = next((f"{answer}.{key}" for key in _TEXTS if value.get(key)), answer)
    if chosen.get("prompt") or found["prompt"] is None:
        return Columns(found)
    found["prompt"] = _whole_prompt(found["prompt"], by_name, row, {*found.values()})
    options, count = _options(columns, row)
    return Columns(found, options, count)


def _name(column: str) -> str:
    """Return a column's name in one spelling: ``answerKey`` and ``Answer Key`` are ``answer_key``."""
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", column).lower()).strip("_")


def _whole_prompt(prompt: str, by_name: Mapping[str, str], row: Mapping[str, Any], taken: set[str | None]) -> str:
    """Return the column of the prompt, or a template with the text that it is about."""
    beside = _BESIDE.get(_name(prompt))
    if beside is None:
        return prompt
    before, after = (
        next((by_name[name] for name in names if name in by_name and by_name[name] not in taken), None)
        for names in beside
    )
    parts = [each for each in (before, prompt, after) if each is not None and isinstance(row.get(each), str)]
    return "\n\n".join(f"{{{each}}}" for each in parts) if len(parts) > 1 else prompt


def _options(columns: Sequence[str], row: Mapping[str, Any]) -> tuple[str, int]:
    """Return the template of the options and their number: one column for each letter or number, or a list."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if match := _LETTERED.fullmatch(_name(column)):
            sign = match[2] if match[2].isalpha() else chr(ord("a") + int(match[2]) - 1)
            found.setdefault(f"{match[1] or ''}{match[2].isalpha()}", {})[sign] = column
    for named in found.values():
        signs = sorted(named)
        if len(signs) > 1 and signs == [chr(ord("a") + index) for index in range(len(signs))]:
            return "\n".join(f"{sign.upper()}) {{{named[sign]}}}" for sign in signs), len(signs)
    for column in columns:
        value = row.get(column)
        listed = value.get("text") if isinstance(value, Mapping) else value
        if column.lower() in _LISTED and isinstance(listed, list) and len(listed) > 1:
            return f"{{{column}.text}}" if isinstance(value, Mapping) else f"{{{column}}}", len(listed)
    return "", 0


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewarders that fit the references of a dataset."""

    entries: tuple[RewarderSettings, ...]
    reason: str
    """What was seen, in one line."""


def chosen_options(name: str, items: Iterable[Item], count: int) -> Rewards | None:
    """Return the rewarder of multiple-choice items, whose prompts show ``count`` options; None for other references.

    A reference that is the number of an option counts from 0 or 1, whichever the numbers show. Raise
    ``DatasetError`` naming the dataset where they show neither.
    """
    known = [item for item in islice(items, _LOOKED_AT) if item.accepted]
    numbers = {int(item.answer) for item in known if re.fullmatch("[0-9]", item.answer.strip())}
    options: dict[str, Any] = {"match": "choice"}
    options |= {"first": 1} if numbers and 0 not in numbers and max(numbers) >= count else {}
    read = GroundTruth(**options)
    if not known or any(read.unusable(item.as_record()) for item in known):
        return None
    if numbers and 0 not in numbers and max(numbers) < count:
        given = f"the numbers of options from {min(numbers)} to {max(numbers)}, of {count}: counted from 0 or from 1?"
        raise DatasetError.one(
            name, given, "letters, the texts of the options, or numbers with the first or last of them"
        )
    return _with_rank("gt", options, f"{len(known):,} references read as one of the options")


def proposed_rewards(items: Iterable[Item]) -> Rewards:
    """Return the rewarders for items: by their references, and a judge where there is nothing to compare with.

    Long texts are judged beside their reference: nobody repeats them word for word.
    """
    answers = [answer for item in islice(items, _LOOKED_AT) for answer in item.accepted]
    if not answers:
        return _with_rank("judge", {}, "no references: a model judges")
    column = read_column(answers)
    if column.kind == "long texts":
        return _with_rank("judge", {"reference": True}, f"{column}: a model judges beside the reference")
    return _with_rank("gt", options_for_references("gt", {}, answers), str(column))


def _with_rank(name: str, options: Mapping[str, Any], reason: str) -> Rewards:
    entries = (RewarderSettings(name=name, options=dict(options)), RewarderSettings(name="relative", weight=0.0))
    return Rewards(entries, reason)
