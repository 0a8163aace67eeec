"""Kinds of data files as people have them, with what a perfect agent would answer, and the manners in which it would say so."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from tests.support.vectors import rows_of
from tfgrpo.pipelines.datasets.items import item_of
from tfgrpo.pipelines.settings.tree import FieldMap

Form: TypeAlias = Literal["number", "text", "name", "code", "formula", "json", "option"]
Rows: TypeAlias = list[dict[str, Any]]

_COUNT: Final = 24

_CITIES: Final[list[str]] = rows_of("data_kinds", "cities")
_PEOPLE: Final[list[str]] = rows_of("data_kinds", "people")
_ODD_NAMES: Final[list[str]] = rows_of("data_kinds", "odd_names")
_WORDS: Final[list[str]] = rows_of("data_kinds", "words")
_MONTHS: Final[list[str]] = rows_of("data_kinds", "months")


@dataclass(frozen=True)
class Kind:
    """A kind of data: its file, and the right answer of each row as an agent would state it."""

    name: str
    file: str
    content: bytes | Rows
    """Of a Parquet file the rows."""
    answers: tuple[str, ...]
    """Of a multiple-choice question ``letter|text``."""
    form: Form = "text"

    def write(self) -> Path:
        """Write the file into the working directory."""
        path = Path(self.file)
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            pq.write_table(pa.Table.from_pylist(self.content), path)
        return path


def _jsonl(rows: Rows) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _table(rows: Rows, delimiter: str = ",", encoding: str = "utf-8") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode(encoding)


def _asked(answers: Sequence[object], *, question: str = "question", answer: str = "answer") -> Rows:
    return [{question: f"Question number {n}?", answer: each} for n, each in enumerate(answers)]


def _options(n: int) -> list[str]:
    return [_CITIES[(n * 5 + step * 7) % len(_CITIES)] for step in range(4)]


def kinds() -> list[Kind]:
    """Return all kinds."""
    return [*_numbers(), *_choices(), *_texts(), *_structures()]


def _numbers() -> Iterator[Kind]:
    n = range(_COUNT)

    def of(name: str, answers: Sequence[object], *, form: Form = "number", stated: Sequence[object] = ()) -> Kind:
        return Kind(name, "items.csv", _table(_asked(answers)), tuple(map(str, stated or answers)), form)

    yield of("whole numbers", [i * (i + 3) for i in n])
    yield of("negative numbers", [-3 * i - 1 for i in n])
    yield of("decimals", [f"{i * 1.37 + 0.11:.2f}" for i in n])
    yield of("thousands, `1,234`", [f"{i * 8919 + 1234:,}" for i in n], stated=[i * 8919 + 1234 for i in n])
    yield of("dollars, `$1,234.50`", [f"${i * 131 + 1234:,}.50" for i in n], stated=[f"${i * 131 + 1234}.50" for i in n])
    yield of("percentages", [f"{i * 2.5 + 1:g}%" for i in n])
    yield of("numbers with a unit", [f"{i * 7 + 3} km" for i in n], form="text")
    yield of("fractions", [f"{i + 1}/{2 * i + 7}" for i in n], form="text")
    yield of("powers of ten, `1.5e-4`", [f"{1.5 + i / 8:.3f}e{i % 9 - 4}" for i in n], form="text")
    yield of("years", [1900 + 3 * i for i in n])
    comma = [f"{i * 1.37 + 0.11:.2f}".replace(".", ",") for i in n]
    yield Kind("decimal commas, `;`, cp1252", "items.csv", _table(_asked(comma), ";", "cp1252"), tuple(comma), "number")
    grouped = [f"{i * 8919 + 12000:,}".replace(",", ".") if i % 3 else str(i * 31 + 7) for i in n]
    values = tuple(each.replace(".", "") for each in grouped)
    yield Kind("thousands, `12.000` beside `850`", "items.csv", _table(_asked(grouped), ";"), values, "number")
    euros = [f"{i + 1}.{i * 31 % 900 + 100},{i:02d} €" for i in n]
    yield Kind("euros, `1.234,50 €`", "items.csv", _table(_asked(euros), ";"), tuple(euros), "text")
    worked = [f"They have 3*{i + 5}=<<3*{i + 5}={3 * i + 15}>>{3 * i + 15} apples.\n#### {4 * i + 15}" for i in n]
    yield Kind("GSM8K, `… #### 42`", "items.jsonl", _jsonl(_asked(worked)), tuple(str(4 * i + 15) for i in n), "number")
    boxed = [f"We halve it, so we get $\\boxed{{\\frac{{{2 * i + 1}}}{{2}}}}$." for i in n]
    yield Kind(
        "MATH, `\\boxed{}` in a solution",
        "items.jsonl",
        _jsonl(_asked(boxed, question="problem", answer="solution")),
        tuple(f"\\frac{{{2 * i + 1}}}{{2}}" for i in n),
        "text",
    )
    tags = [f"<think>steps {i}</think><answer>{i * 17}</answer>" for i in n]
    yield Kind("`<answer>` tags", "items.jsonl", _jsonl(_asked(tags)), tuple(str(i * 17) for i in n), "number")
    yield Kind(
        "formulas",
        "items.jsonl",
        _jsonl(_asked([f"x^2+{i + 2}x+{i + 1}" for i in n], question="problem")),
        tuple(f"{i + 1}+{i + 2}x+x^2" for i in n),
        "formula",
    )
    yield Kind("Parquet", "items.parquet", _asked([11 * i for i in n]), tuple(str(11 * i) for i in n), "number")
    yield Kind(
        '`{"data": […]}`',
        "items.json",
        json.dumps({"data": _asked([11 * i for i in n])}).encode(),
        tuple(str(11 * i) for i in n),
        "number",
    )


def _choices() -> Iterator[Kind]:
    n = range(_COUNT)
    stated = tuple(f"{'ABCD'[i % 4]}|{_options(i)[i % 4]}" for i in n)

    def of(name: str, file: str, row: Callable[[int, list[str]], dict[str, Any]]) -> Kind:
        rows = [{"question": f"Which is city number {i}?", **row(i, _options(i))} for i in n]
        return Kind(name, file, _table(rows) if file.endswith("csv") else _jsonl(rows), stated, "option")

    letters = "ABCD"
    yield of(
        "columns `A` to `D`",
        "items.csv",
        lambda i, options: {**dict(zip(letters, options, strict=True)), "answer": letters[i % 4]},
    )
    yield of("MMLU, `choices` and an index", "items.jsonl", lambda i, options: {"choices": options, "answer": i % 4})
    yield of(
        "ARC, `choices.text`, `answerKey`",
        "items.jsonl",
        lambda i, options: {"choices": {"text": options, "label": [*letters]}, "answerKey": letters[i % 4]},
    )
    yield of(
        "`options`, the answer is a text", "items.jsonl", lambda i, options: {"options": options, "answer": options[i % 4]}
    )
    yield of(
        "`option1` to `option4`, from 1",
        "items.csv",
        lambda i, options: {**{f"option{k + 1}": options[k] for k in range(4)}, "answer": i % 4 + 1},
    )
    yield of(
        "`choice_0` to `choice_3`",
        "items.csv",
        lambda i, options: {**{f"choice_{k}": options[k] for k in range(4)}, "answer": f"choice_{i % 4}"},
    )
    yield of("options between bars", "items.csv", lambda i, options: {"options": "|".join(options), "answer": options[i % 4]})
    yield of("options as Python writes a list", "items.csv", lambda i, options: {"choices": repr(options), "answer": i % 4})
    yield of(
        "MedMCQA, `opa` to `opd`, `cop`",
        "items.jsonl",
        lambda i, options: {
            **{f"op{letter.lower()}": each for letter, each in zip(letters, options, strict=True)},
            "cop": i % 4,
        },
    )
    yield of(
        "SIQA, `answerA` to `answerD`, from 1",
        "items.jsonl",
        lambda i, options: {
            "context": f"We travel, trip {i}.",
            **{f"answer{letter}": each for letter, each in zip(letters, options, strict=True)},
            "label": str(i % 4 + 1),
        },
    )
    yield of(
        "MedQA, `options` by letter",
        "items.jsonl",
        lambda i, options: {"options": dict(zip(letters, options, strict=True)), "answer": options[i % 4]},
    )
    yield of(
        "AQuA, `options` with their letters",
        "items.jsonl",
        lambda i, options: {
            "options": [f"{letter}){each}" for letter, each in zip(letters, options, strict=True)],
            "correct": letters[i % 4],
        },
    )
    yield of(
        "MathQA, options in one text",
        "items.jsonl",
        lambda i, options: {
            "options": " , ".join(f"{a} ) {b}" for a, b in zip("abcd", options, strict=True)),
            "correct": "abcd"[i % 4],
        },
    )
    yield from _choices_in_prompts()
    yield from _mixed_choices()


def _mixed_choices() -> Iterator[Kind]:
    """Yield questions whose wrong answers are apart from the right one: where that is shown, only the prompt tells."""
    given = [(f"Which is city number {i}?", *_options(i)) for i in range(_COUNT)]
    stated = tuple(f"{_letter_in_prompt(right, wrong)}|{right}" for _, right, *wrong in given)
    for name, file, names in (
        ("GPQA, wrong answers in columns", "items.csv", ("Question", "Correct Answer", "Incorrect Answer {}")),
        ("SciQ, `distractor1` to `distractor3`", "items.csv", ("question", "correct_answer", "distractor{}")),
    ):
        columns = [names[0], names[1], *(names[2].format(number) for number in (1, 2, 3))]
        yield Kind(name, file, _table([dict(zip(columns, row, strict=True)) for row in given]), stated, "option")
    listed = [{"question": asked, "correct_answer": right, "incorrect_answers": wrong} for asked, right, *wrong in given]
    yield Kind("OpenTDB, `incorrect_answers`", "items.jsonl", _jsonl(listed), stated, "option")


def _letter_in_prompt(right: str, wrong: Sequence[str]) -> str:
    fields = FieldMap(id=None, prompt="{right|wrong}", answer="right")
    prompt = item_of({"right": right, "wrong": [*wrong]}, fields, number=0, source="").prompt
    (letter,) = (line[0] for line in prompt.splitlines() if line[3:] == right)
    return letter


def _choices_in_prompts() -> Iterator[Kind]:
    n = range(_COUNT)

    def of(name: str, signs: str, mark: str, between: str) -> Kind:
        shown = (between.join(f"{sign}{mark} {text}" for sign, text in zip(signs, _options(i), strict=True)) for i in n)
        rows = [
            {"id": f"c{i}", "prompt": f"Which is city number {i}?{between}{each}", "answer": signs[i % 4]}
            for i, each in enumerate(shown)
        ]
        stated = tuple(f"{signs[i % 4].upper()}|{_options(i)[i % 4]}" for i in n)
        return Kind(name, "items.jsonl", _jsonl(rows), stated, "option")

    yield of("options within the prompt", "ABCD", ")", "\n")
    yield of("options within the prompt, `a)`", "abcd", ")", "\n")
    yield of("options within one line of the prompt", "ABCD", ")", " ")
    yield of("numbered options within the prompt", "1234", ".", "\n")


def _texts() -> Iterator[Kind]:
    n = range(_COUNT)

    def labels(name: str, column: str, values: Sequence[Any], stated: Sequence[str] = ()) -> Kind:
        rows = [{"text": f"Message number {i}", column: values[i % len(values)]} for i in n]
        shown = stated or [str(each) for each in values]
        return Kind(name, "items.jsonl", _jsonl(rows), tuple(shown[i % len(values)] for i in n), "text")

    yield labels("labels", "label", ["positive", "negative", "neutral"])
    yield labels("labels of several words", "category", ["card lost", "card stolen", "pin blocked", "top up failed"])
    yield labels("labels such as `card_arrival`", "intent", ["card_arrival", "card_linking", "exchange_rate", "lost_card"])
    places = tuple(_CITIES[:_COUNT])
    pairs = [{"note": f"The place of note {i}", "place": city} for i, city in enumerate(places)]
    yield Kind("two columns of any name", "items.csv", _table(pairs), places, "name")
    slashed = [f"{i % 12 + 1:02d}/{i + 3:02d}/2024" for i in n]
    spoken_dates = tuple(f"{_MONTHS[i % 12]} {i + 3}, 2024" for i in n)
    yield Kind("dates, `03/25/2024`", "items.csv", _table(_asked(slashed)), spoken_dates, "text")
    accepted = [json.dumps([city, f"{city} (city)"]) for city in places]
    yield Kind("accepted answers in a cell", "items.csv", _table(_asked(accepted, answer="possible_answers")), places, "name")
    yield labels("yes and no", "answer", ["no", "yes"])
    yield labels("booleans", "answer", [False, True], ["no", "yes"])
    yield labels("True and False", "answer", ["False", "True"])
    yield Kind("names", "items.csv", _table(_asked(_PEOPLE)), tuple(_PEOPLE), "name")
    yield Kind("names with points, signs and digits", "items.csv", _table(_asked(_ODD_NAMES)), tuple(_ODD_NAMES), "code")
    yield Kind("umlauts, `;`, cp1252", "items.csv", _table(_asked(_WORDS), ";", "cp1252"), tuple(_WORDS), "name")
    yield Kind("Chinese", "items.jsonl", _jsonl(_asked([f"北京{i}号" for i in n])), tuple(f"北京{i}号" for i in n), "code")
    codes = tuple(f"{i * 379 + 101:05d}" for i in n)
    yield Kind("codes with leading zeros", "items.csv", _table(_asked(codes)), codes, "code")
    phones = tuple(f"+49 30 {i * 379 + 10001}" for i in n)
    yield Kind("telephone numbers", "items.csv", _table(_asked(phones)), phones, "code")
    ranges = tuple(f"{i + 2}-{i + 9}" for i in n)
    yield Kind("ranges, `2-5`", "items.csv", _table(_asked(ranges)), ranges, "code")
    dates = tuple(f"20{i:02d}-{i % 12 + 1:02d}-{i + 1:02d}" for i in n)
    yield Kind("dates, `2024-01-03`", "items.csv", _table(_asked(dates)), dates, "code")
    written = [f"{_MONTHS[i % 12]} {i + 1}, {1980 + i}" for i in n]
    said = tuple(f"{i + 1} {_MONTHS[i % 12]} {1980 + i}" for i in n)
    yield Kind("dates in words", "items.csv", _table(_asked(written)), said, "name")
    times = tuple(f"{i:02d}:{i * 7 % 60:02d}" for i in n)
    yield Kind("times, `12:05`", "items.csv", _table(_asked(times)), times, "code")
    lengths = tuple(f"{i + 1} hours {i * 2 + 5} minutes" for i in n)
    yield Kind("durations", "items.csv", _table(_asked(lengths)), lengths, "text")
    versions = ("3.1", *(f"3.{i + 10}" for i in n[1:]), "3.10")
    yield Kind("versions, `3.10`", "items.csv", _table(_asked(versions)), versions, "code")
    series = tuple(f"{_CITIES[i]}, {_CITIES[i - 1]} and {_CITIES[i - 2]}" for i in n)
    yield Kind("lists of names", "items.csv", _table(_asked(series)), series, "name")
    commands = tuple(f"git rebase -i HEAD~{i + 2}" for i in n)
    yield Kind("commands", "items.csv", _table(_asked(commands)), commands, "code")
    mixed = [(_PEOPLE[i], str(i * 13), f"{i} km", _CITIES[i])[i % 4] for i in n]
    yield Kind("names and numbers in one column", "items.csv", _table(_asked(mixed)), tuple(mixed), "code")


def _structures() -> Iterator[Kind]:
    n = range(_COUNT)
    lasts = tuple(each.split()[1] for each in _PEOPLE)
    squad = [
        {
            "id": f"s{i}",
            "context": f"It was {_PEOPLE[i]} who did it.",
            "question": "Who did it?",
            "answers": {"text": [_PEOPLE[i], lasts[i]], "answer_start": [7, 7]},
        }
        for i in n
    ]
    yield Kind("SQuAD, `answers.text`", "items.jsonl", _jsonl(squad), lasts, "name")
    none: dict[str, list[Any]] = {"text": [], "answer_start": []}
    second = [{**row, "answers": none if i == 0 else row["answers"]} for i, row in enumerate(squad)]
    yield Kind("SQuAD v2, the first without an answer", "items.jsonl", _jsonl(second), lasts, "name")
    spans = [{**row, "answers": [{"text": _PEOPLE[i], "answer_start": 7}]} for i, row in enumerate(squad)]
    yield Kind("a list of SQuAD's answers", "items.jsonl", _jsonl(spans), tuple(_PEOPLE), "name")
    no_date = {"day": "", "month": "", "year": ""}
    drop = [
        {"number": str(13 * i), "date": no_date, "spans": []} if i % 2 else {"number": "", "date": no_date, "spans": [each]}
        for i, each in enumerate(_PEOPLE)
    ]
    said = tuple(str(13 * i) if i % 2 else each for i, each in enumerate(_PEOPLE))
    yield Kind("DROP, number, date or spans", "items.jsonl", _jsonl(_asked(drop)), said, "code")
    chats = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Who is number {i}?"}] for i in n]
    evals = [{"input": chats[i], "ideal": _PEOPLE[i]} for i in n]
    yield Kind("OpenAI evals, `input` and `ideal`", "items.jsonl", _jsonl(evals), tuple(_PEOPLE), "name")
    verl: Rows = [{"prompt": chats[i][1:], "reward_model": {"style": "rule", "ground_truth": str(7 * i)}} for i in n]
    yield Kind("verl, `reward_model.ground_truth`", "items.parquet", verl, tuple(str(7 * i) for i in n), "number")
    nested = [{"inputs": {"question": f"Who is number {i}?"}, "outputs": {"answer": _PEOPLE[i]}} for i in n]
    yield Kind("objects, `inputs` and `outputs`", "items.jsonl", _jsonl(nested), tuple(_PEOPLE), "name")
    yield Kind("lists of accepted answers", "items.jsonl", _jsonl(_asked([[_PEOPLE[i], lasts[i]] for i in n])), lasts, "name")
    trivia = _asked([{"value": _PEOPLE[i], "aliases": [_PEOPLE[i], lasts[i]]} for i in n])
    yield Kind("TriviaQA, `answer.aliases`", "items.jsonl", _jsonl(trivia), lasts, "name")
    alpaca = [{"instruction": "Name the person.", "input": f"number {i}", "output": _PEOPLE[i]} for i in n]
    yield Kind("Alpaca, `instruction` and `input`", "items.tsv", _table(alpaca, "\t"), tuple(_PEOPLE), "name")
    pairs = tuple(f"{i + 1}, {2 * i + 3}" for i in n)
    yield Kind("lists of numbers", "items.csv", _table(_asked(pairs)), pairs, "text")
    objects = [{"name": _PEOPLE[i], "age": i + 20} for i in n]
    indented = tuple(json.dumps(dict(reversed(each.items())), indent=1) for each in objects)
    yield Kind("JSON objects", "items.jsonl", _jsonl(_asked(objects)), indented, "json")
    texts = [json.dumps(each) for each in objects]
    yield Kind("JSON as text", "items.csv", _table(_asked(texts)), indented, "json")


def manners(kind: Kind, answer: str, other: str) -> Mapping[str, str]:
    """Return outputs that state an answer, by the manner; ``other`` is one that the reasoning rejects."""
    if kind.form == "option":
        return _manners_of_options(*answer.split("|"), *other.split("|"))
    if kind.form == "json":
        return _filled("manners_of_json", ANSWER=answer, OTHER=other)
    found = _filled("manners", ANSWER=answer, OTHER=other)
    if kind.form != "formula":
        found["JSON"] = json.dumps({"answer": answer}, ensure_ascii=False)
        found["quotes"] = f'"{answer}"'
    if kind.form == "number":
        found["a short sentence"] = f"It is {answer}."
        found["dollars"] = f"${answer}$"
    if kind.form == "number" and not set(answer) & set("$%"):
        found["a unit"] = f"{answer} apples"
        found["a line with a unit"] = f"Answer: {answer} apples"
    if kind.form in ("text", "name") and "\\" not in answer:
        found["upper case"] = answer.upper()
        found["lower case"] = answer.lower()
    if kind.form == "name":
        found["a short sentence"] = f"It is {answer}."
    return found


def _manners_of_options(letter: str, text: str, other: str, rejected: str) -> Mapping[str, str]:
    found = _filled("manners_of_options", LETTER=letter, TEXT=text, OTHER=other, REJECTED=rejected)
    return {**found, "a small letter": letter.lower(), "JSON": json.dumps({"answer": letter})}


def _filled(table: str, **values: str) -> dict[str, str]:
    """Return the outputs of a table by manner, with these values for the words in capitals."""
    words = re.compile("|".join(values))
    return {manner: words.sub(lambda found: values[found[0]], output) for manner, output in rows_of("data_kinds", table)}
