"""A request says the same as the command line, whether by fields or by dotted keys."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.pipelines.settings.fields import setting_fields
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.stores.errors import SettingsError

FLAGS = {leaf.flag.removeprefix("--").replace("-", "_"): leaf for leaf in setting_fields() if leaf.flag}
SAMPLES = {
    "world": "unlearnable",
    "task_runner": "dask",
    "base_url": "http://localhost:1/v1",
    "dry_run": True,
    "allow_zero": True,
}


def sample(name):
    if name in SAMPLES:
        return SAMPLES[name]
    return {int: 7, float: 1.5, str: "mine"}[FLAGS[name].type]


def test_fields_are_the_flags_and_no_others():
    assert set(RunRequest.model_fields) == set(FLAGS) | {
        "pipeline",
        "run_id",
        "resume",
        "replay",
        "settings",
        "flow_run_id",
        "measures",
        "test",
    }


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_every_flag_reaches_its_setting(name):
    request = RunRequest.model_validate({name: sample(name)})
    resolved = resolve_settings(cli=request.options(), env={})
    value = resolved.settings.model_dump()
    for part in FLAGS[name].key.split("."):
        value = value[part]
    assert value == sample(name)
    assert resolved.sources[FLAGS[name].key].startswith("command line")


def test_absent_fields_ask_for_nothing():
    assert RunRequest().options() == {}


def test_any_other_setting_is_reached_by_its_key():
    asked = RunRequest(settings={"tfgrpo.min_spread": 0.25, "model.send_seed": False}).options()
    assert asked == {"tfgrpo.min_spread": "0.25", "model.send_seed": "false"}
    assert resolve_settings(cli=asked, env={}).settings.model.send_seed is False


def test_a_field_and_its_key_with_two_values_are_refused():
    with pytest.raises(SettingsError, match=r"settings budget\.max_calls: got 9000 beside max_calls 5000"):
        RunRequest(max_calls=5000, settings={"budget.max_calls": 9000}).options()
    assert RunRequest(epochs=2, settings={"tfgrpo.epochs": 2}).options() == {"tfgrpo.epochs": "2"}


def test_a_request_over_another_replaces_what_it_says_and_nothing_else():
    below = {"pipeline": "powl", "max_calls": 5000, "settings": {"tfgrpo.epochs": 4, "budget.max_tokens": 9}}
    asked = RunRequest(epochs=2, max_calls=None, settings={"tfgrpo.min_spread": 0.1}).laid_over(below)
    assert asked == {
        "pipeline": "powl",
        "max_calls": 5000,
        "epochs": 2,
        "settings": {"budget.max_tokens": 9, "tfgrpo.min_spread": 0.1},
    }


@pytest.mark.parametrize("asked", [{"epoch": 3}, {"world": "flat"}, {"epochs": "many"}])
def test_what_nobody_knows_is_refused(asked):
    with pytest.raises(ValidationError):
        RunRequest.model_validate(asked)
