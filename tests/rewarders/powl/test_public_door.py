"""The public door of the package: what is listed is what there is, and it stays light."""

from __future__ import annotations

import subprocess
import sys
import types

import tfgrpo.rewarders.powl as door

WANTED = {
    "parse_text",
    "parse_json",
    "to_text",
    "to_json",
    "validate",
    "footprint",
    "footprint_similarity",
}


def test_the_listed_names_are_sorted_and_are_what_can_be_imported():
    public = {name for name, value in vars(door).items() if name[0] != "_" and not isinstance(value, types.ModuleType)}
    assert set(door.__all__) >= public >= WANTED


def test_a_function_is_not_hidden_by_the_module_of_its_name():
    assert callable(door.footprint)
    assert door.footprint(door.parse_text("XOR(a, b)")).exclusive


def test_reading_a_model_imports_nothing_heavy():
    code = "import sys, tfgrpo.rewarders.powl; print(sorted({'numpy', 'pydantic', 'prefect'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
