"""Does the stamp depend on the content, and on nothing else? Is every change named?"""

import json
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.vectors import rows_of
from tfgrpo.prompt_packs.models import MAX_SOURCE_BYTES, PromptPackManifest
from tfgrpo.prompt_packs.stamps import (
    StampVerifier,
    compute_stamp,
    header_line,
    load_pack,
    load_prompt_pack,
    pack_stamp,
    parse_source,
    source_digest,
    stamp_pack,
    verified_pack,
)
from tfgrpo.stores.errors import PackError
from tfgrpo.stores.json_values import canonical_text

TEMPLATES = {"reflect": "r.md", "curate": "c.md", "shorten": "s.md", "repair": "p.md", "lessons": "l.md"}
MANIFEST = PromptPackManifest.model_validate_json(
    f'{{"id": "demo", "domain": "demos", "system": "system.md", "experience_slots": 3, "templates": {json.dumps(TEMPLATES)}}}'
)
BODIES = {"system.md": "Work.", **{name: f"Text of {name}" for name in TEMPLATES.values()}}
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=20), max_size=6)
MIXED = st.lists(st.sampled_from(["\n", "\r\n"]), min_size=8, max_size=8)
ENDS = MIXED | st.just(["\r"] * 8)  # CR beside LF would read as one line end
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


@given(lines=LINES, ends=ENDS, bom=st.booleans())
@SHARED
def test_line_ends_and_byte_order_mark_never_change_a_digest(lines, ends, bom):
    body = "\n".join(lines).strip("\n")
    written = [header_line("system.md", body, MANIFEST), *body.split("\n")]
    mixed = "".join(line + end for line, end in zip(written, ends, strict=False))
    source = parse_source(canonical_text((("\ufeff" if bom else "") + mixed).encode()))
    assert source.body == body
    assert source.header == (source_digest("system.md", body, MANIFEST), "demo", "demos")
    verifier = StampVerifier(Path("demo"), MANIFEST)
    faults = [str(problem) for problem in verifier.source_problems("system.md", source)]
    assert not [fault for fault in faults if "does not match" in fault or "no stamp header" in fault]


def test_a_known_stamp_stays_what_it_is():
    assert compute_stamp(MANIFEST, BODIES) == KNOWN_STAMP
    assert source_digest("system.md", "Work.", MANIFEST) == KNOWN_DIGEST


KNOWN_STAMP = "f974563eb3e6338b616a6997c90692f08041732ad1224ce72aa44f1f0c373c49"
KNOWN_DIGEST = "12639915cb447a5fa257eea850d1fb122a65216094658040f07bdaeb9543842c"


@pytest.mark.parametrize("name", ["system.md", "reflect.md", "manifest.json"])
@pytest.mark.parametrize("disguise", ["bom", "crlf", "cr", "upper", "trailing"])
def test_a_pack_reads_the_same_through_any_editor(directory, name, disguise):
    before, path = load_pack(directory), directory / name
    raw = path.read_bytes()
    changed = {
        "bom": b"\xef\xbb\xbf" + raw,
        "crlf": raw.replace(b"\n", b"\r\n"),
        "cr": raw.replace(b"\n", b"\r"),
        "upper": re.sub(rb"[0-9a-f]{64}", lambda digest: digest.group().upper(), raw),
        "trailing": raw + b"\n\n",
    }[disguise]
    assert changed != raw
    path.write_bytes(changed)
    after = load_pack(directory)
    assert (after, pack_stamp(after)) == (before, pack_stamp(before))


@pytest.mark.parametrize("line", rows_of("packs_stamps", "a_malformed_header_is_no_header"))
def test_a_malformed_header_is_no_header(line):
    assert parse_source(f"{line}\nbody").header is None


@pytest.mark.parametrize(("body", "told"), [
    *((f"Do this.{hidden}", "hidden character") for hidden in ("\u202e", "\u2066", "\x00", "\x1b[2J", "\U000e0041", "\x85")),
    ("", "no text"), ("  \n ", "no text"), ("See </Lessons >.", "a lessons tag"),
    ("\U0001f469\u200d\U0001f4bb \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 - fine", ""),
])  # fmt: skip
def test_hidden_characters_no_text_and_lessons_tags_are_not_approved(body, told):
    source = parse_source(f"{header_line('system.md', body, MANIFEST)}\n{body}")
    problems = "".join(map(str, StampVerifier(Path("demo"), MANIFEST).source_problems("system.md", source)))
    assert told in problems if told else not problems


def test_an_unstamped_pack_has_no_stamp_to_sign_with(pack):
    bare = replace(pack, manifest=pack.manifest.model_copy(update={"stamp": ""}))
    with pytest.raises(PackError, match="got none"):
        pack_stamp(bare)


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


def test_stamping_an_edited_pack_makes_it_verify_again(directory):
    old, path = load_pack(directory).manifest, directory / "house-rules.md"
    path.chmod(0o644)
    append(path, "- Be brief.\n")
    assert not verifies(directory)
    manifest = stamp_pack(directory, clock)
    assert manifest == load_pack(directory).manifest
    assert (manifest.stamp != old.stamp, manifest.stamped_at) == (True, "2030-05-06T07:08:09+00:00")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "packs are shared"


def test_stamping_an_unchanged_pack_changes_no_byte_and_keeps_its_lessons_valid(directory):
    before = snapshot(directory)
    stamp_pack(directory, clock)
    assert snapshot(directory) == before


def test_a_new_pack_without_stamp_or_headers_can_be_stamped(root):
    directory = root / "mine"
    directory.mkdir()
    content = json.loads((root / "general" / "manifest.json").read_text("utf-8"))
    del content["stamp"], content["stamped_at"]
    (directory / "manifest.json").write_text(json.dumps(content | {"id": "mine", "domain": "my-work"}), "utf-8")
    for path in (root / "general").glob("*.md"):
        (directory / path.name).write_text(path.read_text("utf-8").partition("\n")[2], "utf-8")
    stamp_pack(directory, clock)
    assert load_pack(directory).manifest.domain == "my-work"


@pytest.mark.parametrize(
    ("name", "text", "told"), rows_of("packs_stamping", "what_may_not_be_approved_is_refused_before_anything_is_written")
)
def test_what_may_not_be_approved_is_refused_before_anything_is_written(directory, name, text, told):
    append(directory / "house-rules.md", "- Be brief.\n")
    append(directory / name, f"{text}\n")
    before = snapshot(directory)
    with pytest.raises(PackError, match=told.replace("+", r"\+")):
        stamp_pack(directory, clock)
    assert snapshot(directory) == before


def test_a_break_while_writing_leaves_no_pack_that_verifies_and_no_litter(directory, monkeypatch):
    append(directory / "house-rules.md", "- Be brief.\n")
    names = set(snapshot(directory))

    def full_disk(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(PackError, match="No space left"):
        stamp_pack(directory, clock)
    assert set(snapshot(directory)) == names
    assert not verifies(directory)


Edit = Callable[..., None]
SOURCES = ("system.md", "house-rules.md", "reflect.md", "curate.md", "shorten.md", "repair.md", "lessons.md")


def refused(directory: Path, *words: str) -> None:
    with pytest.raises(PackError) as caught:
        load_pack(directory)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", SOURCES)
def test_one_changed_letter_in_any_source_is_noticed(directory, name):
    path = directory / name
    text = path.read_text("utf-8")
    path.write_text(text[:-10] + "x" + text[-9:], "utf-8")
    refused(directory, str(path), "header does not match")


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_without_header_is_refused_and_named(directory, name):
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
def test_a_pack_that_cannot_be_read_or_approved_is_refused(directory, spoil, told):
    spoil(directory)
    refused(directory, told)


def test_files_swapped_between_packs_are_noticed(root):
    for name in ("reflect.md", "shorten.md"):
        kept = (root / "general" / name).read_bytes()
        (root / "general" / name).write_bytes((root / "arithmetic" / name).read_bytes())
        (root / "arithmetic" / name).write_bytes(kept)
    refused(root / "arithmetic", "reflect.md: got", "shorten.md: got", "the header of pack general, domain general")
    refused(root / "general", "the header of pack arithmetic, domain arithmetic")


@pytest.mark.parametrize(
    ("changes", "told"),
    [*rows_of("packs_tampering", "a_manifest_with_a_bad_key_is_refused_by_name"), ({"stamp": "0" * 64}, "do not match")],
)
def test_a_manifest_with_a_bad_key_is_refused_by_name(directory, edit_manifest, changes, told):
    edit_manifest(**changes)
    refused(directory, str(directory / "manifest.json"), told)


@pytest.mark.parametrize("name", rows_of("packs_tampering", "a_source_name_that_could_leave_the_pack_is_refused"))
def test_a_source_name_that_could_leave_the_pack_is_refused(directory, edit_manifest, name):
    edit_manifest(inject=[name])
    refused(directory, "inject.0")


def test_a_pack_may_be_a_link_and_have_links_inside_it(root, directory):
    shutil.move(directory, root.parent / "arithmetic")
    directory.symlink_to(root.parent / "arithmetic")
    (directory / "kept").mkdir()
    shutil.move(directory / "system.md", directory / "kept" / "system.md")
    (directory / "system.md").symlink_to(directory / "kept" / "system.md")
    assert load_prompt_pack("arithmetic", root).manifest.id == "arithmetic"


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"id": NaN}', "[" * 5000])
def test_a_manifest_that_is_no_json_object_is_refused(directory, text):
    (directory / "manifest.json").write_text(text, "utf-8")
    refused(directory, str(directory / "manifest.json"))


def test_slots_tags_and_word_limit_can_be_tuned_under_the_same_stamp(directory, edit_manifest):
    before = load_pack(directory).manifest
    edit_manifest(experience_slots=3, tags=["money"], experience_max_words=20)
    manifest = load_pack(directory).manifest
    assert (manifest.stamp, manifest.experience_slots, manifest.tags, manifest.max_words) == (before.stamp, 3, ("money",), 20)
    stamped = stamp_pack(directory, clock)
    assert (stamped.stamp, stamped.stamped_at) == (before.stamp, before.stamped_at)


@pytest.mark.parametrize("name", SOURCES)
def test_a_forged_header_does_not_help_without_the_manifest(directory, name):
    manifest = load_pack(directory).manifest
    body = "Always do as the house rules say.\n{{ max_words }}"
    (directory / name).write_text(f"{header_line(name, body, manifest)}\n{body}\n", "utf-8")
    refused(directory, "a stamp that the sources do not match")
