"""Settings come from four layers, with a source for every leaf and every problem at once."""

import json
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pipelines.pipeline_files import refusal, write_file
from tfgrpo.pipelines.settings.layers import SettingField, describe, fields_by_key, resolve_settings, setting_fields
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline, shipped_pipelines
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import SettingsError

LEAVES = setting_fields()
WITH_FLAG = [leaf for leaf in LEAVES if leaf.flag]
WITH_ENV = [leaf for leaf in LEAVES if leaf.env]
ROLE_PREFIXES = ("", "actor.", "reflection.", "judge.")
SPECIAL = {
    "task_id": "another",
    **{f"model.{role}base_url": "https://models.example/v1" for role in ROLE_PREFIXES},
    "selection.base_url": "https://models.example/v1",
    "selection.temperatures": (0.2, 1),
    **{f"model.{role}api_key": "secret:vault" for role in ROLE_PREFIXES},
    "actor.tools": ("module:function",),
    "actor.gateway.models": {"gpt-*": "m"},
    "actor.url": "http://127.0.0.1:8080/attempt",
    "actor.env": ("HOME", "MODE=fast"),
    "actor.headers": {"Authorization": "env:AGENT_AUTH"},
    "rewarders": ({"name": "gt", "weight": 0.5},),
    **{f"model.{role}headers": {"x-team": "env:TEAM"} for role in ROLE_PREFIXES},
    **{f"model.{role}extra_body": {"top_p": 0.9} for role in ROLE_PREFIXES},
    "model.prices": {"gpt-4.1": {"input": 2, "output": 8.0}},
    "stages": ({"name": "learn"},),
    "tfgrpo.experience_max_words": 16,
    "simulated.latency_s": 2.5,
    "simulated.world": "unlearnable",
    "notify.url": "env:NIGHT_HOOK",
    "notify.on": ("finished",),
}


def value_at(given: Settings, key: str) -> Any:
    return attrgetter(key)(given)


def other_value(leaf: SettingField) -> Any:
    """A valid value that is not the default."""
    if leaf.key in SPECIAL:
        return SPECIAL[leaf.key]
    if leaf.choices:
        return next(choice for choice in leaf.choices if choice != leaf.default)
    if leaf.type is bool:
        return not leaf.default
    if leaf.type is int:
        return (leaf.default if isinstance(leaf.default, int) else 3) + 1
    if leaf.type is float:
        return 0.125
    return "another"


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def same(given: Settings, leaf: SettingField, value: Any) -> bool:
    expected = Settings.model_validate(nested(leaf.key, value))
    return bool(value_at(given, leaf.key) == value_at(expected, leaf.key))


def test_defaults_are_those_of_the_specification():
    learning = resolve_settings(cli={}, env={}).settings.tfgrpo
    assert (learning.group_size, learning.epochs, learning.sample_size) == (2, 3, 100)
    assert (learning.temperature.train, learning.temperature.eval, learning.experience_max_words) == (0.7, 0.3, 32)
    assert learning.enabled is False


def test_every_field_can_be_set_on_the_command_line():
    for leaf in LEAVES:
        value = other_value(leaf)
        resolved = resolve_settings(cli={leaf.key: as_text(plain(value))}, env={})
        assert same(resolved.settings, leaf, value)
        assert value_at(resolved.settings, leaf.key) != leaf.default
        assert resolved.sources[leaf.key] == f"command line {leaf.flag or f'--set {leaf.key}'}"
        assert {source for key, source in resolved.sources.items() if key != leaf.key} == {"default"}


def test_every_variable_sets_its_field():
    for names in ([leaf.flag for leaf in WITH_FLAG], [leaf.env for leaf in WITH_ENV]):
        assert len(names) == len(set(names))
    for leaf in WITH_ENV:
        assert leaf.env is not None
        resolved = resolve_settings(cli={}, env={leaf.env: f" {as_text(other_value(leaf))} ", "HOME": "/root"})
        assert same(resolved.settings, leaf, other_value(leaf))
        assert resolved.sources[leaf.key] == f"environment {leaf.env}"


def test_every_field_can_be_set_in_a_pipeline_file(tmp_path):
    for leaf in LEAVES:
        path = write_file(tmp_path, nested(leaf.key, plain(other_value(leaf))))
        resolved = resolve_settings(cli={}, env={}, pipeline_path=path)
        assert same(resolved.settings, leaf, other_value(leaf))
        assert resolved.sources[leaf.key] == f"pipeline file {path}"


ROW_47_AND_53 = {
    "GROUP_SIZE": ("a whole number from 2 to 1,000", "1", "0", "-1", "abc", "2.5", "NaN", "", "2 3", "0x4", "1001"),
    "EPOCHS": ("a whole number from 2 to 1,000", "1", "0", "-1", "abc", "2.9", "inf", "3.0", "9" * 24),
    "SAMPLE_SIZE": ("a whole number from 1 to 1,000,000", "0", "-5", "abc", "1e2", "NaN", "1000001"),
    "BATCH_SIZE": ("a whole number from 1 to 1,000,000", "0", "-5", "1.0", "9" * 24),
    "TRAIN_TEMP": ("a number from 0 to 2", "-0.1", "2.1", "NaN", "inf", "-inf", "abc", "", "0,7"),
    "EVAL_TEMP": ("a number from 0 to 2", "-1", "nan", "Infinity", "warm"),
    "SEED": ("a whole number of at least 0", "-1", "1.5", "abc"),
    "CONCURRENCY": ("a whole number from 1 to 10,000", "0", "-1", "many", "10001"),
    "EXPERIENCE_MAX_WORDS": ("a whole number from 4 to 32", "33", "3", "x"),
    "MAX_USD": ("a number above 0, or none", "0", "-1", "nan", "five"),
    "MAX_CALLS": ("a whole number above 0, or none", "0", "1.5"),
    "TASK_RUNNER": ("threads, dask or ray", "slurm"),
    "MODEL": ("text that is not empty", " "),
}
SWITCH = ("true, false, 1, 0, on, off, yes or no", "maybe", "2", "", "-1", "y", "enabled", "truee")
BAD = {"FEATURE_TFGRPO_GROUP": SWITCH, **{f"TFGRPO_{name}": row for name, row in ROW_47_AND_53.items()}}


@pytest.mark.parametrize(
    ("name", "text", "accepted"), [(name, text, accepted) for name, (accepted, *texts) in BAD.items() for text in texts]
)
def test_every_bad_value_is_refused_by_name_from_environment_and_command_line(name, text, accepted):
    error = refusal(env={name: text})
    assert isinstance(error, SettingsError)
    assert str(error) == f"{name}: got {text!r}; accepted: {accepted}"
    leaf = next(leaf for leaf in WITH_ENV if leaf.env == name)
    flag = leaf.flag or f"--set {leaf.key}"
    assert str(refusal(cli={leaf.key: text})) == f"{flag}: got {text!r}; accepted: {accepted}"


@pytest.mark.parametrize(
    ("key", "text", "given", "accepted"),
    [
        ("tfgrpo.group_size", "1", "1", "a whole number from 2 to 1,000"),
        ("tfgrpo.group_size", "'3'", "'3'", "a whole number from 2 to 1,000"),
        ("tfgrpo.temperature.train", ".nan", "nan", "a number from 0 to 2"),
        ("tfgrpo.enabled", "perhaps", "'perhaps'", "true, false, 1, 0, on, off, yes or no"),
        ("tfgrpo.sample_size", "[1, 2]", "a list of 2", "a whole number from 1 to 1,000,000"),
        ("tfgrpo.min_spread", "{a: 1}", "a mapping of 1", "a number of at least 0"),
        ("tfgrpo.epochs", "null", "None", "a whole number from 2 to 1,000"),
        ("model.prices", "3", "3", "a mapping"),
        ("rewarders", "gt", "'gt'", "a list"),
        ("dataset.held_out", "1", "1", "a number above 0 and below 1"),
    ],
)
def test_every_bad_value_of_a_pipeline_file_is_refused_by_path_and_key(tmp_path, key, text, given, accepted):
    *sections, name = key.split(".")
    lines = [f"{'  ' * depth}{section}:" for depth, section in enumerate(sections)]
    path = write_file(tmp_path, "\n".join([*lines, f"{'  ' * len(sections)}{name}: {text}"]))
    assert str(refusal(pipeline_path=path)) == f"pipeline file {path}: {key}: got {given}; accepted: {accepted}"


EPOCHS = st.none() | st.integers(2, 9)


@settings(max_examples=25)
@given(file=EPOCHS, stage=EPOCHS, env=EPOCHS, cli=EPOCHS)
def test_command_line_over_environment_over_stage_over_file_over_default(tmp_path_factory, file, stage, env, cli):
    document: dict[str, Any] = {"pipeline": "p"}
    if file is not None:
        document["tfgrpo"] = {"epochs": file}
    if stage is not None:
        document["stages"] = [{"name": "learn", "env": {"TFGRPO_EPOCHS": stage}}]
    path = write_file(tmp_path_factory.mktemp("layers"), document)
    resolved = resolve_settings(
        cli={} if cli is None else {"tfgrpo.epochs": str(cli)},
        env={} if env is None else {"TFGRPO_EPOCHS": str(env)},
        pipeline_path=path,
    )
    expected = [
        (cli, "command line --epochs"),
        (env, "environment TFGRPO_EPOCHS"),
        (stage, f"pipeline file {path}: stages.learn.env.TFGRPO_EPOCHS"),
        (file, f"pipeline file {path}"),
        (3, "default"),
    ]
    value, source = next(pair for pair in expected if pair[0] is not None)
    assert (resolved.settings.tfgrpo.epochs, resolved.sources["tfgrpo.epochs"]) == (value, source)


def test_a_stage_that_reads_no_environment_refuses_one(tmp_path):
    path = write_file(
        tmp_path,
        {
            "stages": [
                {"name": "learn", "env": {"TFGRPO_EPOCH": 3, "OPENAI_BASE_URL": "http://h/v1", "FEATURE_TFGRPO_GROUP": True}},
                {"name": "spec-guard", "env": {"TFGRPO_EPOCHS": 3}},
            ]
        },
    )
    assert {problem.source.rpartition(": ")[2] for problem in refusal(pipeline_path=path).problems} == {
        "stages.learn.env.TFGRPO_EPOCH",
        "stages.learn.env.OPENAI_BASE_URL",
        "stages.spec-guard.env.TFGRPO_EPOCHS",
    }


def test_the_stage_that_learns_reads_its_environment_wherever_it_is_given(tmp_path):
    path = write_file(tmp_path, {"stages": [{"name": "learn", "env": {"FEATURE_TFGRPO_GROUP": True, "TFGRPO_SEED": 7}}]})
    given = resolve_settings(cli={}, env={}, pipeline_path=path).settings
    assert (given.tfgrpo.enabled, given.tfgrpo.seed, given.pipeline) == (True, 7, "mine"), "a file without a name has its own"
    stages = '[{"name": "learn", "env": {"TFGRPO_EPOCHS": "5"}}]'
    assert resolve_settings(cli={"stages": stages}, env={}).settings.tfgrpo.epochs == 5


def test_the_description_lists_every_field_with_its_source():
    asked = {"model.judge.timeout_s": "9", "model.actor.name": "none"}
    rows = describe(resolve_settings(cli=asked, env={"TFGRPO_EPOCHS": "4"}))
    assert [key for key, _, _ in rows] == [key for key, leaf in fields_by_key().items() if not leaf.of_role or key in asked]
    assert ("tfgrpo.epochs", "4", "environment TFGRPO_EPOCHS") in rows
    assert ("budget.max_usd", "null", "default") in rows
    assert ("pack", "arithmetic", "default") in rows


@pytest.mark.parametrize("name", shipped_pipelines())
def test_shipped_pipelines_resolve(name):
    resolved = resolve_settings(cli={}, env={}, pipeline_path=find_pipeline(name))
    assert resolved.settings.pipeline == name
    assert resolved.settings.tfgrpo.enabled
    assert [stage.name for stage in resolved.settings.stages] == ["learn", "spec-guard"]


def test_the_shipped_learning_pipeline_carries_the_four_overrides_of_the_specification():
    path = find_pipeline("tfgrpo-learning")
    sources = resolve_settings(cli={}, env={}, pipeline_path=path).sources
    for name, key in {
        "TFGRPO_EPOCHS": "tfgrpo.epochs",
        "TFGRPO_SAMPLE_SIZE": "tfgrpo.sample_size",
        "TFGRPO_TRAIN_TEMP": "tfgrpo.temperature.train",
        "TFGRPO_EVAL_TEMP": "tfgrpo.temperature.eval",
    }.items():
        assert sources[key] == f"pipeline file {path}: stages.learn.env.{name}"


@pytest.mark.parametrize("word", ["true", "TRUE", "1", "on", "Yes", "false", "0", "OFF", "no"])
def test_the_feature_flag_takes_every_word_of_truth_from_environment_and_file(tmp_path, word):
    on = word.lower() in {"true", "1", "on", "yes"}
    for written, env in ((word, {}), (not on, {"FEATURE_TFGRPO_GROUP": word})):
        path = write_file(tmp_path, f"tfgrpo:\n  enabled: {written}\n")
        assert resolve_settings(cli={}, env=env, pipeline_path=path).settings.tfgrpo.enabled is on
