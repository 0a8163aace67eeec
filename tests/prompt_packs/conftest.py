"""A pack to spoil, and records that were learned under it."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, load_pack, pack_stamp
from tfgrpo.stores.experiences.store import ExperienceRecord, Reward, stamp_record

MakeRecord = Callable[..., ExperienceRecord]


@pytest.fixture
def root(tmp_path):
    """A root with copies of the packs that ship."""
    base = tmp_path / "packs"
    for manifest in SHIPPED_ROOT.glob("*/manifest.json"):
        shutil.copytree(manifest.parent, base / manifest.parent.name)
    return base


@pytest.fixture
def directory(root):
    return root / "arithmetic"


@pytest.fixture
def edit_manifest(directory):
    """Change keys of the manifest; ``None`` removes a key."""

    def edit(**changes: Any) -> None:
        path = directory / "manifest.json"
        content = json.loads(path.read_text("utf-8")) | changes
        kept = {key: value for key, value in content.items() if value is not None}
        path.write_text(json.dumps(kept), "utf-8")

    return edit


@pytest.fixture
def make_record():
    """Build a record signed under a pack. ``sign=False`` leaves it unstamped."""

    def make(pack: LoadedPack, number: int, text: str = "", *, sign: bool = True, **changes: Any) -> ExperienceRecord:
        fields: dict[str, Any] = {
            "experience_id": f"e{number}",
            "run_id": "run-1",
            "task_id": "task",
            "domain": pack.manifest.domain,
            "pack_id": pack.manifest.id,
            "epoch": 1,
            "batch": 0,
            "group_id": f"g{number}",
            "operation": "add",
            "summary32": text or f"When step {chr(97 + number % 26)}{chr(97 + number // 26)} comes up, check the unit.",
            "polarity": "do",
            "reward": Reward(gt_score=1.0, relative_rank=1.0),
            "stamp_signature": "",
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        }
        record = ExperienceRecord(**(fields | changes))
        return stamp_record(record, pack_stamp(pack)) if sign else record

    return make


@pytest.fixture
def pack(directory):
    return load_pack(directory)
