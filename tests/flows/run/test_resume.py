"""A resumed run has the settings it began with; what may differ is laid over, what may not is refused."""

import json

import pytest

from tests.support.runs import running as kit
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import earlier_run, prepare
from tfgrpo.stores.errors import EndpointError, SettingsError

pytestmark = pytest.mark.usefixtures("at_home")


def resumed(run, env=None, **asked):
    return earlier_run(RunRequest(out=str(run.out), resume="small", **asked), env or {})[2]


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
    _, _, resolved = earlier_run(RunRequest(resume="small"), {"TFGRPO_OUT": str(own_run.out)})
    assert resolved.settings.out == str(own_run.out)


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


def test_no_other_setting_may_be_given_anew(small_run):
    anew = {
        "model.reflection.name": "other",
        "model.max_tokens": 99,
        "model.structured": "none",
        "model.send_temperature": False,
        "model.prices": '{"simulated": {"input": 0, "output": 0}}',
        "actor.max_turns": 2,
        "gate.group_size": 3,
        "dataset.held_out": 0.5,
        "pack": "powl",
    }
    with pytest.raises(SettingsError) as caught:
        resumed(small_run, settings=anew)
    assert len(caught.value.problems) == len(anew)
    assert {each.accepted.partition(", ")[2] for each in caught.value.problems} == {"as the run began with"}


def test_a_resumed_run_keeps_the_forecast_of_before_its_first_call(own_run):
    before = json.loads(own_run.paths.manifest.read_text())["forecast"]
    assert kit.run(own_run.out, resume="small").exit_code == 0
    assert json.loads(own_run.paths.manifest.read_text())["forecast"] == before


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("returns_a_number", ["takes no `system` either: no lesson can reach it", "no cap holds for them"]),
        ("drafts_and_corrects", []),
        ("takes_everything", []),
    ],
)
def test_unknown_arguments_of_an_agent_are_refused_before_any_spending(tmp_path, agent, told):
    prepared = prepare(RunRequest(out=str(tmp_path), actor=f"tests.support.agents.agents:{agent}"), {})
    assert len(prepared.warnings) == len(told)
    assert all(part in warning for part, warning in zip(told, prepared.warnings, strict=True))


def test_of_calls_that_may_not_be_counted_a_cap_is_announced_on_condition(tmp_path):
    asked = {"max_calls": 4, "max_tokens": 2_000, "max_usd": 0.001, "actor": "tests.support.agents.agents:returns_a_number"}
    warnings = prepare(RunRequest(out=str(tmp_path), **asked), {}).warnings
    assert any("no cap holds" in warning for warning in warnings)
    condition = ", if each attempt makes a call that is counted: it would stop early"
    assert sum(condition in warning for warning in warnings) == 3
    chat = prepare(RunRequest(out=str(tmp_path), **{**asked, "actor": "chat"}), {}).warnings
    assert sum("stop early" in warning and condition not in warning for warning in chat) == 3


@pytest.mark.parametrize("domain", ["general", "law"])
def test_the_general_pack_is_for_items_of_every_domain(tmp_path, domain):
    items = tmp_path / "items.jsonl"
    rows = ({"id": str(n), "prompt": f"{n}?", "answer": str(n), "domain": domain} for n in range(50))
    items.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    request = RunRequest(out=str(tmp_path), dataset=str(items), dry_run=True)
    general = prepare(RunRequest(pack="general").laid_over(request), {}).warnings
    assert not any("domain" in warning for warning in general)
    assert any("for the domain 'arithmetic'" in warning for warning in prepare(request, {}).warnings)


def test_a_name_that_is_taken_is_refused_with_the_way_to_go_on(small_run):
    with pytest.raises(SettingsError, match="--resume small"):
        prepare(RunRequest(out=str(small_run.out), run_id="small"), {})


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        ({"resume": "small", "run_id": "x"}, "--run-id"),
        ({"replay": "small", "run_id": "x"}, "--run-id"),
        ({"resume": "small", "replay": "small"}, "--replay"),
    ],
)
def test_a_run_that_is_there_is_given_no_second_name(small_run, asked, source):
    with pytest.raises(SettingsError, match=r"got '(x|small)' beside --re.*a run that is there has its name") as caught:
        prepare(RunRequest(out=str(small_run.out), **asked), {})
    assert caught.value.problems[0].source == source


@pytest.mark.parametrize("preflight", [True, False])
@pytest.mark.parametrize("pipeline", ["tfgrpo-learning", "general"])
def test_a_real_model_is_not_paid_for_items_that_were_not_asked_for(at_home, pipeline, preflight):
    request = RunRequest(pipeline=pipeline, model="m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(SettingsError) as caught:
        prepare(request, {}, preflight=preflight)
    assert str(caught.value) == (
        "--dataset: got no items for 'm'; accepted: a dataset, or --world arithmetic to pay for the items of a simulated world"
    )
    assert list(at_home.iterdir()) == []


@pytest.mark.parametrize(
    "asked", [{"world": "arithmetic"}, {"settings": {"simulated.world": "unlearnable"}}, {"model": "simulated"}]
)
def test_a_simulated_world_is_paid_for_when_it_is_asked_for_by_name(at_home, asked):
    request = RunRequest.model_validate({"model": "m", "base_url": "http://127.0.0.1:9/v1", **asked})
    assert prepare(request, {}, preflight=False).plan.models.base_url is not None


@pytest.mark.parametrize("how", ["resume", "replay"])
def test_a_run_started_on_the_items_of_a_world_resumes_with_them(own_run, how):
    manifest = json.loads(own_run.paths.manifest.read_text())
    manifest["settings"]["model"].update(name="m", base_url="http://127.0.0.1:9/v1")
    manifest["sources"]["simulated.world"] = "default"
    own_run.paths.manifest.write_text(json.dumps(manifest))
    request = RunRequest.model_validate({"out": str(own_run.out), how: "small"})
    assert prepare(request, {}, preflight=False).plan.models.name == "m"


def test_the_endpoint_is_checked_unless_preflight_is_off():
    request = RunRequest(model="m", base_url="http://127.0.0.1:9/v1", world="arithmetic")
    with pytest.raises(EndpointError, match="no connection"):
        prepare(request, {})
    assert not prepare(request, {}, preflight=False).plan.simulated
