"""One import name, and doors that are the truth."""

import ast
import importlib
import inspect
import pkgutil
import tomllib
from pathlib import Path

import grimp
import pytest

from tests.support.door_contract import forbidden

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("flows", "pipelines", "prompt_packs", "rewarders", "stores", "tasks")


def rooms() -> list[str]:
    found = pkgutil.walk_packages([str(ROOT / "tfgrpo")], "tfgrpo.")
    return ["tfgrpo", *(module.name for module in found if module.ispkg)]


@pytest.mark.parametrize("room", rooms())
def test_every_name_of_a_door_is_listed_once_exists_and_is_described(room):
    door = importlib.import_module(room)
    names = getattr(door, "__all__", [])
    assert door.__doc__
    assert len(set(names)) == len(names)
    for name in names:
        found = getattr(door, name, None) or importlib.import_module(f"{room}.{name}")
        assert not (inspect.isroutine(found) or inspect.isclass(found)) or found.__doc__, name


def test_a_door_is_short():
    assert [room for room in rooms() if len(inspect.getsource(importlib.import_module(room)).splitlines()) > 40] == []


def test_the_floors_are_folders_of_the_repository_under_one_name():
    for floor in FLOORS:
        link = ROOT / "tfgrpo" / floor
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{floor}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["tfgrpo*"]


def test_a_module_that_a_door_does_not_name_is_not_entered_from_outside():
    graph = grimp.build_graph("tfgrpo", cache_dir=None)
    assert list(forbidden(graph)) == []
    graph.add_import(importer="tfgrpo.tasks.group", imported="tfgrpo.flows.run.loop.batches")
    assert list(forbidden(graph)) == [
        ("tfgrpo.tasks.group", "tfgrpo.flows.run.loop.batches", "tfgrpo.flows"),
        ("tfgrpo.tasks.group", "tfgrpo.flows.run.loop.batches", "tfgrpo.flows.run.loop"),
    ]


SPOKEN = ("flows/api.py", "flows/commands/")
"""The doors of Python and of the shell, whose names are what a person types."""
CONVENTIONS = {"PUZZLE", "main"}
"""Names by which a module is entered, whichever it is."""


def test_a_public_name_is_defined_once():
    homes: dict[str, list[str]] = {}
    for path in sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        where = str(path.relative_to(ROOT))
        if where.startswith(SPOKEN):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            names = [each.id for each in targets if isinstance(each, ast.Name)] or [getattr(node, "name", "_")]
            for name in names:
                homes.setdefault(name, []).append(where)
    several = {name: found for name, found in homes.items() if len(found) > 1 and not name.startswith("_")}
    assert {name: found for name, found in several.items() if name not in CONVENTIONS} == {}
