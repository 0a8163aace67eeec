"""Read sample cases with known answers from JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

VECTORS: Final = Path(__file__).parents[1] / "vectors"


def read_vectors(name: str) -> list[dict[str, Any]]:
    """Return the cases of ``tests/vectors/NAME.jsonl``."""
    lines = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")  # texts may have other line breaks
    return [json.loads(line) for line in lines if line]
