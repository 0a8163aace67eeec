"""The one parameter of the flow says the same as the command line."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from flows.request import RunRequest
from pipelines.layers import leaf_options, resolve_settings

FLAGS = {leaf.flag.removeprefix("--").replace("-", "_"): leaf for leaf in leaf_options() if leaf.flag}
SAMPLES = {"world": "unlearnable", "task_runner": "dask", "base_url": "http://localhost:1/v1", "dry_run": True}


def sample(name):
    if name in SAMPLES:
        return SAMPLES[name]
    return {int: 7, float: 1.5, str: "mine"}[FLAGS[name].type]


def test_fields_are_the_flags_and_no_others():
    assert set(RunRequest.model_fields) == set(FLAGS) | {"pipeline", "run_id", "resume", "replay", "settings"}


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


@pytest.mark.parametrize("asked", [{"epoch": 3}, {"world": "flat"}, {"epochs": "many"}])
def test_what_nobody_knows_is_refused(asked):
    with pytest.raises(ValidationError):
        RunRequest.model_validate(asked)
