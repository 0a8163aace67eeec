"""The public door of the package."""

from __future__ import annotations

import types

import rewarders


def test_the_listed_names_are_sorted_and_are_what_can_be_imported():
    public = {
        name
        for name, value in vars(rewarders).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert rewarders.__all__ == sorted(rewarders.__all__)
    assert set(rewarders.__all__) == public
