"""CPU of each built-in grader for 100,000 completions: ``python -m benchmarks graders``."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from benchmarks.table import Row
from tfgrpo.rewarders.registry import GRADERS, build_scorer
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, Scorer

COMPLETIONS: Final = 100_000
WITH_ALGEBRA: Final = 1_000
"""Completions for math_verify, which takes a thousand times as long."""
LIMIT_US: Final = 200.0
"""For one completion: five graders on 100 items × G 5 then take half a second at most."""

REASONING: Final = "First 12 boxes of 1,080 apples each are counted, then 3/4 of them are set aside for later. " * 8
ANSWERS: Final = (
    "{n}",
    "It is {n}.",
    r"\boxed{{{n}}}",
    '{{"answer": {n}}}',
    "```json\n{{'answer': {n}}}\n```",
    "<answer>{n}</answer>",
)
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "category_match": {"allowed_categories": ["small", "large"]},
    "completion_length_cap": {"max_completion_tokens": 200},
    "regex": {"pattern": r"\d+"},
}
OF_ATTEMPTS: Final = frozenset({"cost", "latency", "tokens", "tool_calls"})
"""Scorers of how an attempt was made, of which a completion says nothing."""
LETTER: Final = "choice"
"""The grader whose references are letters."""


def completions(count: int) -> list[tuple[dict[str, Any], str]]:
    """Records and completions: a reasoning block of about 700 characters, and answers of six shapes in turn."""
    schema = json.dumps({"required": ["answer"], "root_tag": "answer"})
    return [
        (
            {"answer": str(number), "metadata": {"schema": schema, "expected_json_schema": {"required": ["answer"]}}},
            f"<think>\n{REASONING}\n</think>\n{ANSWERS[number % len(ANSWERS)].format(n=number)}",
        )
        for number in range(count)
    ]


def inputs(count: int) -> list[GraderInput]:
    """The same, cut into reasoning and answer."""
    return [
        GraderInput.of(f"bench:{number}", record, completion, completion_tokens=number % 400, completion_index=number)
        for number, (record, completion) in enumerate(completions(count))
    ]


def grading(name: str, items: list[GraderInput]) -> Row:
    """Microseconds for one completion of a whole batch."""
    scorer = build_scorer(name, OPTIONS.get(name))
    if not isinstance(scorer, Scorer) or not isinstance(grader := scorer.made_from, ItemScorer):
        raise SystemExit(f"{name} does not score single attempts")
    grader.score_one(items[0])
    began = time.perf_counter()
    for item in items:
        grader.score_one(item)
    seconds = time.perf_counter() - began
    return _row(f"graders: {name}", seconds, len(items), LIMIT_US if name != "math_verify" else None)


def measure() -> list[Row]:
    """One row for cutting completions, and one for each grader."""
    raw = completions(COMPLETIONS)
    began = time.perf_counter()
    for number, (record, completion) in enumerate(raw):
        GraderInput.of(f"bench:{number}", record, completion, completion_index=number)
    rows = [_row("graders: cutting into reasoning and answer", time.perf_counter() - began, len(raw), LIMIT_US)]
    items = inputs(COMPLETIONS)
    texts = (name for name in GRADERS if name not in OF_ATTEMPTS)
    quick = (name for name in texts if getattr(build_scorer(name, OPTIONS.get(name)), "place", "") == "inline")
    letters = [replace(item, record={**item.record, "answer": "ABCD"[at % 4]}) for at, item in enumerate(items)]
    rows += [grading(name, letters if name == LETTER else items) for name in quick]
    if importlib.util.find_spec("math_verify") is not None:
        rows.append(grading("math_verify", items[:WITH_ALGEBRA]))
    return rows


def _row(name: str, seconds: float, count: int, limit_us: float | None) -> Row:
    each = seconds / count * 1e6
    note = f"{count:,} completions: {count / seconds:,.0f} a second"
    return Row(name, each, "us each", limit_us, note)
