"""Is the right pack found, and is whatever is unknown or unapproved refused with the path in the log?"""

import logging
import re
import shutil

import pytest

from tfgrpo import prompt_packs
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, domains, known_packs, load_prompt_pack, verified_pack
from tfgrpo.rewarders.powl import labels_of, model_in, parse_text
from tfgrpo.rewarders.powl.model import OPERATORS, Operator, walk
from tfgrpo.rewarders.statistics.credit import RULES
from tfgrpo.stores.errors import PackError, PowlError


def test_every_pack_that_ships_verifies():
    assert known_packs() == ("arithmetic", "general", "powl")
    assert all(verified_pack(SHIPPED_ROOT / name).manifest.id == name for name in known_packs())


@pytest.mark.parametrize(
    ("name", "expected"), [("arithmetic", "arithmetic"), ("general", "general"), ("process-models", "powl")]
)
def test_a_pack_is_found_by_id_or_domain(name, expected):
    assert load_prompt_pack(name).manifest.id == expected


@pytest.mark.parametrize("name", ["astronomy", "../general", "/etc", "x" * 500, "\x00"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(PackError, match=r"ids: arithmetic, general, powl; domains: arithmetic, .*, process-models"):
        load_prompt_pack(name)


def test_a_root_of_your_own_replaces_those_that_ship_and_an_empty_one_is_not_a_missing_one(root, tmp_path):
    shutil.rmtree(root / "general")
    assert known_packs(root) == ("arithmetic", "powl")
    for name, said in (
        ("packs", "ids: arithmetic, powl"), (".", "ids: none; domains: none"), ("no", "a readable directory of prompt packs"),
    ):  # fmt: skip
        with pytest.raises(PackError, match=said):
            load_prompt_pack("general", tmp_path / name)


def test_a_domain_with_several_packs_asks_for_an_id(root):
    (root / "general").rename(root / "kept")
    for name, old, new in (("powl", "process-models", "general"), ("kept", '"id": "general"', '"id": "kept"')):
        manifest = root / name / "manifest.json"
        manifest.write_text(manifest.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(PackError, match="one of kept, powl"):
        load_prompt_pack("general", root)
    assert load_prompt_pack("arithmetic", root).manifest.id == "arithmetic"


def test_a_rejected_file_is_logged_with_its_path(directory, caplog):
    (directory / "reflect.md").write_text("no header", "utf-8")
    with caplog.at_level(logging.ERROR, "tfgrpo.packs"), pytest.raises(PackError) as caught:
        load_prompt_pack("arithmetic", directory.parent)
    assert str(directory / "reflect.md") in caplog.text
    assert str(directory / "reflect.md") in str(caught.value)


def test_a_broken_manifest_of_another_pack_is_logged_and_hides_no_pack(root, caplog):
    (root / "general" / "manifest.json").write_text("{", "utf-8")
    with caplog.at_level(logging.WARNING, "tfgrpo.packs"):
        assert load_prompt_pack("process-models", root).manifest.id == "powl"
    assert str(root / "general" / "manifest.json") in caplog.text
    assert known_packs(root) == ("arithmetic", "general", "powl")
    assert "general" not in domains(root)


@pytest.mark.parametrize("name", ["general", "powl"])
def test_packs_for_own_tasks_have_room_for_every_lesson_that_is_admitted(name):
    assert load_prompt_pack(name).manifest.experience_slots >= RULES.most_on_trial


def test_the_names_of_the_specification_are_public():
    assert {"load_prompt_pack", "merge_experiences", "StampVerifier"} <= set(prompt_packs.__all__)


SYSTEM = load_prompt_pack("powl").bodies["system.md"]
EXAMPLE = next(line for line in SYSTEM.splitlines() if line.startswith("SEQUENCE("))
REFUSED = SYSTEM.split("This is no model:", 1)[1].strip().splitlines()[0]


def test_every_operator_is_explained_and_every_form_shown_is_read():
    forms = re.findall(r"^- `([^`]+)`:", SYSTEM, re.MULTILINE)
    models = [parse_text(form.replace(", ...", "")) for form in forms]
    assert {model.kind for model in models if isinstance(model, Operator)} == set(OPERATORS)
    assert len(forms) == len(OPERATORS) + 2


def test_the_example_is_a_model_with_its_labels():
    model = parse_text(EXAMPLE)
    named = SYSTEM.split("with the labels ", 1)[1].split(" becomes", 1)[0]
    assert sorted(labels_of(model)) == named.split(", ")
    assert {node.kind for node in walk(model) if isinstance(node, Operator)} == {"SEQUENCE", "PARALLEL", "XOR"}
    assert model_in(f"1. List: sign in (first), host, badge.\n2. XOR for the laptop.\n\nAnswer: {EXAMPLE}") == model


def test_the_negative_example_is_refused():
    with pytest.raises(PowlError):
        model_in(REFUSED)


def test_the_answer_line_is_asked_for_at_the_end():
    asked = "End with one line of exactly this form, with the whole model on it, and write nothing after it:"
    assert SYSTEM.rstrip().endswith(f"{asked}\n\nAnswer: <model>")
