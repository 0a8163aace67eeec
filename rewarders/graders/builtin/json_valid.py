"""Is the whole completion JSON? Grades it as generated, reasoning included; ``json_schema`` grades the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.records import metadata


@dataclass(frozen=True, slots=True)
class JsonValid(ItemGrader):
    """1.0 when Python's ``json.loads`` takes the completion and everything required is in it, else 0.0.

    ``NaN`` and ``Infinity`` pass, as they do in ``json.loads``; extreme nesting and integers of more than 4,300 digits do
    not. Required is ``metadata.expected_json_schema.required`` when that is a list, and "in" is Python's: a key of an
    object, a member of a list, a part of a string, and never in a number, true, false or null.
    """

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""
        try:
            value = json.loads(item.completion)
        except (ValueError, RecursionError):
            return 0.0
        expected = metadata(item, "expected_json_schema")
        required = expected.get("required") if isinstance(expected, Mapping) else None
        return 1.0 if not isinstance(required, list | tuple) or _holds(value, required) else 0.0


def _holds(value: Any, required: Sequence[Any]) -> bool:
    try:
        return all(name in value for name in required)
    except (TypeError, RecursionError):
        return False
