"""Where does each setting come from? Command line over environment over pipeline file over defaults, with provenance.

A stage's ``env`` stands between the environment and the file's own keys. Every value of every layer is checked, also
one that a higher layer overrides, and all problems are reported at once. It refuses nothing that only goes wrong in
combination: that is ``tfgrpo.pipelines.settings.guardrails``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.problems import Finding, pydantic_findings, raise_together, shown, unknown
from tfgrpo.pipelines.settings.fields import (
    LeafOption,
    leaf_options,
    leaves_by_env,
    leaves_by_key,
    parse_bool,
    parse_text,
    section_of,
)
from tfgrpo.pipelines.settings.guardrails import log_refusals
from tfgrpo.pipelines.settings.pipeline_file import is_shipped, label_of, load_pipeline
from tfgrpo.pipelines.settings.tree import Settings, env_text
from tfgrpo.stores.errors import ConfigError, PipelineError, Problem, SettingsError

__all__ = ["LeafOption", "Resolved", "describe", "leaf_options", "resolve_settings"]

_OURS = ("TFGRPO_", "FEATURE_TFGRPO_")
_NO_SETTINGS = ("TFGRPO_HOME",)
"""Variables of ours that others read: the checkout a deployment runs in (``prefect.yaml``)."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and the source of every leaf by dotted key."""

    settings: Settings
    sources: Mapping[str, str]
    """``default``, ``pipeline file P`` (``: stages.learn.env.V``), ``environment V`` or ``command line --x``."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One value of one layer."""

    value: object
    source: str
    """For people who ask where a good value came from."""
    where: str
    """For people who have to correct a bad one."""
    raw: object
    """As it was written."""


_Layer = dict[str, _Given]


def resolve_settings(
    *, cli: Mapping[str, str | bool], env: Mapping[str, str], pipeline_path: Path | None = None
) -> Resolved:
    """Settings out of four layers. ``cli`` maps dotted keys to raw text.

    Raises ``PipelineError`` when the pipeline file cannot be read or names something unknown, else ``SettingsError``;
    either carries every problem of all layers. A refused group size is logged too.
    """
    gathering = _Gathering()
    in_file = gathering.file(pipeline_path) if pipeline_path is not None else {}
    in_env = gathering.environment(env)
    on_cli = gathering.command_line(cli)
    below = [gathering.checked(layer) for layer in (in_file, in_env, on_cli)]
    staged = gathering.checked(gathering.stages({**below[0], **below[2]}.get("stages")))
    merged = {**below[0], **staged, **below[1], **below[2]}
    gathering.unknown_variables(env, merged)
    gathering.raise_found()
    if pipeline_path is not None and is_shipped(pipeline_path):
        _leave_grading_to_a_mix(merged, label_of(pipeline_path))
    settings = Settings.model_validate(_nested(merged))
    sources = {leaf.key: merged[leaf.key].source if leaf.key in merged else "default" for leaf in leaf_options()}
    return Resolved(settings, sources)


def _leave_grading_to_a_mix(merged: _Layer, shipped: str) -> None:
    """Rewarders of a pipeline that ships were not chosen by whoever named a mix, which brings graders of its own."""
    mix, rewarders = merged.get("dataset.mix"), merged.get("rewarders")
    if mix is not None and mix.value is not None and rewarders is not None and rewarders.source == shipped:
        del merged["rewarders"]


def describe(resolved: Resolved) -> list[tuple[str, str, str]]:
    """Every setting as (key, value as text, source), in the order of the classes. Settings hold no secret."""
    values = [(leaf.key, _value_at(resolved.settings, leaf.key)) for leaf in leaf_options()]
    return [(key, _as_text(value), resolved.sources[key]) for key, value in values]


class _Gathering:
    """Collects values and problems layer by layer."""

    def __init__(self) -> None:
        self._file_errors: list[ConfigError] = []
        self._unknown: list[Problem] = []
        self._bad: list[Finding] = []

    def file(self, path: Path) -> _Layer:
        """Leaves of the pipeline file; its file name names the pipeline when the file does not."""
        try:
            document = load_pipeline(path).document
        except PipelineError as error:
            self._file_errors.append(error)
            return {}
        label = label_of(path)
        layer = {"pipeline": _Given(path.stem, label, f"{label}: pipeline", path.stem)}
        for key, value in self._leaves(document, "", label):
            layer[key] = _Given(value, label, f"{label}: {key}", value)
        return layer

    def environment(self, env: Mapping[str, str]) -> _Layer:
        """Leaves that a variable sets. A variable of other programs, such as OPENAI_BASE_URL, is unset when empty."""
        layer: _Layer = {}
        for name, leaf in leaves_by_env().items():
            if name in env and (env[name].strip() or name.startswith(_OURS)):
                self._put(layer, leaf, env[name], f"environment {name}", name)
        return layer

    def command_line(self, cli: Mapping[str, str | bool]) -> _Layer:
        """Leaves given by dotted key."""
        layer: _Layer = {}
        for key, raw in cli.items():
            leaf = leaves_by_key().get(key)
            if leaf is None:
                self._unknown.append(unknown(f"--set {key}", "setting", key, leaves_by_key()))
            else:
                flag = leaf.flag or f"--set {key}"
                self._put(layer, leaf, raw, f"command line {flag}", flag)
        return layer

    def stages(self, stages: _Given | None) -> _Layer:
        """Leaves that the environment of the ``learn`` stage sets."""
        layer: _Layer = {}
        for where, name, text, stage in _stage_variables(stages):
            known = [variable for variable in leaves_by_env() if variable.startswith(_OURS)] if stage == "learn" else []
            if name in known:
                self._put(layer, leaves_by_env()[name], text, where, where)
            elif known:
                self._file_errors.append(PipelineError([unknown(where, "variable", name, known)]))
            else:
                accepted = "no variables: only the stage learn reads its environment"
                self._file_errors.append(PipelineError.one(where, "a variable", accepted))
        return layer

    def unknown_variables(self, env: Mapping[str, str], merged: _Layer) -> None:
        """Refuse variables that look like ours and are not: a misspelt one would change nothing without a word."""
        allowed = {
            *leaves_by_env(),
            *_NO_SETTINGS,
            str(merged["model.api_key_env"].value) if "model.api_key_env" in merged else "",
        }
        ours = [name for name in leaves_by_env() if name.startswith(_OURS)]
        for name in sorted(env):
            if name.startswith(_OURS) and name not in allowed:
                self._unknown.append(unknown(name, "variable", name, ours))

    def checked(self, layer: _Layer) -> _Layer:
        """The good values of a layer; the bad ones become findings."""
        try:
            Settings.model_validate(_nested(layer))
        except ValidationError as error:
            bad = set()
            for key, rest, given, accepted in pydantic_findings(error, Settings):
                at_fault = layer[key]
                where = f"{at_fault.where}.{rest}" if rest else at_fault.where
                written = given if rest else shown(at_fault.raw, key)
                self._bad.append(Finding(key, Problem(where, written, accepted)))
                bad.add(key)
            return {key: given for key, given in layer.items() if key not in bad}
        return layer

    def raise_found(self) -> None:
        """Raise everything found, if anything was."""
        log_refusals(found.problem for found in self._bad if found.key == "tfgrpo.group_size")
        errors = list(self._file_errors)
        if self._unknown:
            errors.append(SettingsError(self._unknown))
        if self._bad:
            errors.append(SettingsError([found.problem for found in self._bad]))
        raise_together(errors)

    def _put(self, layer: _Layer, leaf: LeafOption, raw: str | bool, source: str, where: str) -> None:
        try:
            value = parse_text(leaf, raw) if isinstance(raw, str) else raw
        except (ValueError, RecursionError):
            self._bad.append(Finding(leaf.key, _unparsed(leaf, raw, where)))
        else:
            layer[leaf.key] = _Given(_frozen(value), source, where, raw)

    def _leaves(self, document: Mapping[str, Any], prefix: str, label: str) -> Iterator[tuple[str, object]]:
        section = section_of(prefix.rstrip("."))
        known = section.model_fields if section is not None else {}
        for name, value in document.items():
            key = f"{prefix}{name}"
            if name not in known:
                self._file_errors.append(PipelineError([unknown(f"{label}: {key}", "key", name, known)]))
            elif section_of(key) is None:
                yield key, _file_value(leaves_by_key()[key], value)
            elif isinstance(value, dict):
                yield from self._leaves(value, f"{key}.", label)
            elif value is not None:  # a section whose every key is commented out
                self._bad.append(Finding(key, Problem(f"{label}: {key}", shown(value), "a mapping")))


def _stage_variables(stages: _Given | None) -> Iterator[tuple[str, str, str, str]]:
    """(place, variable, text, stage name) out of stages that have been checked already."""
    if stages is None or not isinstance(stages.value, tuple):
        return
    for stage in stages.value:
        for name, text in stage.get("env", {}).items():
            yield f"{stages.source}: stages.{stage['name']}.env.{name}", name, str(env_text(text)), stage["name"]


def _file_value(leaf: LeafOption, value: object) -> object:
    """Truth values may be any of the eight words in a file too; nothing else is converted."""
    if leaf.type is bool and isinstance(value, str | int):
        try:
            return parse_bool(str(value))
        except ValueError:
            return value
    return _frozen(value)


def _frozen(value: object) -> object:
    """Lists become tuples: the strict settings accept nothing else."""
    if isinstance(value, list):
        return tuple(_frozen(part) for part in value)
    return {name: _frozen(part) for name, part in value.items()} if isinstance(value, dict) else value


def _nested(layer: _Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, given in layer.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = given.value
    return tree


def _unparsed(leaf: LeafOption, raw: str | bool, where: str) -> Problem:
    if leaf.type in {tuple, dict}:
        return Problem(where, f"{len(str(raw))} characters that are no JSON", f"{leaf.accepted}, as JSON")
    return Problem(where, shown(raw, leaf.key), leaf.accepted)


def _value_at(settings: Settings, key: str) -> object:
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(to_jsonable_python(value), ensure_ascii=False)
