"""Graders as they are written for the data server and elsewhere: a protocol, and access to records and outputs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from tfgrpo.rewarders.scorer import GradeResult, GraderInput, field_of
from tfgrpo.rewarders.text.answers import without_reasoning
from tfgrpo.stores.frozen_json import json_of

GradedBatch: TypeAlias = Sequence[GradeResult | float] | Awaitable[Sequence[GradeResult | float]]
_BLOCK: Final = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*\n(?P<code>.*?)"
    r"(?:^[ \t]*(?P=fence)|(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block, also one whose end is missing."""


@runtime_checkable
class Grader(Protocol):
    """Grades a batch: one result for each input, in the order of the inputs.

    A batch for which it raises is ungraded as a whole. With a class attribute ``per_item = True`` it declares that no
    reward depends on the other items of the batch; then every item of a failed batch is graded alone.
    """

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> GradedBatch:
        """Grade every input. A plain or a coroutine method; may be called from several threads at once."""
        ...


def metadata(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata; None when it, or the metadata, is absent or no object."""
    values = field_of(item, "metadata")
    return values.get(name) if isinstance(values, Mapping) else None


def column(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata, else of the record; a list or an object that was written as text is read."""
    value = metadata(item, name)
    value = field_of(item, name) if value is None else value
    written = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
    return value if not written or (read := json_of(value)) is None else read


def final_answer(item: GraderInput, *, or_completion: bool = False) -> str | None:
    """Return the final answer, None when it is missing or white space; ``or_completion``: then the whole completion."""
    return item.answer if item.answer and not item.answer.isspace() else item.completion if or_completion else None


def program(item: GraderInput, languages: Collection[str], holding: str = "") -> str | None:
    """Return the code of an output: its last fenced block, else all of it; None for reasoning without an end.

    Blocks in one of the languages count before those without a language, these before others. Of several the last one that
    has ``holding`` counts.
    """
    text = without_reasoning(item.completion)
    if text is None:
        return None
    blocks = [(block["language"].lower(), block["code"]) for block in _BLOCK.finditer(text)]
    found = [code for language, code in blocks if language in languages]
    found = found or [code for language, code in blocks if not language] or [code for _, code in blocks]
    last = found[-1] if found else text.strip("`\n")
    return next((code for code in reversed(found) if holding in code), last)
