"""A request says the same as the command line, whether by fields or by dotted keys."""

import pytest
from pydantic import ValidationError

from tfgrpo.flows.console.environment import PREFECT_DEFAULTS, quiet_prefect
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.pipelines.settings.layers import fields_by_key
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


def test_a_field_and_its_key_with_two_values_are_refused():
    with pytest.raises(SettingsError, match=r"settings budget\.max_calls: got 9000 beside max_calls 5000"):
        RunRequest(max_calls=5000, settings={"budget.max_calls": 9000})
    assert RunRequest(epochs=2, settings={"tfgrpo.epochs": 2}).settings == {"tfgrpo.epochs": 2}


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
