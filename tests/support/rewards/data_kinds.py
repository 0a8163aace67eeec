"""Kinds of data files as people have them, with what a perfect agent would answer, and the manners in which it would say so."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from tests.support.vectors import rows_of

Form: TypeAlias = Literal["number", "text", "name", "code", "formula", "json", "option"]


@dataclass(frozen=True)
class Kind:
    """A kind of data: its file, and the right answer of each row as an agent would state it."""

    name: str
    form: Form
    file: str
    answers: list[str]
    """Of a multiple-choice question ``letter|text``."""
    content: str | list[dict[str, Any]]
    """Of a Parquet file the rows."""
    encoding: str = "utf-8"

    def write(self) -> Path:
        """Write the file into the working directory."""
        path = Path(self.file)
        if isinstance(self.content, str):
            path.write_bytes(self.content.encode(self.encoding))
        else:
            pq.write_table(pa.Table.from_pylist(self.content), path)
        return path


def kinds() -> list[Kind]:
    """Return all kinds."""
    return [Kind(**row) for row in rows_of("data_kinds", "kinds")]


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
