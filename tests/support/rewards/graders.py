"""Shared pieces of the grader tests: one score from a name, a completion and a record."""

from __future__ import annotations

import json
from typing import Any

from tests.support.vectors import VECTORS
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.table import build_grader


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def score(name: str, completion: str, record: Any = None, *, tokens: int | None = None, **init_kwargs: Any) -> float:
    item = GraderInput.of("set:0", {} if record is None else record, completion, completion_tokens=tokens)
    return build_grader(name, init_kwargs).score_one(item)


def answered(answer: str) -> str:
    """A completion whose final answer is the text."""
    return f"<think>\nr\n</think>\n{answer}"


def with_schema(**schema: Any) -> dict[str, Any]:
    return {"metadata": {"schema": json.dumps(schema)}}
