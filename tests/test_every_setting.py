"""Every setting changes something that can be observed: one executed demonstration for each leaf, and for each field of
the lists and mappings. A new setting without an entry fails here, and so does one that is only carried about.

A demonstration observes the same thing under its base settings twice, which must be equal, and with the one setting
changed, which must differ.
"""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from tests.support.runs.settings_demonstrations import DEMOS, PARTS, Demo
from tests.support.runs.settings_probe import SettingsProbe
from tfgrpo.pipelines.settings.layers import fields_by_key, setting_fields
from tfgrpo.pipelines.settings.tree import Settings


def _fields_of_elements() -> set[str]:
    """Fields of the classes that lists and mappings of the settings hold, by dotted key."""
    found = set()
    for leaf in setting_fields():
        if leaf.type not in (tuple, dict):
            continue
        owner: Any = Settings
        *sections, name = leaf.key.split(".")
        for section in sections:
            owner = owner.model_fields[section].annotation
        for held in get_args(owner.model_fields[name].annotation):
            if isinstance(held, type) and issubclass(held, BaseModel):
                found |= {f"{leaf.key}.{field}" for field in held.model_fields}
    return found


def test_every_setting_has_its_demonstration():
    assert {leaf.key for leaf in setting_fields()} <= set(DEMOS) <= set(fields_by_key())
    assert set(PARTS) == _fields_of_elements()


@pytest.fixture
def probe(tmp_path, monkeypatch):
    return SettingsProbe(tmp_path, monkeypatch)


def demonstrate(probe: SettingsProbe, key: str, demo: Demo) -> None:
    value = demo.value if isinstance(demo.value, str) else demo.value(probe)
    before = demo.observe(probe, demo.base)
    assert demo.observe(probe, demo.base) == before, "what is observed does not stay the same by itself"
    assert demo.observe(probe, {**demo.base, key: value}) != before


@pytest.mark.parametrize("key", DEMOS)
def test_every_setting_changes_something(probe, key):
    demonstrate(probe, key, DEMOS[key])


@pytest.mark.parametrize("part", PARTS)
def test_every_field_of_a_list_or_mapping_changes_something(probe, part):
    demonstrate(probe, *PARTS[part])
