"""Prompts of judges: instructions with the rubric, and task, reference and outputs as data.

The data are members of one JSON object, so that no text in them can close its own quotation and act as an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any, Final, NamedTuple

from tfgrpo.rewarders.judge.model import Speaker
from tfgrpo.rewarders.judge.reading import LOWEST, Scale
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.packaged import packaged_yaml

Messages = tuple[tuple[Speaker, str], ...]


class AnswerForm(NamedTuple):
    """A kind of question: name and JSON schema of its answer, and the system message."""

    name: str
    schema: Mapping[str, Any]
    instructions: str
    """With the placeholders ``$rubric``, ``$data`` and ``$lowest``."""


_TEXTS: Final[Mapping[str, Any]] = packaged_yaml(__file__, "prompts.yaml")
DEFAULT_RUBRIC: Final[str] = _TEXTS["rubric"]
SCORE_FORM: Final = AnswerForm(**_TEXTS["score"])
PAIR_FORM: Final = AnswerForm(**_TEXTS["pair"])


def score_instructions(rubric: str, scale: Scale) -> str:
    """Return the system message for judging one output."""
    return Template(SCORE_FORM.instructions).substitute(_TEXTS, rubric=rubric, lowest=f"{LOWEST[scale]:g}")


def pair_instructions(rubric: str) -> str:
    """Return the system message for comparing two outputs."""
    return Template(PAIR_FORM.instructions).substitute(_TEXTS, rubric=rubric)


def messages(instructions: str, task: str, reference: str | None, outputs: Mapping[str, str]) -> Messages:
    """Return the question: instructions, and the data as one JSON object."""
    payload = {"task": task, **outputs}
    if reference:
        payload["reference_answer"] = reference
    return (("system", instructions), ("user", canonical_json(payload)))


def asked_again(question: Messages, reply: str, reason: str, schema: Mapping[str, Any]) -> Messages:
    """Return the dialogue after an unusable reply."""
    complaint = canonical_json({"error": reason, "schema": dict(schema)})
    return (*question, ("assistant", reply), ("user", complaint))


def shortened(text: str, most: int) -> str:
    """Return ``text`` without its middle when it is longer than ``most`` characters, with the number omitted."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}\n[… {len(text) - most:,} characters left out …]\n{text[len(text) - (most - head) :]}"
