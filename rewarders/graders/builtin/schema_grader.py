"""What do graders by schema share? The schema of the record, the text it is held against, and what is given without one."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.options import flag, number, refuse
from tfgrpo.rewarders.graders.records import answer_or_completion, metadata


@dataclass(frozen=True, slots=True)
class SchemaGrader(ItemGrader):
    """Holds a completion against ``metadata.schema``, a JSON object written as a string."""

    reward_if_no_schema: float = 0.0
    """Reward when the record has no usable schema."""
    require_answer: bool = False
    """Whether a completion without a final answer gets 0.0, instead of being read as a whole."""

    def __post_init__(self) -> None:
        refuse(number("reward_if_no_schema", self.reward_if_no_schema), flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""
        schema = _stated_schema(item)
        if schema is None:
            return float(self.reward_if_no_schema)
        text = answer_or_completion(item, require_answer=self.require_answer)
        return 0.0 if text is None else self.fit(text, schema)

    @abstractmethod
    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Reward of a text."""


def _stated_schema(item: GraderInput) -> Mapping[str, Any] | None:
    """The object that ``metadata.schema`` holds; None for anything else."""
    text = metadata(item, "schema")
    if not isinstance(text, str):
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return schema if isinstance(schema, dict) else None
