"""Resolve settings from command line, environment, pipeline file and defaults, and record the source of each.

The command line overrides the environment, which overrides a stage's ``env``, which overrides the file's other keys.
Every value of every layer is checked, overridden ones included, and all problems are reported at once. Combinations
are checked in ``tfgrpo.pipelines.settings.guardrails``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.problems import shown_value, unknown
from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.fields import (
    TRUTH_VALUES,
    SettingField,
    fields_by_env,
    fields_by_key,
    invalid_values,
    read_value,
    shown_setting,
)
from tfgrpo.pipelines.settings.guardrails import log_refusals
from tfgrpo.pipelines.settings.pipeline_file import is_shipped, label_of, load_pipeline
from tfgrpo.pipelines.settings.tree import Settings, env_text
from tfgrpo.stores.errors import PipelineError, Problem, SettingsError

_OURS = ("TFGRPO_", "FEATURE_TFGRPO_")
_NO_SETTINGS = ("TFGRPO_HOME",)
"""Variables with our prefix that others read: the checkout of a deployment (``prefect.yaml``)."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and the source of every field by dotted key."""

    settings: Settings
    sources: Mapping[str, str]
    """``default``, ``pipeline file P`` (``: stages.learn.env.V``), ``environment V`` or ``command line --x``."""


@dataclass(frozen=True, slots=True)
class _LayerValue:
    """One value of one layer."""

    value: Any
    source: str
    """Source of a valid value."""
    where: str
    """Source of an invalid value, in its problem."""
    raw: object
    """As written."""


_Layer = dict[str, _LayerValue]


def resolve_settings(
    *, cli: Mapping[str, object], env: Mapping[str, str], pipeline_path: Path | None = None
) -> Resolved:
    """Return the settings of four layers. ``cli`` maps dotted keys to raw text, or to values.

    Raise ``PipelineError`` if the pipeline file is unreadable or has unknown names, else ``SettingsError``; both carry
    every problem of all layers. A refused group size is logged too.
    """
    layers = _LayerReader()
    in_file = layers.checked(layers.file(pipeline_path) if pipeline_path is not None else {})
    in_env = layers.checked(layers.environment(env))
    on_cli = layers.checked(layers.command_line(cli))
    in_stages = layers.checked(layers.stages({**in_file, **on_cli}.get("stages")))
    merged = {**in_file, **in_stages, **in_env, **on_cli}
    layers.refuse_unknown_variables(env, merged)
    layers.raise_problems()
    if pipeline_path is not None and is_shipped(pipeline_path):
        mix, rewarders = merged.get("dataset.mix"), merged.get("rewarders")
        if mix and mix.value is not None and rewarders and rewarders.source == label_of(pipeline_path):
            del merged["rewarders"]  # the mix names graders, and the shipped pipeline only what is usual
    settings = Settings.model_validate(_nested(merged))
    sources = {
        field.key: merged[field.key].source if field.key in merged else "default" for field in fields_by_key().values()
    }
    return Resolved(settings, sources)


def describe(resolved: Resolved) -> list[tuple[str, str, str]]:
    """Return every setting as (key, value as text, source), in the order of the classes. None of them is secret.

    What a role does not set is omitted.
    """
    rows = []
    for field in fields_by_key().values():
        value = attrgetter(field.key)(resolved.settings)
        if field.of_role and resolved.sources[field.key] == "default":
            continue
        text = value if isinstance(value, str) else json.dumps(to_jsonable_python(value), ensure_ascii=False)
        rows.append((field.key, text, resolved.sources[field.key]))
    return rows


class _LayerReader:
    """Reads one layer after another and collects their problems."""

    def __init__(self) -> None:
        self._in_file: list[Problem] = []
        self._unknown: list[Problem] = []
        self._invalid: list[Problem] = []

    def file(self, path: Path) -> _Layer:
        """Return the fields of the pipeline file; without a name in it the pipeline has the file's name."""
        try:
            document = load_pipeline(path)
        except PipelineError as error:
            self._in_file += error.problems
            return {}
        label = label_of(path)
        values = {"pipeline": path.stem, **dict(self._document_fields(document, "", label))}
        return {key: _LayerValue(value, label, f"{label}: {key}", value) for key, value in values.items()}

    def environment(self, env: Mapping[str, str]) -> _Layer:
        """Return the fields set by variables. Empty variables of other programs (OPENAI_BASE_URL) are ignored."""
        layer: _Layer = {}
        for name, field in fields_by_env().items():
            if name in env and (env[name].strip() or name.startswith(_OURS)):
                self._put(layer, field, env[name], f"environment {name}", name)
        return layer

    def command_line(self, cli: Mapping[str, object]) -> _Layer:
        """Return the fields set by dotted key."""
        layer: _Layer = {}
        for key, raw in cli.items():
            field = fields_by_key().get(key)
            if field is None:
                self._unknown.append(unknown(f"--set {key}", "setting", key, fields_by_key()))
            else:
                flag = field.flag or f"--set {key}"
                self._put(layer, field, raw, f"command line {flag}", flag)
        return layer

    def stages(self, stages: _LayerValue | None) -> _Layer:
        """Return the fields set by the environment of the ``learn`` stage, of valid stages."""
        layer: _Layer = {}
        if stages is None:
            return layer
        for stage in stages.value:
            known = [name for name in fields_by_env() if name.startswith(_OURS)] if stage["name"] == "learn" else []
            for name, value in stage.get("env", {}).items():
                where = f"{stages.source}: stages.{stage['name']}.env.{name}"
                if name in known:
                    self._put(layer, fields_by_env()[name], str(env_text(value)), where, where)
                elif known:
                    self._in_file.append(unknown(where, "variable", name, known))
                else:
                    accepted = "no variables: only the stage learn reads its environment"
                    self._in_file.append(Problem(where, "a variable", accepted))
        return layer

    def refuse_unknown_variables(self, env: Mapping[str, str], merged: _Layer) -> None:
        """Refuse unknown variables with our prefix: a misspelt one would silently change no setting."""
        key_envs = {str(each.value).removeprefix(ENV_VALUE) for key, each in merged.items() if key.endswith("api_key")}
        ours = [name for name in fields_by_env() if name.startswith(_OURS)]
        for name in sorted(env):
            if name.startswith(_OURS) and name not in {*ours, *_NO_SETTINGS, *key_envs}:
                self._unknown.append(unknown(name, "variable", name, ours))

    def checked(self, layer: _Layer) -> _Layer:
        """Return the valid values of a layer, and record the problems of the others."""
        try:
            Settings.model_validate(_nested(layer))
        except ValidationError as error:
            invalid_keys = set()
            for invalid in invalid_values(error):
                written = layer[invalid.key]
                where = f"{written.where}.{invalid.path}" if invalid.path else written.where
                given = invalid.given if invalid.path else shown_setting(written.raw, invalid.key)
                self._refuse(invalid.key, Problem(where, given, invalid.accepted))
                invalid_keys.add(invalid.key)
            return {key: value for key, value in layer.items() if key not in invalid_keys}
        return layer

    def raise_problems(self) -> None:
        """Raise all problems, if there are any."""
        if problems := tuple(dict.fromkeys([*self._in_file, *self._unknown, *self._invalid])):
            raise (PipelineError if self._in_file else SettingsError)(problems)

    def _put(self, layer: _Layer, field: SettingField, raw: object, source: str, where: str) -> None:
        try:
            value = read_value(field, raw)
        except (ValueError, RecursionError):
            given, accepted = shown_setting(raw, field.key), field.accepted
            if field.type in {tuple, dict}:
                given, accepted = f"{len(str(raw))} characters that are no JSON", f"{field.accepted}, as JSON"
            self._refuse(field.key, Problem(where, given, accepted))
        else:
            layer[field.key] = _LayerValue(value, source, where, raw)

    def _refuse(self, key: str, problem: Problem) -> None:
        if key == "tfgrpo.group_size":
            log_refusals([problem])
        self._invalid.append(problem)

    def _document_fields(self, document: Mapping[str, Any], prefix: str, label: str) -> Iterator[tuple[str, object]]:
        known = {key.removeprefix(prefix).split(".")[0] for key in fields_by_key() if key.startswith(prefix)}
        for name, value in document.items():
            key = f"{prefix}{name}"
            if name not in known and key not in fields_by_key():
                self._in_file.append(unknown(f"{label}: {key}", "key", name, known))
            elif key in fields_by_key():
                is_bool = fields_by_key()[key].type is bool  # `on` and `yes` are words in YAML 1.2
                yield key, TRUTH_VALUES.get(str(value).strip().lower(), value) if is_bool else value
            elif isinstance(value, dict):
                yield from self._document_fields(value, f"{key}.", label)
            elif value is not None:  # None is a section whose every key is commented out
                self._refuse(key, Problem(f"{label}: {key}", shown_value(value), "a mapping"))


def _nested(layer: _Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, written in layer.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = written.value
    return tree
