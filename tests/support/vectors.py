"""Read sample cases with known answers from JSON lines."""

import json
from pathlib import Path
from typing import Any, Final

VECTORS: Final = Path(__file__).parents[1] / "vectors"


def read_vectors(name: str) -> list[dict[str, Any]]:
    """Return the cases of ``tests/vectors/NAME.jsonl``."""
    lines = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")  # texts may have other line breaks
    return [json.loads(line) for line in lines if line]


def rows_of(name: str, table: str) -> list[Any]:
    """Return the rows of one table of ``tests/vectors/NAME.jsonl``; one of several values is a tuple."""
    rows = [case["row"] for case in read_vectors(name) if case["table"] == table]
    return [tuple(row) if isinstance(row, list) else row for row in rows]
