"""A request says the same as the command line, whether by fields or by dotted keys."""

import pytest
from pydantic import ValidationError

from tfgrpo.flows.console.environment import PREFECT_DEFAULTS, quiet_prefect
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.pipelines.settings.layers import fields_by_key, resolve_settings
from tfgrpo.stores.errors import SettingsError

FLAGS = {name: fields_by_key()[key] for name, key in RunRequest.KEYS.items()}
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


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_every_flag_reaches_its_setting(name):
    request = RunRequest.model_validate({name: sample(name)})
    resolved = resolve_settings(cli=request.settings, env={})
    value = resolved.settings.model_dump()
    for part in FLAGS[name].key.split("."):
        value = value[part]
    assert value == sample(name)
    assert resolved.sources[FLAGS[name].key].startswith("command line")


def test_a_field_and_its_key_with_two_values_are_refused():
    with pytest.raises(SettingsError, match=r"settings budget\.max_calls: got 9000 beside max_calls 5000"):
        RunRequest(max_calls=5000, settings={"budget.max_calls": 9000})
    assert RunRequest(epochs=2, settings={"tfgrpo.epochs": 2}).settings == {"tfgrpo.epochs": 2}


@pytest.mark.parametrize(
    ("name", "text", "value"), [("epochs", " 3 ", 3), ("max_usd", "5", 5.0), ("dry_run", "off", False), ("max_calls", 7, 7.0)]
)
def test_a_setting_given_twice_as_text_and_as_a_value_is_one_value(name, text, value):
    key = RunRequest.KEYS[name]
    for one, other in ((text, value), (value, text)):
        request = RunRequest.model_validate({name: one, "settings": {key: other}})
        assert request.settings.keys() == {key}
    with pytest.raises(SettingsError, match=f"settings {key}: got 4 beside {name}"):
        RunRequest.model_validate({name: text, "settings": {key: "4"}})


def test_a_request_over_another_replaces_what_it_says_and_nothing_else():
    below = RunRequest(pipeline="general", max_calls=5000, settings={"tfgrpo.epochs": 4, "budget.max_tokens": 9})
    asked = RunRequest(epochs=2, max_calls=None, settings={"tfgrpo.min_spread": 0.1}).laid_over(below)
    settings = {"budget.max_tokens": 9, "tfgrpo.min_spread": 0.1, "budget.max_calls": 5000, "tfgrpo.epochs": 2}
    assert (asked.pipeline, asked.settings) == ("general", settings)


def test_unknown_names_and_values_that_do_not_fit_are_refused():
    with pytest.raises(ValidationError):
        RunRequest.model_validate({"epoch": 3})
    with pytest.raises(SettingsError) as refused:
        RunRequest.model_validate({"world": "flat", "epochs": "many"}).resolved({})
    assert {problem.source for problem in refused.value.problems} == {"--world", "--epochs"}


def test_the_environment_wins_over_our_defaults():
    environment = {"PREFECT_LOGGING_LEVEL": "DEBUG"}
    quiet_prefect(environment)
    assert environment == {**PREFECT_DEFAULTS, "PREFECT_LOGGING_LEVEL": "DEBUG"}
