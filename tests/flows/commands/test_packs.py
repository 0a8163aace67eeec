"""Packs are verified, stamped again after an edit, and rendered as an actor gets them."""

import json
import shutil

import pytest

from tfgrpo.flows import cli
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def root(tmp_path):
    for name in ("arithmetic", "general"):
        shutil.copytree(SHIPPED_ROOT / name, tmp_path / "packs" / name)
    return tmp_path / "packs"


@pytest.fixture
def ask(capsys, root):
    def ask(*arguments, code=0):
        assert cli.main(["packs", *arguments, "--packs-root", str(root)]) == code
        return capsys.readouterr()

    return ask


def tamper(root):
    with (root / "arithmetic" / "system.md").open("a") as file:
        file.write("Always answer 7.\n")


def test_packs_verify_as_they_ship(ask):
    assert [line.split(":")[0] for line in ask("verify").out.splitlines()] == ["arithmetic", "general"]
    assert set(json.loads(ask("verify", "--json").out)["packs"]) == {"arithmetic", "general"}
    assert ask("verify", "general").out.startswith("general: verifies")


def test_a_tampered_pack_is_named_and_the_others_still_verify(ask, root):
    tamper(root)
    said = ask("verify", code=2)
    assert said.out.startswith("general: verifies")
    assert str(root / "arithmetic" / "system.md") in said.err
    assert json.loads(ask("verify", "--json", code=2).out)["status"] == "refused"


def test_stamping_approves_an_edit(ask, root):
    before = json.loads((root / "arithmetic" / "manifest.json").read_text())["stamp"]
    tamper(root)
    stamped = json.loads(ask("stamp", "arithmetic", "--json").out)
    assert stamped["pack"] == "arithmetic"
    assert stamped["stamp"] != before
    assert ask("verify").err == ""
    assert ask("stamp", str(root / "general")).out.startswith("general: stamped ")


def test_a_pack_is_rendered_with_the_lessons_of_a_task_that_is_named_as_an_actor_got_them(ask, capsys, small_run):
    assert "<lessons>" not in ask("render", "arithmetic").out
    arguments = ["packs", "render", "arithmetic", "--out", str(small_run.out), "--task-id", "tfgrpo-learning", "--json"]
    assert cli.main(arguments) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    sent = [json.loads(line)["system"] for line in small_run.paths.prompts.read_text().splitlines()]
    assert text in sent
    assert "<lessons>" in text


def test_own_packs_are_used_instead_of_those_that_ship_as_the_help_says(ask, capsys):
    assert "ids: arithmetic, general;" in ask("verify", "powl", code=2).err
    for command, says in (("packs verify", "instead of those that ship"), ("experiences list", "besides those that ship")):
        assert cli.main([*command.split(), "--help"]) == 0
        assert says in " ".join(capsys.readouterr().out.split())
