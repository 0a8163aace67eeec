"""A resumed run has the settings it began with; what may differ is laid over, what may not is refused."""

from __future__ import annotations

import json

import pytest

from tests.support.runs import running as kit
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import earlier_run
from tfgrpo.stores.errors import SettingsError

pytestmark = pytest.mark.usefixtures("at_home")


def resumed(run, env=None, **asked):
    return earlier_run(RunRequest(out=str(run.out), resume="small", **asked), env or {}).resolved


def test_settings_and_their_sources_are_those_of_the_start(small_run):
    resolved = resumed(small_run)
    assert resolved.settings.tfgrpo.sample_size == 24
    assert resolved.sources["tfgrpo.sample_size"] == "command line --sample-size"


@pytest.mark.parametrize(
    ("asked", "env"),
    [({"max_calls": 9000}, {}), ({}, {"TFGRPO_MAX_CALLS": "9000"}), ({"settings": {"budget.max_calls": 9000}}, {})],
)
def test_a_new_budget_is_taken_from_wherever_it_comes(small_run, asked, env):
    resolved = resumed(small_run, env, **asked)
    assert resolved.settings.budget.max_calls == 9000
    assert resolved.sources["budget.max_calls"] != "default"


@pytest.mark.parametrize(
    ("asked", "env", "source"),
    [({"epochs": 4}, {}, "--epochs"), ({}, {"TFGRPO_EPOCHS": "4"}, "TFGRPO_EPOCHS"), ({"seed": 2}, {}, "--seed")],
)
def test_what_would_change_the_results_is_refused_by_the_name_it_came_by(small_run, asked, env, source):
    with pytest.raises(SettingsError) as caught:
        resumed(small_run, env, **asked)
    assert caught.value.problems[0].source == source
    assert "as the run began with" in str(caught.value)


def test_a_simulated_run_stays_simulated(small_run):
    resolved = resumed(small_run, {"OPENAI_BASE_URL": "http://localhost:1/v1"})
    assert resolved.settings.model.base_url is None
    with pytest.raises(SettingsError, match="--base-url"):
        resumed(small_run, base_url="http://localhost:1/v1")


def test_a_run_is_found_under_another_task_and_resumes_there(own_run):
    own_run.task.root.rename(own_run.out / "mine")
    settings = resumed(own_run).settings
    assert (settings.out, settings.task_id) == (str(own_run.out), "mine")


def test_a_run_resumes_in_the_directory_of_its_manifest(own_run):
    assert json.loads(own_run.paths.manifest.read_text())["settings"]["out"] != str(own_run.out)
    found = earlier_run(RunRequest(resume="small"), {"TFGRPO_OUT": str(own_run.out)})
    assert found.resolved.settings.out == str(own_run.out)


@pytest.mark.parametrize("name", ["nobody", "../small", "sm*"])
@pytest.mark.parametrize("how", ["resume", "replay"])
def test_an_unknown_run_is_refused_with_the_names_of_the_existing_ones(small_run, how, name):
    request = RunRequest.model_validate({"out": str(small_run.out), how: name})
    with pytest.raises(SettingsError, match="small") as caught:
        earlier_run(request, {})
    assert caught.value.problems[0].source == f"--{how}"


@pytest.mark.parametrize(
    "text", ["{torn", "[]", '{"schema_version": 1}', '{"schema_version": 1, "settings": {}, "sources": {}}']
)
def test_a_manifest_without_settings_or_beginning_is_refused(own_run, text):
    own_run.paths.manifest.write_text(text)
    with pytest.raises(SettingsError, match="--resume"):
        resumed(own_run)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.reflection.name", "other"),
        ("model.max_tokens", 99),
        ("model.structured", "none"),
        ("model.send_temperature", False),
        ("model.prices", '{"simulated": {"input": 0, "output": 0}}'),
        ("actor.max_turns", 2),
        ("gate.group_size", 3),
        ("dataset.held_out", 0.5),
        ("pack", "powl"),
    ],
)
def test_no_other_setting_may_be_given_anew(small_run, key, value):
    with pytest.raises(SettingsError, match="as the run began with"):
        resumed(small_run, settings={key: value})


def test_a_resumed_run_keeps_the_forecast_of_before_its_first_call(own_run):
    before = json.loads(own_run.paths.manifest.read_text())["forecast"]
    assert kit.run(own_run.out, resume="small").exit_code == 0
    assert json.loads(own_run.paths.manifest.read_text())["forecast"] == before
