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


_TEXTS: Final[Mapping[str, Any]] = packaged_yaml(__file__, "prompts.yaml")
DEFAULT_RUBRIC: Final[str] = _TEXTS["rubric"]


class AnswerForm(NamedTuple):
    """A kind of question: name and JSON schema of its answer, and the system message."""

    name: str
    schema: Mapping[str, Any]
    instructions: str
    """With the placeholders ``$rubric``, ``$data`` and ``$lowest``."""

    def system(self, rubric: str, scale: Scale = "unit") -> str:
        """Return the system message. ``scale``: that of a score."""
        return Template(self.instructions).substitute(_TEXTS, rubric=rubric, lowest=f"{LOWEST[scale]:g}")


SCORE_FORM: Final = AnswerForm(**_TEXTS["score"])
"""For judging one output."""
PAIR_FORM: Final = AnswerForm(**_TEXTS["pair"])
"""For comparing two outputs."""


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
