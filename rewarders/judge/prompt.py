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
    """Name and JSON schema of an answer."""

    name: str
    schema: Mapping[str, Any]


_TEXTS: Final[Mapping[str, str]] = packaged_yaml(__file__, "prompts.yaml")
DEFAULT_RUBRIC: Final = _TEXTS["rubric"]


def score_instructions(rubric: str, scale: Scale) -> str:
    """Return the system message for judging one output."""
    return Template(_TEXTS["score"]).substitute(_TEXTS, rubric=rubric, lowest=f"{LOWEST[scale]:g}")


def pair_instructions(rubric: str) -> str:
    """Return the system message for comparing two outputs."""
    return Template(_TEXTS["pair"]).substitute(_TEXTS, rubric=rubric)


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


def _form(name: str, properties: Mapping[str, Any]) -> AnswerForm:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    return AnswerForm(name, schema)


SCORE_FORM: Final = _form("tfgrpo_judgement", {"reason": {"type": "string"}, "score": {"type": "number"}})
"""Answer to ``score_instructions``."""
PAIR_FORM: Final = _form(
    "tfgrpo_comparison",
    {"reason": {"type": "string"}, "better": {"type": "string", "enum": ["first", "second", "tie"]}},
)
"""Answer to ``pair_instructions``."""
