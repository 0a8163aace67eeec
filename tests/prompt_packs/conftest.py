"""A pack to spoil, and records that were learned under it."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.records import records
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, load_pack, pack_stamp
from tfgrpo.stores.experiences.store import ExperienceRecord

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
        step = f"{chr(97 + number % 26)}{chr(97 + number // 26)}"
        known = {"domain": pack.manifest.domain, "summary32": text or f"When step {step} comes up, check the unit."}
        record = records.make_record(f"e{number}", pack=pack_stamp(pack), **(known | changes))
        return record if sign else record.model_copy(update={"stamp_signature": changes.get("stamp_signature", "")})

    return make


@pytest.fixture
def pack(directory):
    return load_pack(directory)
