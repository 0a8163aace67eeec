"""Score one completion with a built-in grader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tests.support.rewards.scoring import built
from tfgrpo.rewarders.calling import perform
from tfgrpo.rewarders.scorer import Abstained, GraderInput, Verdict
from tfgrpo.stores.errors import RewardError


def verdict(
    name: str,
    completion: str,
    record: Any = None,
    *,
    tokens: int | None = None,
    attempt: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Verdict:
    """Return the verdict of the built-in scorer, called in this process."""
    item = GraderInput.of("set:0", {} if record is None else record, completion, completion_tokens=tokens)
    item = replace(item, attempt=attempt)
    found: dict[int, Verdict] = {}
    perform(built(name, **options), [item], found.__setitem__)
    return found[0]


def score(name: str, completion: str, record: Any = None, *, tokens: int | None = None, **options: Any) -> float:
    """Return the score. Raises ``RewardError`` where there is none."""
    found = verdict(name, completion, record, tokens=tokens, **options)
    if isinstance(found, Abstained):
        raise RewardError(found.reason)
    return found.score


def answered(answer: str) -> str:
    """Return a completion with this final answer."""
    return f"<think>\nr\n</think>\n{answer}"


def with_schema(**schema: Any) -> dict[str, Any]:
    """Return a record with a schema."""
    return {"metadata": {"schema": json.dumps(schema)}}
