"""What is wrong in a layer is told by its source, all at once, without a secret; what is unset or empty is not."""

import json

import pytest

from tests.support.pipelines.pipeline_files import refusal, write_file
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.stores.errors import PipelineError


def test_all_problems_of_all_layers_are_reported_at_once(tmp_path):
    path = write_file(
        tmp_path, "tfgrpo: {epoch: 3, seed: -1}\nmodle: {name: x}\ngate: 3\nstages: [{name: learn, env: {TFGRPO_EPOCHS: one}}]"
    )
    env = {"TFGRPO_GROUP_SIZE": "1", "TFGRPO_GROUPSIZE": "2", "TFGRPO_EPOCHS": "x"}
    error = refusal(cli={"tfgrpo.epochs": "x", "nonsense": "1", "tfgrpo.seed": "3"}, env=env, pipeline_path=path)
    assert isinstance(error, PipelineError)
    assert {problem.source for problem in error.problems} == {
        f"pipeline file {path}: tfgrpo.epoch",
        f"pipeline file {path}: tfgrpo.seed",  # although a higher layer overrides it
        f"pipeline file {path}: stages.learn.env.TFGRPO_EPOCHS",
        f"pipeline file {path}: modle",
        f"pipeline file {path}: gate",
        "--epochs",
        "--set nonsense",
        "TFGRPO_EPOCHS",
        "TFGRPO_GROUP_SIZE",
        "TFGRPO_GROUPSIZE",
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TFGRPO_EPOCH", "TFGRPO_EPOCHS (did you mean that?)"),
        ("TFGRPO_TRAINTEMP", "TFGRPO_TRAIN_TEMP (did you mean that?)"),
        ("FEATURE_TFGRPO_GROUPS", "FEATURE_TFGRPO_GROUP (did you mean that?)"),
        ("TFGRPO_XYZZY_XYZZY_XYZZY", "one of FEATURE_TFGRPO_GROUP, TFGRPO_ACTOR"),
    ],
)
def test_a_misspelt_variable_is_refused_and_its_value_is_not_repeated(name, meant):
    text = str(refusal(env={name: "sk-secret"}))
    assert text.startswith(f"{name}: got an unknown variable; accepted: {meant}")
    assert "sk-secret" not in text


SECRETS = ["sk-abcdefghijkl", "hunter2"]


@pytest.mark.parametrize(
    "layers",
    [
        {"env": {"OPENAI_BASE_URL": "https://user:hunter2@host/v1"}},
        {"env": {"OPENAI_BASE_URL": "https://host/v1?api_key=sk-abcdefghijkl"}},
        {"env": {"OPENAI_BASE_URL": "sk-abcdefghijkl"}},
        {"cli": {"model.base_url": "ftp://hunter2@host"}},
        {"cli": {"model.base_url": "http://host:hunter2/v1"}},
        {"cli": {"selection.base_url": "https://user:hunter2@host/v1"}},
        {"cli": {"model.api_key": "env:sk-abcdefghijkl"}},
        {"cli": {"rewarders": '[{"name": "judge", "options": {"api_key": "sk-abcdefghijkl"}}]'}},
        {"cli": {"rewarders": '[{"name": "judge", "secret": "sk-abcdefghijkl"}]'}},
        {"cli": {"model.prices": '{"a": "sk-abcdefghijkl'}},
    ],
)
def test_no_message_repeats_a_secret(layers):
    text = str(refusal(**layers))
    assert not any(secret in text for secret in SECRETS)


@pytest.mark.parametrize("source", ["env:", "secret:", ""])
def test_a_key_is_refused_in_place_of_its_name(source):
    for key in ("hf_abcdefghijklmnopqrstuvwxyz012345", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"):
        told = str(refusal(cli={"model.api_key": f"{source}{key}"}))
        assert "not the key itself" in told
        assert key not in told
    if source:
        assert resolve_settings(cli={"model.api_key": f"{source}TEAM_KEY_2"}, env={})


def test_an_address_with_a_harmless_query_is_accepted_and_a_bad_one_is_shown():
    address = "https://host.example/openai?api-version=2026-01-01"
    assert resolve_settings(cli={"model.base_url": address}, env={}).settings.model.base_url == address
    assert "'http://'" in str(refusal(cli={"model.base_url": "http://"}))


def test_an_address_without_a_scheme_may_be_a_key_and_is_not_shown():
    for key in ("model.base_url", "selection.base_url"):
        for given in ("localhost:8000/v1", "sk-abcdefghijkl", "me:hunter2@host.example/v1", "host/v1?key=x"):
            told = str(refusal(cli={key: given}))
            assert given not in told
            assert "accepted: an address like https://host/v1, with http:// or https://" in told


def test_problems_inside_lists_and_mappings_have_their_path(tmp_path):
    path = write_file(
        tmp_path,
        {
            "rewarders": [{"name": "gt", "weight": -1}, {"weigth": 1}],
            "model": {"prices": {"m": {"input": 1}}},
            "actor": {"tools": [3, ""]},
            "stages": [{"name": "deploy"}],
        },
    )
    told = {problem.source.removeprefix(f"pipeline file {path}: "): problem for problem in refusal(pipeline_path=path).problems}
    assert told["rewarders.0.weight"].given == "-1"
    assert told["rewarders.1.weigth"].accepted.startswith("weight (did you mean that?)")
    assert told["rewarders.1.name"].given == "nothing"
    assert told["model.prices.m.output"].accepted == "a number of at least 0"
    assert told["actor.tools.0"].accepted == "text"
    assert told["actor.tools.1"].accepted == "text that is not empty"
    assert told["stages.0.name"].accepted == "learn or spec-guard"


def test_a_bad_option_of_a_rewarder_is_one_problem_and_so_is_text_that_is_no_json():
    error = refusal(cli={"rewarders": '[{"name": "gt", "options": {"match": [1, {"tolerance": NaN}]}}]'})
    accepted = "text, a finite number, true or false, or a list or mapping of those"
    assert [str(each) for each in error.problems] == [f"--set rewarders.0.options.match: got nan; accepted: {accepted}"]
    told = "--set actor.tools: got 3 characters that are no JSON; accepted: a list, as JSON"
    assert str(refusal(cli={"actor.tools": "a:b"})) == told
    assert "as JSON" in str(refusal(cli={"actor.tools": "[" * 100_000}))


def test_no_credential_hides_in_an_address_among_the_options():
    for address in ("https://me:pass@host/grade", "http://host/grade?api_key=abc"):
        error = refusal(cli={"rewarders": json.dumps([{"name": "remote", "options": {"urls": [{"url": address}]}}])})
        assert "accepted: options whose addresses have no user name, password or key" in str(error)
        assert "pass" not in str(error).partition("accepted")[0]
        assert "abc" not in str(error)


def test_variables_that_set_nothing_are_no_problem():
    """Neither the one of a key with our prefix, nor one that deployments read, nor an empty one of other programs."""
    env = {"TFGRPO_VENDOR_KEY": "sk-1", "TFGRPO_HOME": "/srv/tfgrpo", "OPENAI_BASE_URL": ""}
    resolved = resolve_settings(cli={"model.api_key": "env:TFGRPO_VENDOR_KEY"}, env=env)
    assert resolved.settings.model.api_key == "env:TFGRPO_VENDOR_KEY"
    assert {key for key, source in resolved.sources.items() if source != "default"} == {"model.api_key"}
    resolved = resolve_settings(cli={"model.base_url": "none"}, env={"OPENAI_BASE_URL": "http://localhost:1/v1"})
    assert resolved.settings.model.base_url is None, "unset by a higher layer"
