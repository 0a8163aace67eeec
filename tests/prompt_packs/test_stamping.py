"""Does approving a pack do what an author expects, and nothing behind their back?"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.vectors import rows_of
from tfgrpo.prompt_packs.stamps import load_pack, stamp_pack, verified_pack
from tfgrpo.stores.errors import PackError

NOW = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


def clock() -> datetime:
    return NOW


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text("utf-8") + text, "utf-8")


def verifies(directory: Path) -> bool:
    try:
        return verified_pack(directory).root == directory
    except PackError:
        return False


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_stamping_an_edited_pack_makes_it_verify_again(directory: Path) -> None:
    old = load_pack(directory).manifest
    append(directory / "house-rules.md", "- Be brief.\n")
    assert not verifies(directory)
    manifest = stamp_pack(directory, clock)
    assert verifies(directory)
    assert manifest == load_pack(directory).manifest
    assert manifest.stamp != old.stamp
    assert manifest.stamped_at == "2030-05-06T07:08:09+00:00"


def test_stamping_an_unchanged_pack_changes_no_byte_and_keeps_its_lessons_valid(directory: Path) -> None:
    before = snapshot(directory)
    stamp_pack(directory, clock)
    assert snapshot(directory) == before


def test_tuning_a_knob_and_stamping_keeps_the_stamp_and_its_time(directory: Path, edit_manifest: Callable[..., None]) -> None:
    old = load_pack(directory).manifest
    edit_manifest(experience_slots=2)
    manifest = stamp_pack(directory, clock)
    assert (manifest.stamp, manifest.stamped_at) == (old.stamp, old.stamped_at)


def test_a_new_pack_without_stamp_or_headers_can_be_stamped(root: Path) -> None:
    directory = root / "mine"
    directory.mkdir()
    content = json.loads((root / "general" / "manifest.json").read_text("utf-8"))
    del content["stamp"], content["stamped_at"]
    (directory / "manifest.json").write_text(json.dumps(content | {"id": "mine", "domain": "my-work"}), "utf-8")
    for path in (root / "general").glob("*.md"):
        (directory / path.name).write_text(path.read_text("utf-8").partition("\n")[2], "utf-8")
    stamp_pack(directory, clock)
    assert load_pack(directory).manifest.domain == "my-work"


def test_permissions_of_the_files_are_kept(directory: Path) -> None:
    path = directory / "system.md"
    path.chmod(0o644)
    append(path, "More.\n")
    stamp_pack(directory, clock)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("name", "text", "told"), rows_of("packs_stamping", "what_may_not_be_approved_is_refused_before_anything_is_written")
)
def test_what_may_not_be_approved_is_refused_before_anything_is_written(
    directory: Path, name: str, text: str, told: str
) -> None:
    append(directory / "house-rules.md", "- Be brief.\n")
    append(directory / name, f"{text}\n")
    before = snapshot(directory)
    with pytest.raises(PackError, match=told.replace("+", r"\+")):
        stamp_pack(directory, clock)
    assert snapshot(directory) == before


def test_a_break_while_writing_leaves_no_pack_that_verifies_and_no_litter(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(directory / "house-rules.md", "- Be brief.\n")
    names = set(snapshot(directory))

    def full_disk(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full_disk)
        with pytest.raises(PackError, match="No space left"):
            stamp_pack(directory, clock)
    assert set(snapshot(directory)) == names
    assert not verifies(directory)
    stamp_pack(directory, clock)
    assert verifies(directory)
