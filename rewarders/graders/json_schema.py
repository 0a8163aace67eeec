"""Is the answer an object with the required keys? Looks at keys only: types and values are never checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewarders.graders.base import GraderInput, ItemGrader
from rewarders.graders.fenced import fenced_block, python_literal
from rewarders.graders.options import flag, number, refuse
from rewarders.graders.records import answer_or_completion, metadata
from stores.errors import RewardError


@dataclass(frozen=True, slots=True)
class JsonSchema(ItemGrader):
    """1.0 for a JSON object with all required keys and no key that is forbidden; 0.9 of it when it had to be dug out.

    ``metadata.schema`` is a JSON object written as a string; ``required`` and ``allow_additional_properties`` (default
    true) are all that is read of it. A key is additional when it is not required. Missing keys 0.8, additional keys 0.9,
    both 0.7; any other JSON value 0.5; null, or nothing that can be read, 0.0. Text that is no JSON is tried again as
    its first fenced block, as JSON and as a Python literal, times 0.9.

    JSON that Python refuses for its size (extreme nesting, integers of more than 4,300 digits) is worth 0.0, whatever
    stands in a fence. Grading an object raises ``RewardError`` when an entry of ``required`` cannot be a key: a record
    with such a schema says nothing about a completion.
    """

    reward_if_no_schema: float = 0.0
    """Reward when the record has no usable schema."""
    require_answer: bool = False
    """Whether a completion without a final answer gets 0.0, instead of being read as a whole."""

    def __post_init__(self) -> None:
        refuse(number("reward_if_no_schema", self.reward_if_no_schema), flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""
        schema = stated_schema(item)
        if schema is None:
            return float(self.reward_if_no_schema)
        text = answer_or_completion(item, require_answer=self.require_answer)
        if text is None:
            return 0.0
        value, share = _read(text)
        return 0.0 if value is None else _fit(value, schema) * share


def stated_schema(item: GraderInput) -> Mapping[str, Any] | None:
    """The object that ``metadata.schema`` holds as a string of JSON; None for anything else."""
    text = metadata(item, "schema")
    if not isinstance(text, str):
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None


def _read(text: str) -> tuple[Any, float]:
    """The value of the text and the share of the score that is left; None when there is no value."""
    try:
        return json.loads(text), 1.0
    except json.JSONDecodeError:
        block = fenced_block(text)
        return (_literal(text) if block is None else _dug_out(block)), 0.9
    except (ValueError, RecursionError):  # too large for Python, which is no reason to look elsewhere
        return None, 0.0


def _dug_out(block: str) -> Any:
    try:
        return json.loads(block)
    except (ValueError, RecursionError):
        return _literal(block)


def _literal(text: str) -> Any:
    try:
        return python_literal(text)
    except ValueError:
        return None


def _fit(value: Any, schema: Mapping[str, Any]) -> float:
    required = schema.get("required") or []
    if not isinstance(value, dict) or not isinstance(required, list):
        return 0.5
    if any(isinstance(name, list | dict) for name in required):
        raise RewardError("json_schema: an entry of the schema's required is a list or an object, which is no key")
    names = set(required)
    missing = not names <= value.keys()
    extra = not schema.get("allow_additional_properties", True) and not value.keys() <= names
    if missing:
        return 0.7 if extra else 0.8
    return 0.9 if extra else 1.0
