"""Score one completion with a built-in grader."""

from __future__ import annotations

import json
from typing import Any

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.loading import build_grader


def score(name: str, completion: str, record: Any = None, *, tokens: int | None = None, **init_kwargs: Any) -> float:
    item = GraderInput.of("set:0", {} if record is None else record, completion, completion_tokens=tokens)
    grader = build_grader(name, init_kwargs)
    assert isinstance(grader, ItemGrader)
    return grader.score_one(item)


def answered(answer: str) -> str:
    """Return a completion with this final answer."""
    return f"<think>\nr\n</think>\n{answer}"


def with_schema(**schema: Any) -> dict[str, Any]:
    return {"metadata": {"schema": json.dumps(schema)}}
