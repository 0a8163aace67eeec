"""Small worlds to plan with: items, dataset files, a pack that needs no files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.prompt_packs.models import TEMPLATE_ROLES, LoadedPack, PromptPackManifest, TemplateFiles


@pytest.fixture
def make_items():
    def make(count: int, prefix: str = "q") -> tuple[Item, ...]:
        return tuple(
            Item(id=f"{prefix}-{n}", prompt=f"Question {prefix} {n}?", answer=str(n), source=f"{prefix}.jsonl:{n + 1}")
            for n in range(count)
        )

    return make


@pytest.fixture
def write_jsonl(tmp_path):
    def write(rows: Sequence[Any], name: str = "items.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def dataset(write_jsonl):
    return write_jsonl([{"id": f"q-{n}", "prompt": f"Question {n}?", "answer": n} for n in range(60)])


@pytest.fixture
def pack(tmp_path):
    manifest = PromptPackManifest(
        id="test-pack",
        domain="testing",
        system="system.md",
        templates=TemplateFiles(**{role: f"{role}.md" for role in TEMPLATE_ROLES}),
        experience_slots=8,
    )
    bodies = {f"{role}.md": f"Template for {role}. " * 10 for role in TEMPLATE_ROLES}
    return LoadedPack(manifest, tmp_path, {"system.md": "You solve tasks. " * 20, **bodies})
