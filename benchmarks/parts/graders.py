"""CPU of each built-in grader for 100,000 completions: ``python -m benchmarks.parts.graders``."""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.table import Row, table
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader

COMPLETIONS: Final = 100_000
WITH_ALGEBRA: Final = 1_000
"""Completions for math_verify, which works in another process and takes a thousand times as long."""
REPEATS: Final = 3
LIMIT_US: Final = 50.0
"""For one completion: five graders on 100 items × G 5 then take an eighth of a second at most."""

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
}


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
    """Microseconds for one completion, as the median of whole batches."""
    grader = build_grader(name, OPTIONS.get(name))
    grader.grade_batch(items[:1])
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        results = grader.grade_batch(items)
        seconds.append(time.perf_counter() - began)
        if not isinstance(results, list) or len(results) != len(items):
            raise SystemExit(f"{name}: not every completion got a result")
    return _row(f"graders: {name}", statistics.median(seconds), len(items), bar=name != "math_verify")


def measure() -> list[Row]:
    """One row for cutting completions, and one for each grader."""
    raw = completions(COMPLETIONS)
    began = time.perf_counter()
    for number, (record, completion) in enumerate(raw):
        GraderInput.of(f"bench:{number}", record, completion, completion_index=number)
    rows = [_row("graders: cutting into reasoning and answer", time.perf_counter() - began, len(raw), bar=True)]
    items = inputs(COMPLETIONS)
    rows += [grading(name, items) for name in sorted(BUILT_IN) if "verify" not in name]
    if importlib.util.find_spec("math_verify") is not None:
        rows.append(grading("math_verify", items[:WITH_ALGEBRA]))
    return rows


def _row(name: str, seconds: float, count: int, *, bar: bool) -> Row:
    each = seconds / count * 1e6
    note = f"{count:,} completions: {count / seconds:,.0f} a second"
    return Row(name, each, "us each", LIMIT_US if bar else None, note)


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
