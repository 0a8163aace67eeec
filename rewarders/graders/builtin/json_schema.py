"""Grader of the keys of a JSON object; types and values are not checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfgrpo.rewarders.graders.builtin.schema_grader import SchemaGrader, fenced_block, python_literal
from tfgrpo.stores.errors import RewardError


@dataclass(frozen=True, slots=True)
class JsonSchema(SchemaGrader):
    """1.0 for a JSON object with all required keys and no forbidden key.

    Only ``required`` and ``allow_additional_properties`` (default true) of the schema are read. A key is additional when
    it is not required. Missing keys 0.8, additional keys 0.9, both 0.7; any other JSON value 0.5; null and unreadable text
    0.0. Text that is no JSON is tried again as its first fenced block, as JSON and as a Python literal, times 0.9.

    JSON that Python refuses for its size (extreme nesting, integers of more than 4,300 digits) scores 0.0 and is not
    tried again. Grading an object raises ``RewardError`` when an entry of ``required`` cannot be a key.
    """

    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Return the reward of a text."""
        value, share = _read(text)
        return 0.0 if value is None else _fit(value, schema) * share


def _read(text: str) -> tuple[Any, float]:
    """Return the value of the text, or None, and the factor of its score."""
    try:
        return json.loads(text), 1.0
    except json.JSONDecodeError:
        block = fenced_block(text)
    except (ValueError, RecursionError):  # too large for Python
        return None, 0.0
    if block is not None:
        with suppress(ValueError, RecursionError):
            return json.loads(block), 0.9
    with suppress(ValueError):
        return python_literal(text if block is None else block), 0.9
    return None, 0.9


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
