"""Is the answer an object with the required keys? Looks at keys only: types and values are never checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgrpo.rewarders.graders.builtin.fenced import fenced_block, python_literal
from tfgrpo.rewarders.graders.builtin.schema_grader import SchemaGrader
from tfgrpo.stores.errors import RewardError


@dataclass(frozen=True, slots=True)
class JsonSchema(SchemaGrader):
    """1.0 for a JSON object with all required keys and no key that is forbidden; 0.9 of it when it had to be dug out.

    ``required`` and ``allow_additional_properties`` (default true) are all that is read of the schema. A key is
    additional when it is not required. Missing keys 0.8, additional keys 0.9, both 0.7; any other JSON value 0.5; null,
    or nothing that can be read, 0.0. Text that is no JSON is tried again as its first fenced block, as JSON and as a
    Python literal, times 0.9.

    JSON that Python refuses for its size (extreme nesting, integers of more than 4,300 digits) is worth 0.0, whatever
    stands in a fence. Grading an object raises ``RewardError`` when an entry of ``required`` cannot be a key: a record
    with such a schema says nothing about a completion.
    """

    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Reward of a text."""
        value, share = _read(text)
        return 0.0 if value is None else _fit(value, schema) * share


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
