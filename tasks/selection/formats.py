"""What must an answer be? Any text, JSON, or a process model: each format reads, checks and says what is wrong.

It asks nobody; a mistake becomes a reason that a model can act on. Formats are picklable values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from tfgrpo.rewarders.powl import Model, label_fingerprint, structural_key, to_text, validate
from tfgrpo.rewarders.powl.keys import ARROW
from tfgrpo.rewarders.powl.scoring.answers import model_in
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import PowlError
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.base import AnswerSchema
from tfgrpo.tasks.models.structured import parse_answer

_DEEPEST: Final = 64
"""Levels of a JSON value that are part of its structure. A model may nest a thousand, to no end but to be slow."""
_FINDINGS: Final = 5
"""Most findings of a validator that are told at once."""
_INSTEAD: Final = "In place of any form of answer named above, hand in"
_BROKEN_RULE: Final = re.compile(r"LOOP takes exactly two|is no operator|two commas with nothing between")
"""Mistakes in a process model that are not of syntax: the number of children, the name of an operator."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The structure of an answer, for the memory."""

    structure: str
    """Key: equal for answers of the same structure."""
    label: str
    """Key of the labels alone."""
    text: str
    """The structure as it is shown."""


@dataclass(frozen=True, slots=True)
class Usable:
    """An answer that can be used."""

    value: Any = None
    """What was read: a process model, a JSON value; None for text."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An answer that cannot be used, and why."""

    name: Literal["parse_error", "validation_error"]
    reason: str
    repairable: bool = True
    """Whether the actor is asked again."""
    value: Any = None
    """Of an answer that could be read and breaks a rule."""


Reading: TypeAlias = Usable | Unusable


class AnswerFormat(Protocol):
    """What an answer has to be."""

    @property
    def name(self) -> str:
        """Its name for people: ``text``, ``json``, ``powl``."""
        ...

    @property
    def instructions(self) -> str:
        """What the actor is told about the form of the answer; empty for nothing."""
        ...

    def read(self, text: str) -> Reading:
        """Read an answer. Never raises."""
        ...

    def pattern(self, value: Any) -> Pattern | None:
        """Structure of what ``read`` found; None where the format has none."""
        ...


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Anything that is not blank."""

    name: str = "text"
    instructions: str = ""

    def read(self, text: str) -> Reading:
        """Refuse what is blank."""
        return Usable() if text.strip() else Unusable("parse_error", "the answer is empty")

    def pattern(self, value: Any) -> None:
        """Text has no structure that two answers could share."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """One JSON value, bare or in one code fence, that follows a schema if there is one."""

    schema: Mapping[str, Any] | None = None
    repair: Literal["all", "syntax"] = "all"
    name: str = "json"

    @property
    def instructions(self) -> str:
        """The form and, if there is one, the schema."""
        wanted = f"{_INSTEAD} the result as one JSON value and nothing else."
        return wanted if self.schema is None else f"{wanted} It follows this JSON schema: {canonical_json(self.schema)}"

    def read(self, text: str) -> Reading:
        """Parse strictly, then check against the schema."""
        try:
            value = parse_answer(text, AnswerSchema("answer", {}))
        except ValueError as error:
            return Unusable("parse_error", str(error))
        if self.schema is not None:
            try:
                parse_answer(text, AnswerSchema("answer", self.schema))
            except ValueError as error:
                return Unusable("validation_error", str(error), self.repair == "all", value)
        return Usable(value)

    def pattern(self, value: Any) -> Pattern:
        """The shape of a value: its keys and the kinds of what they hold, down to a depth where shapes say nothing."""
        shape = json.dumps(_shape(value, _DEEPEST), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        structure = sha256_hex(shape.encode("utf-8", "surrogatepass"))
        return Pattern(
            structure, replace_surrogates(ARROW.join(sorted(_paths(value, "", _DEEPEST)))), replace_surrogates(shape)
        )


_POWL_SYNTAX: Final = f"""\
{_INSTEAD} one process model as a single expression and nothing else.
SEQUENCE(a, b) runs a and then b; XOR(a, b) exactly one of them; PARALLEL(a, b) both in any order; LOOP(do, redo) runs \
do, then any number of times redo and do again; PARTIAL_ORDER(a, b, c, ORDER(0->2, 1->2)) runs all, a and b before c.
An activity is ACTIVITY(label); SILENT() does nothing; XOR(ACTIVITY(a), SILENT()) makes a optional. Operators nest.
Example: SEQUENCE(ACTIVITY(receive order), PARALLEL(ACTIVITY(pick goods), ACTIVITY(print label)), ACTIVITY(ship))"""


@dataclass(frozen=True, slots=True)
class PowlFormat:
    """A process model as text or JSON, without errors in its validation."""

    repair: Literal["all", "syntax"] = "all"
    """``syntax``: mistakes that leave the text readable (a LOOP of one child, findings) are not sent back."""
    aliases: bool = False
    instructions: str = field(default=_POWL_SYNTAX, repr=False)
    name: str = "powl"

    def read(self, text: str) -> Reading:
        """Parse, then validate."""
        try:
            model = model_in(text, aliases=self.aliases)
        except PowlError as error:
            again = self.repair == "all" or not _BROKEN_RULE.search(error.reason)
            return Unusable("parse_error", str(error), again)
        errors = validate(model).errors
        if errors:
            reason = "; ".join(str(finding) for finding in errors[:_FINDINGS])
            return Unusable("validation_error", reason, self.repair == "all", model)
        return Usable(model)

    def pattern(self, value: Model) -> Pattern:
        """Key of the structure, key of the labels, and the model as text."""
        return Pattern(structural_key(value), label_fingerprint(value), to_text(value))


def _shape(value: Any, levels: int) -> Any:
    if isinstance(value, Mapping | list) and not levels:
        return "deeper"
    if isinstance(value, Mapping):
        return {key: _shape(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, list):
        shapes = (_shape(inner, levels - 1) for inner in value)
        kinds = {json.dumps(shape, sort_keys=True): shape for shape in shapes}
        return [kinds[key] for key in sorted(kinds)]
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "text" if isinstance(value, str) else "number"


def _paths(value: Any, above: str, levels: int) -> Iterator[str]:
    if not levels:
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            path = f"{above}.{key}" if above else key
            yield path
            yield from _paths(inner, path, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, above, levels - 1)
