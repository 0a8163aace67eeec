"""The ranges and defaults of a selection are those that earlier best-of-K systems had."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from tests.support.vectors import VECTORS
from tfgrpo.pipelines.settings.tree import TEMPERATURE_CYCLE, SelectionSettings

CASES = VECTORS / "selection_config.jsonl"
CASES = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def settings(config):
    named = {**config, "timeout_s": float(config["timeout"])}
    del named["timeout"]
    return SelectionSettings.model_validate(named)


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["changed"]))
def test_configurations_are_taken_and_refused_as_before(case):
    if case["accepted"]:
        assert settings(case["config"]).k == case["config"]["k"]
        return
    with pytest.raises(ValidationError):
        settings(case["config"])


def test_the_defaults():
    default = SelectionSettings()
    assert (default.k, default.max_validations, default.timeout_s, default.min_success) == (4, 3, 60.0, 1)
    assert (default.base_url, default.model) == ("http://localhost:11434/v1", "qwen2.5-coder")
    assert default.temperatures == TEMPERATURE_CYCLE == (0.5, 0.7, 0.9, 1.0, 0.6, 0.8, 0.95, 0.75)
    assert (default.none_valid, default.repair, default.memory) == ("raise", "all", "off")


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("k", (1, 16), (0, -1, 17)),
        ("max_validations", (0, 10), (-1, 11)),
        ("min_success", (1, 16), (0, 17)),
        ("timeout_s", (0.001, 3600.0), (0.0, -1.0)),
        ("temperatures", ((0.0,), (2.0, 0.1)), ((), (2.1,), (-0.1,))),
        ("stage", ("auto", "VALIDITY_GAP", "BEHAVIORAL_CONSOLIDATION"), ("A", "validity")),
        ("base_url", ("http://x",), ("x", "http://user:word@host/v1")),
    ],
)
def test_every_range_ends_where_it_says(name, inside, outside):
    for value in inside:
        assert getattr(SelectionSettings.model_validate({name: value}), name) == value
    for value in outside:
        with pytest.raises(ValidationError):
            SelectionSettings.model_validate({name: value})
