"""A user's module with the name of one of our packages is named before anything is done."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flows.own_names import OWN, shadowed
from rewarders import importing

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("module", "package", "folder")
ELSEWHERE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; from flows.cli import main; sys.exit(main(sys.argv[1:]))"
)
"""As the installed command does, which does not search the current folder."""


@pytest.fixture(autouse=True)
def _home(at_home):
    """Every command is typed in a folder with the user's modules only."""


def beside(home, name, kind):
    """A module of the user; what an agent beside it imports."""
    text = "def agent(prompt):\n    return 'x'\n"
    if kind == "module":
        (home / f"{name}.py").write_text(text)
        return name
    (home / name).mkdir()
    (home / name / ("__init__.py" if kind == "package" else "mine.py")).write_text(text)
    return name if kind == "package" else f"{name}.mine"


def python(*arguments, cwd):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", ["module", "package"])
@pytest.mark.parametrize("name", [name for name in OWN if name != "flows"])
def test_the_main_job_says_which_name_is_taken(at_home, name, kind):
    beside(at_home, name, kind)
    done = python("-m", "flows.tfgrpo", "--json", cwd=at_home)
    place = at_home / (f"{name}.py" if kind == "module" else name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"tfgrpo: the module name {name!r}: got {place}; accepted: another name")
    assert len(done.stderr.splitlines()) == 1
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["problems"][0]["given"]) == ("refused", str(place))
    assert not (at_home / "out").exists()


def test_a_module_of_the_user_called_flows_is_named_by_python_itself(at_home):
    beside(at_home, "flows", "module")
    done = python("-m", "flows.tfgrpo", cwd=at_home)
    assert done.returncode == 1
    assert "'flows.tfgrpo'" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_works_beside_all_of_them(at_home, kind):
    for name in OWN:
        beside(at_home, name, kind)
    (at_home / "fine.py").write_text("def agent(prompt):\n    return 'x'\n")
    assert python("-c", ELSEWHERE, "doctor", "--actor", "fine:agent", cwd=at_home).returncode == 0


@pytest.mark.parametrize(("name", "kind"), list(zip(OWN, itertools.cycle(KINDS), strict=False)))
def test_the_command_names_one_that_an_agent_means(at_home, name, kind):
    module = beside(at_home, name, kind)
    (at_home / "mixed_up.py").write_text(f"import {module}\n\ndef agent(prompt):\n    return {module}.agent(prompt)\n")
    place = at_home / (f"{name}.py" if kind == "module" else name)
    for reference in (f"{module}:agent", "mixed_up:agent"):
        done = python("-c", ELSEWHERE, "doctor", "--actor", reference, "--json", cwd=at_home)
        assert done.returncode == 2, reference
        (problem,) = json.loads(done.stdout)["problems"]
        assert problem["source"] == "actor.kind"
        assert f"{place} is hidden by tfgrpo's own package {name!r}: give it another name" in problem["given"]


def test_a_rewarder_that_is_hidden_is_named_too(at_home, monkeypatch):
    beside(at_home, "rewarders", "module")
    done = python("-c", ELSEWHERE, "doctor", "--set", 'rewarders=[{"name": "rewarders:mine"}]', cwd=at_home)
    assert done.returncode == 2
    assert f"{at_home / 'rewarders.py'} is hidden by tfgrpo's own package" in done.stderr


def test_our_own_packages_are_no_strangers():
    assert shadowed() == {}
    assert set(OWN) == importing._OWN
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {f"{name}*" for name in OWN} == set(project["tool"]["setuptools"]["packages"]["find"]["include"])
