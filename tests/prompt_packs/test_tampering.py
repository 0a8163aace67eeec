"""Is every way of changing an approved pack noticed?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.vectors import rows_of
from tfgrpo.prompt_packs.models import MAX_SOURCE_BYTES
from tfgrpo.prompt_packs.stamps import header_line, load_pack, load_prompt_pack
from tfgrpo.stores.errors import PackError

Edit = Callable[..., None]
SOURCES = ("system.md", "house-rules.md", "reflect.md", "curate.md", "shorten.md", "repair.md", "lessons.md")


def refused(directory: Path, *words: str) -> None:
    with pytest.raises(PackError) as caught:
        load_pack(directory)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", SOURCES)
def test_one_changed_letter_in_any_source_is_noticed(directory: Path, name: str) -> None:
    path = directory / name
    text = path.read_text("utf-8")
    path.write_text(text[:-10] + "x" + text[-9:], "utf-8")
    refused(directory, str(path), "header does not match")


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_without_header_is_refused_and_named(directory: Path, name: str) -> None:
    path = directory / name
    path.write_text(path.read_text("utf-8").partition("\n")[2], "utf-8")
    refused(directory, str(path), "no stamp header", "tfgrpo packs stamp")


def changed(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(change((folder / name).read_text("utf-8")), "utf-8")


def linked(folder: Path, to: str) -> None:
    (folder / "system.md").rename(folder.parent / "outside.md")
    (folder / "system.md").symlink_to(to)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "curate.md").unlink(), "curate.md: got no such file"),
        (lambda folder: linked(folder, "../outside.md"), "a link that leaves the pack"),
        (lambda folder: linked(folder, "system.md"), "system.md: got "),
        (lambda folder: (folder / "system.md").write_bytes(b"text \xff\xfe"), "bytes that are not UTF-8"),
        (changed("system.md", lambda text: text + "x" * MAX_SOURCE_BYTES), "a larger file"),
        (changed("system.md", lambda text: f"{text.partition(chr(10))[0]}\n{text}"), "a further stamp header"),
        (changed("manifest.json", lambda text: '{"id": "x", ' + text[1:]), "the key 'id' twice"),
        (changed("manifest.json", lambda text: text.replace('"id": "arithmetic"', '"id": "other"')), "id 'other'"),
        (shutil.rmtree, "no such file"),
    ],
)  # fmt: skip
def test_a_pack_that_cannot_be_read_or_approved_is_refused(directory: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(directory)
    refused(directory, told)


def test_all_problems_are_reported_at_once(directory: Path) -> None:
    for name in SOURCES:
        (directory / name).write_text("bare text", "utf-8")
    refused(directory, *(f"{name}: got no stamp header" for name in SOURCES))


def test_files_swapped_between_packs_are_noticed(root: Path) -> None:
    for name in ("reflect.md", "shorten.md"):
        kept = (root / "general" / name).read_bytes()
        (root / "general" / name).write_bytes((root / "arithmetic" / name).read_bytes())
        (root / "arithmetic" / name).write_bytes(kept)
    refused(root / "arithmetic", "the header of pack general, domain general")
    refused(root / "general", "the header of pack arithmetic, domain arithmetic")


@pytest.mark.parametrize(
    ("changes", "told"),
    [*rows_of("packs_tampering", "a_manifest_with_a_bad_key_is_refused_by_name"), ({"stamp": "0" * 64}, "do not match")],
)
def test_a_manifest_with_a_bad_key_is_refused_by_name(
    directory: Path, edit_manifest: Edit, changes: dict[str, object], told: str
) -> None:
    edit_manifest(**changes)
    refused(directory, str(directory / "manifest.json"), told)


@pytest.mark.parametrize("name", rows_of("packs_tampering", "a_source_name_that_could_leave_the_pack_is_refused"))
def test_a_source_name_that_could_leave_the_pack_is_refused(directory: Path, edit_manifest: Edit, name: str) -> None:
    edit_manifest(inject=[name])
    refused(directory, "inject.0")


def test_a_pack_may_itself_be_a_link(root: Path) -> None:
    shutil.move(root / "arithmetic", root.parent / "arithmetic")
    (root / "arithmetic").symlink_to(root.parent / "arithmetic")
    assert load_prompt_pack("arithmetic", root).manifest.id == "arithmetic"


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"id": NaN}', "[" * 5000])
def test_a_manifest_that_is_no_json_object_is_refused(directory: Path, text: str) -> None:
    (directory / "manifest.json").write_text(text, "utf-8")
    refused(directory, str(directory / "manifest.json"))


def test_slots_tags_and_word_limit_can_be_tuned_under_the_same_stamp(directory: Path, edit_manifest: Edit) -> None:
    before = json.loads((directory / "manifest.json").read_text("utf-8"))["stamp"]
    edit_manifest(experience_slots=3, tags=["money"], experience_max_words=20)
    manifest = load_pack(directory).manifest
    assert (manifest.stamp, manifest.experience_slots, manifest.tags, manifest.max_words) == (before, 3, ("money",), 20)


@pytest.mark.parametrize("name", SOURCES)
def test_a_forged_header_does_not_help_without_the_manifest(directory: Path, name: str) -> None:
    manifest = load_pack(directory).manifest
    body = "Always do as the house rules say.\n{{ max_words }}"
    (directory / name).write_text(f"{header_line(name, body, manifest)}\n{body}\n", "utf-8")
    refused(directory, "a stamp that the sources do not match")


def test_a_changed_domain_is_noticed(directory: Path, edit_manifest: Edit) -> None:
    edit_manifest(domain="general")
    refused(directory, "the header of pack arithmetic, domain general", "a stamp that the sources do not match")


def test_a_link_inside_the_pack_is_fine(directory: Path) -> None:
    (directory / "kept").mkdir()
    shutil.move(directory / "system.md", directory / "kept" / "system.md")
    (directory / "system.md").symlink_to(directory / "kept" / "system.md")
    assert load_pack(directory).root == directory
