"""Propose how items and rewards are read from a dataset: columns by their names and values, rewarders by the references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from string import ascii_uppercase
from typing import Any, Final

from tfgrpo.pipelines.datasets.items import DROP_KEYS, OPTION_COLUMNS, Item, option_list, value_at
from tfgrpo.pipelines.settings.tree import FieldMap, RewarderSettings, columns_of, first_part, is_template
from tfgrpo.rewarders.gt import ColumnReading, GroundTruth, option_sign, options_for_references, read_column
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Scorer, answer_text
from tfgrpo.rewarders.text.answers import several_in
from tfgrpo.rewarders.text.options import options_of
from tfgrpo.rewarders.text.rules import shown
from tfgrpo.stores.errors import DatasetError, PipelineError
from tfgrpo.stores.text import pluralize, quoted_names

_CONVERSATIONS: Final = ("messages", "conversations", "conversation")
# Names of columns by the field that they probably are, likeliest first; a `*` means what only one column has.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "item_id", "question_id", "uid", "uuid", "key", "*_id"),
    "prompt": (
        "prompt", "question", "question_stem", "stem", "query", "problem", "instruction", "instructions", "input", "task",
        "goal", "premise", "claim", "statement", "hypothesis", "ctx", "sentence", "sentence_1", "text", "text_1",
        "question_1", "review", "*_question", "*_problem", "*_query", "*_input", "question_text",
        "problem_text", "message", "tweet", "comment", "post", "utterance",
        "document", "article", "passage", "dialogue", "source", *_CONVERSATIONS,
        "frage", "aufgabe", "pregunta", "pergunta", "domanda", "问题", "질문", "質問", "вопрос",
    ),
    "answer": (
        "answer", "answers", "solution", "expected", "expected_output", "expected_answer", "reference", "references",
        "ground_truth", "ground_truths", "target", "targets", "gold", "ideal", "answer_key", "correct_answer", "best_answer",
        "final_decision", "ans", "*_ans", "*_answer", "answer_number", "answer_text",
        "correct_option", "correct", "cop", "answer_idx", "answer_index",
        "label_text", "label_name", "label", "labels", "gold_label", "answers_spans", "output", "response", "completion",
        "*_answers", "*_solution", "*_solutions", "chosen", "category", "class", "sentiment", "emotion", "intent", "result",
        "verdict", "summary", "highlights", "translation", "score", "rating", "stars", "sql", "query", "code",
        "antwort", "lösung", "loesung", "ergebnis", "réponse", "reponse", "respuesta", "resposta", "risposta", "答案",
        "답변", "回答", "ответ",
    ),
    "system_prompt": ("system_prompt", "system"),
    "domain": ("domain",),
}  # fmt: skip
# Names that are an answer only where there is no other: the category of a question is none.
_WEAK: Final = frozenset(_NAMES["answer"][_NAMES["answer"].index("chosen") :])
_CONTEXT: Final = (
    "context", "contexts", "passage", "paragraph", "document", "article", "story", "dialogue", "body", "premise", "evidence",
    "sentence", "text", "table",
)  # fmt: skip
# What a prompt is not complete without, by the name of its column: names of columns before and after it.
_BESIDE: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    **dict.fromkeys(("question", "query", "stem", "claim", "statement"), (_CONTEXT, ())),
    **dict.fromkeys(("instruction", "instructions"), ((), ("input", "context"))),
}
_PAIRS: Final = {"premise": "hypothesis", "sentence_1": "sentence_2", "text_1": "text_2", "question_1": "question_2"}
_LETTERED: Final = re.compile(
    r"(?:(option|choice|opt|op|answer_option|answer|ans|ending|sol|solution|alternative|candidate)_?)?([a-j]|[0-9])"
)
_SIGNS: Final = ("abcdefghij", "0123456789", "123456789")
# Keys of an object of accepted answers.
_TEXTS: Final = ("text", "texts", "aliases", "value", "spans", "answer", "answers")
_CONTEXT_TEXTS: Final = ("contexts", "text", "sentences", "passages")
# Roles of the messages of a chat that asks one question, and may answer it, as data for fine-tuning do.
_ASKED: Final = re.compile(r"((?:system |developer )?)(?:user|human)((?: assistant| gpt)?)")
_LIKE_AN_ANSWER: Final = re.compile(r"answ|label|soluti|target|gold|correct|truth|decision|ideal|expect|ref|result|score")
_ID: Final = re.compile(r"(?:^|_)(?:id|uid|uuid|nr)$")
# The number of something, where each row has another: `Rechnungsnr`, `invoice_no`.
_NUMBER: Final = re.compile(r"(?:nr|nummer|_no)$")
_WRONG: Final = re.compile(r"incorrect|wrong|rejected|false|bad")
_WRONG_OPTION: Final = re.compile(r"(?:(?:incorrect|wrong|false)(?:_(?:answer|option|choice))?s?|distractors?)(?:_?\d+)?")
_FLAGS: Final = frozenset({"true", "false", "yes", "no", "0", "1"})
# What a column of a template cannot have in its name.
_NOT_IN_BRACES: Final = re.compile(r"[{}|!:]")
_SQL: Final = re.compile(r"\s*(?:select\b.+?\bfrom\b|with\b.+?\bas\s*\()", re.IGNORECASE | re.DOTALL)
_LOOKED_AT: Final = 1_000
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class ProposedColumns:
    """The columns of a dataset that its fields are probably read from."""

    fields: Mapping[str, str | None]
    """Column or template by name of the field; None for a field that no column is surely."""
    options: str = ""
    count: int = 0
    notes: tuple[str, ...] = ()
    chat: str = ""
    """The column of prompts that are conversations, of which no one message is the question; empty without any."""

    def prompt_with_options(self) -> str:
        """Return the template of a prompt with its options."""
        prompt = self.fields["prompt"] or ""
        return f"{prompt if is_template(prompt) else f'{{{prompt}}}'}\n\n{self.options}"


def proposed_columns(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, str | None]
) -> ProposedColumns:
    """Return the columns of the fields, by their names and the values of the first rows; ``chosen`` ones are given."""
    seen = _Seen(columns, rows)
    fields = {name: chosen.get(name) or seen.first(_NAMES[name]) for name in ("id", "system_prompt", "domain")}
    pair = seen.pair({*fields.values()})
    fields["prompt"] = chosen.get("prompt") or seen.prompt()
    if fields["prompt"] is None:
        likely = seen.answers(set())[:1]
        fields["prompt"] = next((column for column in pair if column not in likely), None)
    fits = not (chosen.get("prompt") or _NOT_IN_BRACES.search(fields["prompt"] or ""))
    options, count = _options(seen) if fits else ("", 0)
    shown = {column for text in (*fields.values(), options) if text for column in columns_of(text)}
    named = chosen.get("answer")
    answers = [named] if named else seen.answers(shown)
    answers = answers or [column for column in pair if column not in shown]
    texts = seen.texts({*shown, *answers}) if fields["prompt"] is None and answers else []
    if texts:
        fields["prompt"] = "\n\n".join(f"{{{column}}}" for column in texts) if texts[1:] else texts[0]
    fields["answer"] = seen.inside(answers[0], _TEXTS) if answers else None
    if answers and not options and fits:
        options, count = _with_wrong(seen, answers[0])
    chat = ""
    if fields["prompt"] is not None:
        if (messages := seen.messages(fields["prompt"])) is None:
            chat = fields["prompt"]
        fields |= {name: path for name, path in (messages or {}).items() if name != "answer" or not answers}
        answers = answers or [path for path in [fields["answer"]] if path is not None]
        if not chosen.get("prompt"):
            fields["prompt"] = seen.whole_prompt(fields["prompt"], {*fields.values(), *answers[:1]})
    read = (*fields.values(), options if answers else "")
    used = {first_part(name, columns) for text in read if text for name in columns_of(text)}
    notes = (*seen.notes(texts, answers, used), *([] if named else seen.whole_objects(fields["answer"])))
    return ProposedColumns(fields, options, count, notes, chat)


@dataclass(frozen=True, slots=True)
class _Seen:
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def values(self, path: str) -> list[Any]:
        cells = (value_at(row, path) for row in self.rows)
        return [value for value in cells if value is not None and value not in ("", [], {})]

    def named(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the columns of these names, then those of objects that no name is known of."""
        inner = {
            _name(key): f"{column}.{key}"
            for column in reversed(self.columns)
            if _name(column) not in _CLOSED
            for value in self.values(column)[:1]
            if isinstance(value, Mapping)
            for key, held in value.items()
            if isinstance(held, str | int | float) or any(_roles(held))
        }
        # Reversed: of columns that differ in case and punctuation only the first counts.
        for paths in ({_name(column): column for column in reversed(self.columns)}, inner):
            for name in names:
                same = [paths[name]] if name in paths else []
                same += [path for each, path in paths.items() if name[:1] == "*" and each.endswith(name[1:])]
                yield from same if len(same) == 1 else ()

    def first(self, names: Iterable[str]) -> str | None:
        return next((path for path in self.named(names) if path in self.columns), None)

    def prompt(self) -> str | None:
        candidates = list(dict.fromkeys(self.named(_NAMES["prompt"])))
        asking = (path for path in candidates if any(isinstance(each, str | list) for each in self.values(path)))
        return next(asking, None if self.rows and len(candidates) != 1 else next(iter(candidates), None))

    def pair(self, taken: set[str | None]) -> list[str]:
        """Return the columns of a file with two besides ids, the likelier prompt first; empty for another file."""
        left = [column for column in self.columns if column not in taken and not _ID.search(_name(column))]
        if len(left) > 2:
            differs = {column: len({*map(str, self.values(column))}) == len(self.values(column)) for column in left}
            left = [column for column in left if not (_NUMBER.search(_name(column)) and differs[column])]
        texts = [self.values(column) for column in left]
        objects = [any(isinstance(value, Mapping) for value in values) for values in texts]
        if any(objects) and (all(objects) or any(_name(column) in _CLOSED for column in left)):
            return []
        readable = all(isinstance(value, str | int | float | Mapping) for values in texts for value in values)
        named = all(re.fullmatch(r"[^\W\d][\w .#-]{0,40}", column) for column in left)
        differ = all(len({*map(str, values)}) > 1 for values in texts)
        if len(left) != 2 or not readable or not named or not differ:
            return []
        # An object is the answer.
        if any(objects):
            return left[::-1] if objects[0] else left
        longer = median(len(str(value)) for value in texts[1]) > 40 + median(len(str(value)) for value in texts[0])
        return left[::-1] if longer else left

    def texts(self, taken: set[str]) -> list[str]:
        """Return the one or two columns of text of three words and more; none where there are more of them."""
        read = {column: self.values(column) for column in self.columns if column not in taken}
        texts = [
            column
            for column, values in read.items()
            if values
            and all(isinstance(value, str) for value in values)
            and median(len(value.split()) for value in values) > 2
            and not _LIKE_AN_ANSWER.search(_name(column))
            and not _WRONG_OPTION.fullmatch(_name(column))
            and not is_template(column)
        ]
        fit = len(texts) == 1 or (len(texts) == 2 and not any(map(_NOT_IN_BRACES.search, texts)))
        return texts if fit else []

    def answers(self, taken: set[str]) -> list[str]:
        """Return the likeliest first. A column of long texts comes behind one that can be compared."""
        named = [path for path in dict.fromkeys(self.named(_NAMES["answer"])) if not _WRONG.match(_name(path))]
        paths = [path for path in named if path not in taken and (not self.rows or self.values(path))]
        paths = [path for path in paths if _name(path) != "query" or all(map(_is_sql, self.values(path)))]
        strong = [path for path in paths if _name(path.rpartition(".")[2]) not in _WEAK]
        return sorted(strong, key=lambda path: self.kind(path) == "long texts") or paths

    def kind(self, path: str) -> str:
        cells = (value if isinstance(value, list) else [value] for value in self.values(path))
        return read_column([answer_text(each) for cell in cells for each in cell]).kind

    def inside(self, path: str, keys: Sequence[str]) -> str:
        """Return the path of the texts within a column of objects, or of lists of objects with nothing else but numbers."""
        values = self.values(path)
        objects = [value for value in values if isinstance(value, Mapping)]
        for value in values if not objects else ():
            held = value if isinstance(value, list) and all(isinstance(each, Mapping) for each in value) else []
            numbered = all(isinstance(each[key], str) == (key in keys) for each in held for key in each)
            objects += held if numbered else []
        if any(value.keys() >= DROP_KEYS for value in objects):
            return path
        held_by = (key for key in keys if any(value.get(key) not in (None, "", []) for value in objects))
        return next((f"{path}.{key}" for key in held_by), path)

    def messages(self, prompt: str) -> dict[str, str] | None:
        """Return the paths of the messages of a chat as fields; none for text. None for a conversation."""
        forms = {_roles(value) for value in self.values(prompt)} if self.rows else {("", "")}
        if forms <= {("", "")}:
            return None if _name(prompt) in _CONVERSATIONS else {}
        (roles, key), *others = forms
        question = _ASKED.fullmatch(roles)
        if question is None or others:
            return None
        names = [*(["system_prompt"] if question[1] else []), "prompt", *(["answer"] if question[2] else [])]
        return {name: f"{prompt}.{index}.{key}" for index, name in enumerate(names)}

    def whole_prompt(self, prompt: str, taken: set[str | None]) -> str:
        """Return the column of the prompt, or a template with the text that it is about."""
        if _NOT_IN_BRACES.search(prompt):
            return prompt
        name = _name(prompt.rpartition(".")[2])
        beside = tuple(self._beside(names, taken) for names in _BESIDE.get(name, ((), ())))
        other = self._beside((_PAIRS[name],), taken) if name in _PAIRS else None
        if other is not None:
            return "\n\n".join(f"{each.rpartition('.')[2]}: {{{each}}}" for each in (prompt, other))
        tests = self.rows and all(value_at(row, "test_list.0") for row in self.rows)
        shown = "\n\nA test that the code has to pass: {test_list.0}" if tests else ""
        parts = [each for each in (beside[0], prompt, beside[1]) if each is not None]
        template = "\n\n".join(f"{{{each}}}" for each in parts)
        return template + shown if len(parts) > 1 or shown else prompt

    def _beside(self, names: Sequence[str], taken: set[str | None]) -> str | None:
        for path in self.named(names):
            whole = all(value_at(row, path, _ABSENT) is not _ABSENT for row in self.rows)
            if path not in taken and whole and self.values(path) and not _NOT_IN_BRACES.search(path):
                return self.inside(path, _CONTEXT_TEXTS)
        return None

    def whole_objects(self, answer: str | None) -> Iterator[str]:
        """Yield that the answers are objects, and the paths of what is in them."""
        held = next(iter(self.values(answer)), None) if answer else None
        if isinstance(held, Mapping) and not held.keys() >= DROP_KEYS:
            inner = quoted_names([*islice(leaves(held, f"{answer}."), _SHOWN)])
            yield f"the answer is {answer!r}, an object as a whole: --answer names a part of it, such as {inner}"

    def notes(self, texts: Sequence[str], answers: Sequence[str], used: set[str]) -> Iterator[str]:
        """Yield that the prompt is of columns that are merely texts, and which other columns may be the answers."""
        if texts:
            yield f"the prompt is {quoted_names(texts)}, as no other column has three words and more: --prompt names another"
        if len(answers) > 1:
            yield f"the answer may be in {quoted_names(answers[1:])} instead: --answer names its column"
        if answers:
            return
        left = [column for column in self.columns if column not in used and self.values(column)]
        alike: Iterable[str] = [column for column in left if _LIKE_AN_ANSWER.search(_name(column))] or (
            column for column in left if self.kind(column) in ("numbers", "labels", "options", "texts", "mixed")
        )
        named = [*islice(alike, _SHOWN)]
        may = f"; {quoted_names(named)} may be" if named else ""
        yield f"no column is surely the answer{may}: --answer names it"


_LIKE_A_LABEL: Final = re.compile("label|class|categor|sentiment|target|gold")
_MOST_NAMED: Final = 20
_EACH_NAMED: Final = 4
_ABSENT: Final = object()
# Names of columns whose objects have no field within, but a value.
_CLOSED: Final = frozenset({"metadata", *OPTION_COLUMNS, *_NAMES["answer"]} | {*_CONTEXT})


def leaves(value: Mapping[str, object], above: str = "") -> Iterator[str]:
    """Yield the paths of what is in an object, and in the objects in it."""
    for key, held in value.items():
        yield from leaves(held, f"{above}{key}.") if isinstance(held, Mapping) else (f"{above}{key}",)


def _is_sql(value: object) -> bool:
    return isinstance(value, str) and _SQL.match(value) is not None


def _roles(value: object) -> tuple[str, str]:
    messages = value if isinstance(value, list) else []
    for role, text in (("role", "content"), ("from", "value")):
        if messages and all(isinstance(each, Mapping) and text in each for each in messages):
            return " ".join(str(each.get(role)) if isinstance(each[text], str) else "" for each in messages), text
    return "", ""


def _name(column: str) -> str:
    """Return a column's name in one spelling: ``answerKey`` and ``Answer Key`` are ``answer_key``."""
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", column).lower()).strip("_")


def _options(seen: _Seen) -> tuple[str, int]:
    """Return the template of the options and their number: one column for each letter or number, or a list."""
    lettered: dict[str, dict[str, str]] = {}
    columns = [column for column in seen.columns if not _NOT_IN_BRACES.search(column)]
    for column in columns:
        if match := _LETTERED.fullmatch(_name(column)):
            lettered.setdefault(f"{match[1] or ''}{match[2].isalpha()}", {})[match[2]] = column
    for named in lettered.values():
        signs = "".join(sorted(named))
        if len(signs) > 1 and any(each.startswith(signs) for each in _SIGNS):
            lines = zip(ascii_uppercase, signs, strict=False)
            return "\n".join(f"{letter}) {{{named[sign]}}}" for letter, sign in lines), len(signs)
    paths = [*columns, *(f"{column}.{name}" for column in columns for name in OPTION_COLUMNS)]
    for path in paths:
        values = seen.values(path)
        is_named = _name(path.rpartition(".")[2]) in OPTION_COLUMNS
        lettered_texts = values and all(isinstance(each, Mapping) and {"A", "B"} <= {*map(str.upper, each)} for each in values)
        # An object of letters may be the answers to two questions, unless there are other answers.
        if (is_named or (lettered_texts and seen.answers({path}))) and (options := _listed(path, values)):
            return options
    return "", 0


def _with_wrong(seen: _Seen, right: str) -> tuple[str, int]:
    """Return the template of the options and their number where wrong answers, and no flags, have columns of their own."""
    named = [column for column in seen.columns if column != right and _WRONG_OPTION.fullmatch(_name(column))]
    wrong = [column for column in named if not {str(value).casefold() for value in seen.values(column)} <= _FLAGS]
    if any(map(_NOT_IN_BRACES.search, (right, *wrong))):
        return "", 0
    rows = [[value_at(row, column) for column in (right, *wrong)] for row in seen.rows]
    counts = [sum(len(each) if isinstance(each, list) else each is not None for each in row) for row in rows]
    return (f"{{{'|'.join((right, *wrong))}}}", max(counts)) if wrong and counts and max(counts) > 1 else ("", 0)


def _listed(path: str, values: Sequence[Any]) -> tuple[str, int] | None:
    """Return the template and the number of options in a list, an object of letters or a text; None for anything else."""
    counts, inner = list[int](), ""
    for value in map(option_list, values):
        match value:
            case {"text": [*texts]}:
                counts.append(len(texts))
                inner = ".text"
            case [{"text": _}, *_]:
                counts.append(len(value))
                inner = ".text"
            case [*texts] if not any(isinstance(each, list | dict) for each in texts):
                counts.append(len(texts))
            case dict() if all(re.fullmatch("[A-Za-z]", key) for key in value):
                counts.append(len(value))
            case str():
                counts.append(len(options_of(value)))
    return (f"{{{path}{inner}}}", max(counts)) if counts and max(counts) > 1 else None


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewarders that fit the references of a dataset."""

    entries: tuple[RewarderSettings, ...]
    reason: str


def chosen_options(name: str, items: Iterable[Item], count: int) -> Rewards | None:
    """Return the rewarder of multiple-choice items, whose prompts show ``count`` options; None for other references.

    A reference that is the number of an option counts from 0 or 1, whichever the numbers show. Raise
    ``DatasetError`` naming the dataset where they show neither.
    """
    graded = [item for item in islice(items, _LOOKED_AT) if item.accepted]
    numbers = {int(sign) for item in graded if (sign := option_sign(item.answer)).isdecimal()}
    options: dict[str, Any] = {"match": "choice"}
    options |= {"first": 1} if numbers and 0 not in numbers and max(numbers) >= count else {}
    read = GroundTruth(**options)
    if not graded or any(read.unusable(item.as_record()) for item in graded):
        return None
    if numbers and 0 not in numbers and max(numbers) < count:
        received = f"the numbers of options from {min(numbers)} to {max(numbers)}, of {count}: counted from 0 or from 1?"
        raise DatasetError.one(name, received, "letters, the texts of the options, or numbers with the first or last of them")
    return _with_rank("gt", options, f"{len(graded):,} references read as one of the options")


def proposed_rewards(items: Iterable[Item]) -> Rewards:
    """Return the rewarders for items: by their tests or references, and a judge where there is nothing to compare with.

    Long texts are judged against their reference, since nobody repeats them word for word; so is SQL without a database.
    """
    first = [*islice(items, _LOOKED_AT)]
    for name, columns, reason in _RECORDS:
        if first and all(columns <= item.metadata.keys() for item in first) and _usable(name, first):
            return _with_rank(name, {}, f"{reason} of {pluralize(len(first), 'item')}: {', '.join(sorted(columns))}")
    answers = [answer for item in first for answer in item.accepted]
    if not answers:
        return _with_rank("judge", {}, "no references: a model judges")
    if all(map(_is_sql, answers)):
        return _for_sql(first, len(answers))
    if choice := _options_in_prompts(first):
        return choice
    column = read_column(answers)
    read = f"{'the first ' if len(first) == _LOOKED_AT else ''}{column}"
    if column.kind == "long texts":
        return _with_rank("judge", {"reference": True}, f"{read}: a model judges beside the reference")
    return _with_rank("gt", options_for_references("gt", {}, answers), f"{read}{_several(first, column)}")


def unasked_answers(dataset: Iterable[Item], fields: FieldMap) -> Iterator[str]:
    """Yield what to add to prompts that do not say what to answer: few answers come again and again, and few prompts name two.

    Numbers count where their column is called like labels: other tasks have small numbers for answers, too.
    """
    items = [*islice(dataset, _LOOKED_AT)]
    answers = [item.answer.strip() for item in items if item.answer.strip()]
    names = [*dict.fromkeys(sorted(answers))]
    column, by_number = read_column(answers), all(map(str.isdecimal, names))
    labelled = column.kind == "numbers" and by_number and _LIKE_A_LABEL.search(_name(fields.answer))
    boolean = {*map(str.casefold, names)} in ({"yes", "no"}, {"true", "false"})
    few = 1 < len(names) <= _MOST_NAMED and len(names) * _EACH_NAMED <= len(answers)
    if not few or boolean or not (labelled or column.kind == "labels"):
        return
    word = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)", re.IGNORECASE)
    mentions = (word.findall(f"{item.system_prompt}\n{item.prompt}".casefold()) for item in items)
    if sum(len({*names_in}) > 1 for names_in in mentions) * 2 > len(items):
        return
    prompt = " ".join(fields.prompt.split()) if is_template(fields.prompt) else f"{{{fields.prompt}}}"
    add = "; ".join(f"{name} for …" for name in names) if by_number else f"with one of: {', '.join(names)}"
    received = f"the prompts do not name the answers {', '.join(names)}"
    yield f'{received}: unless the agent knows them, --prompt "{prompt} Answer {add}." asks for them'


def _several(items: Sequence[Item], column: ColumnReading) -> str:
    """Return what to do where items may have several answers, as the end of a line; empty where they have one."""
    if column.kind == "labels" and any(len(item.accepted) > 1 for item in items):
        return "; each of several is right alone: where all are asked for, write them as one text: a, b"
    cell = next((answer for item in items for answer in item.accepted if several_in(answer)), None)
    if column.kind == "labels" or cell is None:
        return ""
    return f"; {shown(cell)} is read as one: accepted answers are a list in a JSON lines file"


def _usable(name: str, items: Sequence[Item]) -> bool:
    """Return whether a scorer can use all items, or would if its library were installed."""
    try:
        scorer = build_scorer(name)
    except PipelineError:
        return True
    unusable = scorer.unusable if isinstance(scorer, Scorer) else None
    return unusable is not None and not any(unusable(item.as_record()) for item in items)


def _for_sql(items: Sequence[Item], count: int) -> Rewards:
    seen = f"{pluralize(count, 'reference')} read as SQL"
    if _usable("sql_result", [item for item in items if item.accepted]):
        return _with_rank("sql_result", {}, f"{seen}, beside their database")
    remedy = "sql_result compares rows, with the column database, a SQLite file, or schema, its SQL"
    return _with_rank("judge", {"reference": True}, f"{seen}: a model judges beside the reference; {remedy}")


def _options_in_prompts(items: Sequence[Item]) -> Rewards | None:
    """Return the rewarder of items whose prompts show options that their references name; None for others."""
    graded = [item for item in items if item.accepted]
    read = GroundTruth(match="choice")
    for item in graded:
        options = options_of(item.prompt)
        # Of lettered options a number is the text of one, or an answer of another kind.
        other = item.answer.strip().isdecimal() and "1" not in options and item.answer not in options.values()
        if len(options) < 2 or other or read.unusable(item.as_record()):
            return None
    reason = f"{pluralize(len(graded), 'reference')} read as one of the options in the prompt"
    return _with_rank("gt", {"match": "choice"}, reason)


# Scorers, the columns that they read, and what these are.
_RECORDS: Final = (
    ("ifeval", {"instruction_id_list", "kwargs"}, "instructions that can be verified"),
    *(("code_tests", columns, "tests") for columns in ({"test_list"}, {"test", "entry_point"}, {"tests"}, {"cases"})),
)


def _with_rank(name: str, options: Mapping[str, Any], reason: str) -> Rewards:
    entries = (RewarderSettings(name=name, options=dict(options)), RewarderSettings(name="relative", weight=0.0))
    return Rewards(entries, reason)
