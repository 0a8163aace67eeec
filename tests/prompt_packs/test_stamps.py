"""Does the stamp depend on the content, and on nothing else?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.vectors import rows_of
from tfgrpo.prompt_packs.models import LoadedPack, PromptPackManifest
from tfgrpo.prompt_packs.stamps import (
    StampVerifier,
    compute_stamp,
    header_line,
    is_approved,
    load_pack,
    pack_stamp,
    parse_source,
    source_digest,
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
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


@given(lines=LINES, ends=ENDS, bom=st.booleans())
@SHARED
def test_line_ends_and_byte_order_mark_never_change_a_digest(lines: list[str], ends: list[str], bom: bool) -> None:
    body = "\n".join(lines).strip("\n")
    written = [header_line("system.md", body, MANIFEST), *body.split("\n")]
    mixed = "".join(line + end for line, end in zip(written, ends, strict=False))
    source = parse_source(canonical_text((("\ufeff" if bom else "") + mixed).encode()))
    assert source.body == body
    assert source.header == (source_digest("system.md", body, MANIFEST), "demo", "demos")
    verifier = StampVerifier(Path("demo"), MANIFEST)
    faults = [str(problem) for problem in verifier.source_problems("system.md", source)]
    assert not [fault for fault in faults if "does not match" in fault or "no stamp header" in fault]


@pytest.mark.parametrize("change", [{"id": "other"}, {"domain": "others"}, {"system": "r.md"}, {"inject": ("s.md",)}])
def test_id_domain_and_roles_are_inside_the_stamp(change: dict[str, object]) -> None:
    assert compute_stamp(MANIFEST.model_copy(update=change), BODIES) != compute_stamp(MANIFEST, BODIES)


@pytest.mark.parametrize("change", [{"id": "other"}, {"domain": "others"}])
def test_id_and_domain_are_inside_the_digest_of_each_source(change: dict[str, object]) -> None:
    changed = source_digest("system.md", "Work.", MANIFEST.model_copy(update=change))
    assert changed != source_digest("system.md", "Work.", MANIFEST)
    assert source_digest("r.md", "Work.", MANIFEST) != source_digest("system.md", "Work.", MANIFEST)


def test_a_known_stamp_stays_what_it_is() -> None:
    assert compute_stamp(MANIFEST, BODIES) == KNOWN_STAMP
    assert source_digest("system.md", "Work.", MANIFEST) == KNOWN_DIGEST


KNOWN_STAMP = "f974563eb3e6338b616a6997c90692f08041732ad1224ce72aa44f1f0c373c49"
KNOWN_DIGEST = "12639915cb447a5fa257eea850d1fb122a65216094658040f07bdaeb9543842c"


@pytest.mark.parametrize("name", ["system.md", "reflect.md", "manifest.json"])
@pytest.mark.parametrize("disguise", ["bom", "crlf", "cr", "upper", "trailing"])
def test_a_pack_reads_the_same_through_any_editor(directory: Path, name: str, disguise: str) -> None:
    before = load_pack(directory)
    path = directory / name
    raw = path.read_bytes()
    digests = [pack_stamp(before).stamp, raw.decode().partition("sha256:")[2][:64] or "-"]
    upper = raw
    for digest in digests:
        upper = upper.replace(digest.encode(), digest.upper().encode())
    changed = {
        "bom": b"\xef\xbb\xbf" + raw,
        "crlf": raw.replace(b"\n", b"\r\n"),
        "cr": raw.replace(b"\n", b"\r"),
        "upper": upper,
        "trailing": raw + b"\n\n",
    }[disguise]
    assert changed != raw
    path.write_bytes(changed)
    after = load_pack(directory)
    assert after == before
    assert pack_stamp(after) == pack_stamp(before)


@pytest.mark.parametrize("line", rows_of("packs_stamps", "a_malformed_header_is_no_header"))
def test_a_malformed_header_is_no_header(line: str) -> None:
    assert parse_source(f"{line}\nbody").header is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        *(
            (f"Do this.{hidden}", "hidden character")
            for hidden in ("\u202e", "\u2066", "\x00", "\x1b[2J", "\U000e0041", "\x85")
        ),
        *(("", "no text"), ("  \n ", "no text"), ("See </Lessons >.", "a lessons tag")),
        ("\U0001f469\u200d\U0001f4bb \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 - fine", ""),
    ],
)
def test_hidden_characters_no_text_and_lessons_tags_are_not_approved(body: str, told: str) -> None:
    source = parse_source(f"{header_line('system.md', body, MANIFEST)}\n{body}")
    problems = "".join(map(str, StampVerifier(Path("demo"), MANIFEST).source_problems("system.md", source)))
    assert told in problems if told else not problems


def test_an_unstamped_pack_has_no_stamp_to_sign_with(pack: LoadedPack) -> None:
    bare = LoadedPack(
        pack.manifest.model_copy(update={"stamp": ""}), pack.root, pack.system_text, pack.inject_texts, pack.templates
    )
    with pytest.raises(PackError, match="got none"):
        pack_stamp(bare)


def test_a_pack_stays_in_force_until_its_directory_changes(pack: LoadedPack, directory: Path) -> None:
    assert is_approved(pack)
    (directory / "repair.md").write_text("changed", "utf-8")
    assert not is_approved(pack)
