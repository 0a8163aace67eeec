"""Write a small mix file and its datasets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROWS = 20


def rows(name: str, count: int = ROWS) -> list[dict[str, Any]]:
    return [{"prompt": f"{name} {n}?", "answer": str(n), "extra": n} for n in range(count)]


def write_rows(path: Path, records: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def document(**changes: Any) -> dict[str, Any]:
    """Return a small valid mix: ``a`` alone until step 10, then ``a`` and ``b`` as 1 to 3 until step 30."""
    return {
        "paths": {"data_root": "data"},
        "datasets": {
            "a": {"path": "a.jsonl", "graders": ["math_exact"], "grader_weights": [3.0]},
            "b": {"path": "sub/b.jsonl", "multiplicative_graders": ["json_valid"]},
        },
        "stages": [
            {"name": "warm-up", "until_step": 10, "datasets": [{"id": "a", "weight": 1}]},
            {"name": "mixed", "until_step": 30, "datasets": [{"id": "a", "weight": 1}, {"id": "b", "weight": 3.0}]},
        ],
        **changes,
    }


def write_mix(folder: Path, content: Mapping[str, Any] | str | None = None, **changes: Any) -> Path:
    """Write the mix file, and its datasets ``a`` and ``b``."""
    write_rows(folder / "data" / "a.jsonl", rows("a"))
    write_rows(folder / "data" / "sub" / "b.jsonl", rows("b"))
    path = folder / "rl_data_config.yaml"
    mix = document(**changes) if content is None else content
    path.write_text(mix if isinstance(mix, str) else yaml.safe_dump(mix, sort_keys=False), encoding="utf-8")
    return path
