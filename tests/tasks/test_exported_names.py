from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("name", ["tasks", "tasks.actors", "tasks.tools"])
def test_the_public_names_are_sorted_and_there(name):
    package = importlib.import_module(name)
    assert list(package.__all__) == sorted(package.__all__)
    assert all(hasattr(package, public) for public in package.__all__)
