"""The public door of every package is explicit, sorted and the truth."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = ("flows", "pipelines", "prompt_packs", "rewarders", "stores", "tasks")


@pytest.fixture(params=PACKAGES)
def package(request) -> ModuleType:
    return importlib.import_module(request.param)


def in_order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions, each by name."""
    return not name.isupper(), not name[0].isupper(), name


def imported_from_our_rooms(package: ModuleType) -> dict[str, str]:
    """Name to the room it is taken from, wherever in ``__init__`` the import stands."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
    }


def test_public_names_are_listed_once_and_in_order(package):
    assert package.__all__ == sorted(package.__all__, key=in_order)
    assert len(set(package.__all__)) == len(package.__all__)


def test_every_public_name_can_be_imported(package):
    missing = [name for name in package.__all__ if not hasattr(package, name)]
    assert missing == []
    assert set(package.__all__) <= set(dir(package))


def test_what_a_package_takes_from_the_rooms_is_public_and_the_same_thing(package):
    homes = imported_from_our_rooms(package)
    assert set(homes) == set(package.__all__)
    for name, module in homes.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)


def test_a_name_that_does_not_exist_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_every_public_class_and_function_says_what_it_is(package):
    silent = [
        name
        for name in package.__all__
        if inspect.isroutine(found := getattr(package, name)) or inspect.isclass(found)
        if not found.__doc__
    ]
    assert silent == []
