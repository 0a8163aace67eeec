"""Combinations that cannot work are refused and logged before anything is scheduled."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.vectors import VECTORS
from tfgrpo.pipelines.settings.guardrails import guard_warnings, validate_tfgrpo_config
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import TEMPERATURE_CYCLE, SelectionSettings, Settings
from tfgrpo.stores.errors import SettingsError


def settings(**sections: Any) -> Settings:
    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: frozen(part) for name, part in value.items()}
        return tuple(frozen(part) for part in value) if isinstance(value, list) else value

    return Settings.model_validate(frozen(sections))


def refusal(given: Settings, **sources: str) -> str:
    with pytest.raises(SettingsError) as caught:
        validate_tfgrpo_config(given, sources=sources)
    return str(caught.value)


def test_a_fan_out_above_capacity_is_refused_with_both_numbers_and_a_remedy():
    told = refusal(
        settings(tfgrpo={"group_size": 8, "concurrency": 4}), **{"tfgrpo.group_size": "environment TFGRPO_GROUP_SIZE"}
    )
    assert told == (
        "tfgrpo.group_size (environment TFGRPO_GROUP_SIZE): got a fan-out of 8 actors per group with a capacity of 4; "
        "accepted: a group that fits: --group-size 4 or less, or --concurrency 8 or more"
    )
    validate_tfgrpo_config(settings(tfgrpo={"group_size": 4, "concurrency": 4}))
    told = refusal(settings(tfgrpo={"group_size": 2, "concurrency": 1}))
    assert told.endswith("accepted: a group that fits: --concurrency 2 or more"), "no group that would be refused"


def test_a_task_id_that_could_leave_its_directory_is_refused():
    for task_id in ("../x", "a/b", "CON", "x\x00", "..", "x" * 200, "ends."):
        assert refusal(settings(task_id=task_id)).startswith("task_id: got ")


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"dataset": {"eval_path": "e.jsonl"}}, "dataset.eval_path: got 'e.jsonl'; accepted: an evaluation dataset together"),
        ({"dataset": {"path": "a.jsonl", "eval_path": "./a.jsonl"}}, "got the dataset that is learned on"),
        ({"stages": []}, "stages: got no stage"),
        (
            {"stages": [{"name": "spec-guard"}, {"name": "learn"}]},
            "got spec-guard, learn; accepted: learn, then spec-guard last",
        ),
        ({"tfgrpo": {"enabled": True, "group_size": 4}, "budget": {"max_calls": 3}}, "at least 4, the calls of one group"),
        ({"budget": {"max_tokens": 1024}}, "budget.max_tokens: got 1024; accepted: more than 1024"),
        ({"budget": {"max_usd": 1e-9}}, "budget.max_usd: got 1e-09; accepted: at least 0.0006144, which one call may cost"),
        ({"model": {"name": "m"}}, "model.name: got 'm' and no endpoint to ask for it; accepted: a model together with --base"),
        (
            {"model": {"base_url": "http://h/v1"}},
            "model.base_url: got an endpoint and no model; accepted: an endpoint together",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused(sections, told):
    assert told in refusal(settings(**sections))


REAL = {"name": "m", "base_url": "https://models.example/v1"}
PRICE = {"input": 1.0, "output": 2.0}


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (REAL, "'m'"),
        ({**REAL, "reflection": {"name": "r"}}, "'m' and 'r'"),
        ({**REAL, "reflection": {"name": "r"}, "prices": {"m": PRICE}}, "'r'"),
        ({**REAL, "prices": {"M": PRICE}}, "'m'"),
    ],
)
def test_a_cap_in_dollars_needs_the_price_of_every_model_in_use(model, missing):
    told = refusal(settings(model=model, budget={"max_usd": 5.0}))
    assert f"a cap of 5 USD with no price for {missing};" in told
    assert "an unknown price cannot be capped" in told
    validate_tfgrpo_config(settings(model=model, budget={"max_calls": 100, "max_tokens": 10_000}))
    validate_tfgrpo_config(settings(model=model, dry_run=True, budget={"max_usd": 5.0}))


@pytest.mark.parametrize(
    ("sections", "env", "warning"),
    [
        ({}, {}, "FEATURE_TFGRPO_GROUP is off"),
        ({"tfgrpo": {"enabled": True, "batch_size": 20, "sample_size": 10}}, {}, "a batch of 20 is more than the 10 items"),
        ({"tfgrpo": {"temperature": {"train": 0.2, "eval": 0.4}}}, {}, "the evaluation temperature 0.4 is above"),
        ({"actor": {"timeout_s": 60.0}}, {}, "a rollout may take 60 s (actor.timeout_s) and one of its calls 120 s (model.tim"),
        ({"model": {**REAL, "send_temperature": False}}, {}, "model.send_temperature is off: the endpoint's own"),
        ({"dry_run": True, "model": REAL}, {}, "dry run: the model and endpoint of the settings are not called"),
        ({"dataset": {"path": "a.jsonl"}}, {}, "the SIMULATED model knows only the items of its own worlds"),
        ({"model": REAL}, {}, "a real model is tried on the items of the simulated world 'arithmetic'"),
        ({"model": REAL}, {}, "OPENAI_API_KEY is not set: the endpoint is asked without a key"),
        ({"model": {**REAL, "api_key": "env:K"}}, {"K": " "}, "K is not set"),
    ],
)
def test_what_is_odd_is_a_warning(sections, env, warning):
    given = settings(**sections)
    validate_tfgrpo_config(given)
    assert any(text.startswith(warning) or warning in text for text in guard_warnings(given, env, {"tfgrpo.batch_size": "x"}))


def test_an_endpoint_with_a_key_or_on_this_machine_has_no_warning():
    local, other = {"base_url": "http://127.0.0.1:8000/v1"}, {"api_key": "secret:vendor-key"}
    for more, env in (({}, {"OPENAI_API_KEY": "sk"}), (local, {}), (other, {})):
        given = settings(model={**REAL, **more}, dataset={"path": "a.jsonl"}, tfgrpo={"enabled": True})
        assert list(guard_warnings(given, env, {})) == []


def test_a_run_is_simulated_only_on_request_or_without_model_and_endpoint():
    served = {"model": {**REAL, "name": "simulated"}}
    given = ({}, {"dry_run": True, "model": REAL}, served, {"model": REAL}, {"model": {"name": "m"}})
    assert [choose_models(settings(**sections)).simulated for sections in given] == [True, True, True, False, False]


def test_a_cap_in_dollars_pays_for_one_call_of_the_dearest_model():
    prices = {"m": {"input": 0.0, "output": 0.1}, "r": {"input": 0.0, "output": 10.0}}
    model = {"name": "m", "reflection": {"name": "r"}, "base_url": "http://h/v1", "max_tokens": 1000, "prices": prices}
    with pytest.raises(SettingsError, match=r"at least 0.01, which one call may cost"):
        validate_tfgrpo_config(Settings.model_validate({"model": model, "budget": {"max_usd": 0.0099}}))
    validate_tfgrpo_config(Settings.model_validate({"model": model, "budget": {"max_usd": 0.01}}))


CASES = [json.loads(line) for line in (VECTORS / "selection_config.jsonl").read_text(encoding="utf-8").splitlines()]


def selecting(config):
    named = {**config, "timeout_s": float(config["timeout"])}
    del named["timeout"]
    return SelectionSettings.model_validate(named)


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["changed"]))
def test_configurations_are_taken_and_refused_as_before(case):
    if case["accepted"]:
        assert selecting(case["config"]).k == case["config"]["k"]
        return
    with pytest.raises(ValidationError):
        selecting(case["config"])


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
