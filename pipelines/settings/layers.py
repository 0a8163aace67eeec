"""Resolve settings from command line, environment, pipeline file and defaults, and record the source of each.

The command line overrides the environment, which overrides a stage's ``env``, which overrides the file's other keys. The list
of setting fields is derived from the JSON schema of the settings; command line, environment, documentation and messages all use
it. Every value of every layer is checked, overridden ones included, and all problems are reported at once; values that may be
secret are never shown. Combinations are checked in ``tfgrpo.pipelines.settings.guardrails``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.guardrails import log_refusals
from tfgrpo.pipelines.settings.pipeline_file import SHIPPED, label_of, load_pipeline
from tfgrpo.pipelines.settings.tree import MODEL_ROLES, Settings, env_text
from tfgrpo.stores.errors import PipelineError, Problem, SettingsError, shown_value, unknown
from tfgrpo.stores.text import did_you_mean

SettingSchema: TypeAlias = Mapping[str, Any]

TRUTH_VALUES = {**dict.fromkeys(("true", "1", "on", "yes"), True), **dict.fromkeys(("false", "0", "off", "no"), False)}
_TYPES: dict[str, tuple[type, str]] = {
    "boolean": (bool, "true, false, 1, 0, on, off, yes or no"),
    "integer": (int, "a whole number"),
    "number": (float, "a number"),
    "string": (str, "text"),
    "array": (tuple, "a list"),
    "object": (dict, "a mapping"),
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
}
_OF_ROLES = tuple(f"model.{role}." for role in MODEL_ROLES)
_HIDDEN = "a value that is not shown"
_NEVER_SHOWN = ("api_key", "headers", "extra_body", "actor.env", "actor.command", "notify.url")
_PLAIN_ADDRESS = re.compile(r"[a-z]+://[\w.-]*(?::\d+)?(?:/[\w./-]*)?")


@dataclass(frozen=True, slots=True)
class SettingField:
    """One settable value: its dotted key, option and environment variable."""

    key: str
    flag: str | None
    """None: set by ``--set KEY=VALUE`` or the pipeline file."""
    env: str | None
    type: type
    """``bool``, ``int``, ``float``, ``str``; ``tuple`` or ``dict`` when its text is JSON."""
    default: object
    help: str
    choices: tuple[str, ...]
    """The accepted words; empty for any text."""
    optional: bool
    """``none`` unsets it."""
    accepted: str

    @property
    def of_role(self) -> bool:
        """Whether it is what a role may have in place of the field of ``model``, which declares it."""
        section, _, role = self.key.rpartition(".")[0].partition(".")
        return section == "model" and role in MODEL_ROLES


@cache
def setting_fields() -> tuple[SettingField, ...]:
    """Return every setting field that is declared, in the order of the classes."""
    return tuple(field for field in fields_by_key().values() if field.flag or not field.of_role)


@cache
def fields_by_key() -> dict[str, SettingField]:
    """Return the setting fields by dotted key, those of ``model`` for each role, too."""
    return {field.key: field for field in _walk(_settings_schema(), "")}


@cache
def fields_by_env() -> dict[str, SettingField]:
    """Return the setting fields by environment variable."""
    return {field.env: field for field in setting_fields() if field.env is not None}


def read_value(field: SettingField, raw: object) -> object:
    """Return the value of a setting that is given as text or as a value, not yet checked.

    Raise ``ValueError`` for text that is no JSON, or no number: a whole one is ``int`` of the whole trimmed text.
    """
    text = str(raw) if field.type is bool and raw is not None else raw
    if not isinstance(text, str):
        return raw
    trimmed = text.strip()
    if field.optional and trimmed.lower() == "none" and "none" not in field.choices:
        return None
    if field.type is bool:
        return TRUTH_VALUES.get(trimmed.lower(), text)
    return json.loads(trimmed) if field.type in {tuple, dict} else field.type(trimmed)


def same_value(key: str | None, one: object, other: object) -> bool:
    """Return whether a setting is given the same value twice, be it as text or as a number."""
    field = fields_by_key().get(key or "")
    if field is not None:
        # What cannot be read is refused elsewhere.
        with suppress(ValueError, RecursionError):
            return read_value(field, one) == read_value(field, other)
    return one == other


def _invalid_values(error: ValidationError) -> Iterator[tuple[str, str, str, str]]:
    """Yield each distinct error: key of the field, path within its value, what is there, and what is accepted."""
    seen = set()
    for detail in error.errors(include_url=False):
        kind, value = detail["type"], detail["input"]
        # Only too short without the entries that are refused already.
        if kind == "too_short" and len(value) >= detail["ctx"]["min_length"]:
            continue
        key, path, schema, siblings = _located(detail["loc"])
        if (key, path) in seen:
            continue
        seen.add((key, path))
        received, accepted = "nothing" if kind == "missing" else shown_setting(value, key), _accepted_phrase(schema)
        if kind == "extra_forbidden":
            received, accepted = "an unknown key", did_you_mean(str(detail["loc"][-1]), siblings)
        elif kind == "value_error":
            accepted = str(detail["ctx"]["error"])
        elif kind == "string_too_short":
            accepted = "text that is not empty"
        yield key, path, received, accepted


def shown_setting(value: object, key: str) -> str:
    """Return the value of a setting field for a message."""
    address = isinstance(value, str) and _PLAIN_ADDRESS.fullmatch(value)
    scalar = not isinstance(value, dict | list | tuple)
    unsafe = key.endswith("base_url") or key == "actor.url"
    if key.endswith(_NEVER_SHOWN) or (scalar and unsafe and not address):
        return _HIDDEN
    return shown_value(value)


@cache
def _settings_schema() -> SettingSchema:
    return Settings.model_json_schema()


def _expanded(schema: SettingSchema) -> SettingSchema:
    for each in schema.get("anyOf", ()):
        if each != {"type": "null"}:
            schema = schema | each
    reference = schema.get("$ref", "").rpartition("/")[2]
    return _settings_schema()["$defs"][reference] if reference else schema


def _accepted_phrase(schema: SettingSchema) -> str:
    """Return the accepted values as a phrase: ``a whole number of at least 2``."""
    phrase = _phrase(_expanded(schema))
    return f"{phrase}, or none" if _is_optional(schema) and not phrase.endswith("none") else phrase


def _is_optional(schema: SettingSchema) -> bool:
    return {"type": "null"} in schema.get("anyOf", ())


def _walk(section: SettingSchema, prefix: str) -> Iterator[SettingField]:
    for name, schema in section["properties"].items():
        below = _expanded(schema)
        if "properties" in below:
            yield from _walk(below, f"{prefix}{name}.")
        else:
            of_model = _expanded(_settings_schema()["properties"]["model"])["properties"]
            inherited = prefix in _OF_ROLES and schema == of_model[name]
            yield SettingField(
                key=f"{prefix}{name}",
                flag=None if inherited else schema.get("flag"),
                env=None if inherited else schema.get("env"),
                type=_TYPES[below["type"]][0],
                # Absent of a mapping, which a factory makes.
                default=schema.get("default", {}),
                help=" ".join(schema.get("description", "").split()),
                choices=tuple(below.get("enum", ())),
                optional=_is_optional(schema),
                accepted=_accepted_phrase(schema),
            )


def _phrase(schema: SettingSchema) -> str:
    if "enum" in schema:
        *words, last = schema["enum"]
        return f"{', '.join(words)} or {last}"
    if schema.get("type") is None:
        return "text, a finite number, true or false, or a list or mapping of those"
    phrase = _TYPES[schema["type"]][1]
    if schema.get("minItems") == 1:
        return f"{phrase} that is not empty"
    if "minimum" in schema and "maximum" in schema:
        return f"{phrase} from {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    bounds = [words.format(_number(schema[bound])) for bound, words in _BOUNDS.items() if bound in schema]
    return f"{phrase} {' and '.join(bounds)}".strip()


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _located(loc: Sequence[int | str]) -> tuple[str, str, SettingSchema, Sequence[str]]:
    """Return field key, path within its value, the schema of what is accepted there, and the names of this level."""
    schema, siblings = _settings_schema(), tuple[str, ...]()
    path: list[str] = []
    for name in loc:
        level = _expanded(schema)
        siblings = tuple(level.get("properties", ()))
        # None where any is accepted.
        below: SettingSchema | None
        if siblings:
            below = level["properties"].get(name)
        elif isinstance(name, int):
            below = level.get("items") or next(iter(level.get("prefixItems", ())), None)
        else:
            below = level.get("additionalProperties")
        # Else pydantic names the members of a union here, which are no keys.
        if below is not None or siblings:
            path.append(str(name))
        if below is None:
            break
        schema = below
    prefixes = (".".join(path[:end]) for end in range(len(path), 0, -1))
    key = next((prefix for prefix in prefixes if prefix in fields_by_key()), "")
    return key, ".".join(path)[len(key) :].lstrip("."), schema, siblings


_OURS = ("TFGRPO_", "FEATURE_TFGRPO_")
# Variables with our prefix that others read: the checkout of a deployment (`prefect.yaml`).
_NO_SETTINGS = ("TFGRPO_HOME",)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and the source of every field by dotted key."""

    settings: Settings
    sources: Mapping[str, str]
    """``default``, ``pipeline file P`` (``: stages.learn.env.V``), ``environment V`` or ``command line --x``."""


@dataclass(frozen=True, slots=True)
class _LayerValue:
    value: Any
    source: str
    # As `source` in a problem.
    where: str
    # As written.
    raw: object


_Layer = dict[str, _LayerValue]


def resolve_settings(*, cli: Mapping[str, object], env: Mapping[str, str], pipeline_path: Path | None = None) -> Resolved:
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
    if pipeline_path is not None and pipeline_path.parent == SHIPPED:
        mix, rewarders = merged.get("dataset.mix"), merged.get("rewarders")
        # The mix names graders, and the shipped pipeline only what is usual.
        if mix and mix.value is not None and rewarders and rewarders.source == label_of(pipeline_path):
            del merged["rewarders"]
    settings = Settings.model_validate(_nested(merged))
    sources = {field.key: merged[field.key].source if field.key in merged else "default" for field in fields_by_key().values()}
    return Resolved(settings, sources)


def describe(resolved: Resolved) -> list[tuple[str, str, str]]:
    """Return every setting as (key, value as text, source), in the order of the classes, but what a role does not set."""
    rows = []
    for field in fields_by_key().values():
        value, source = attrgetter(field.key)(resolved.settings), resolved.sources[field.key]
        if not field.of_role or source != "default":
            text = value if isinstance(value, str) else json.dumps(to_jsonable_python(value), ensure_ascii=False)
            rows.append((field.key, text, source))
    return rows


class _LayerReader:
    def __init__(self) -> None:
        self._in_file: list[Problem] = []
        self._unknown: list[Problem] = []
        self._invalid: list[Problem] = []

    def file(self, path: Path) -> _Layer:
        try:
            document = load_pipeline(path)
        except PipelineError as error:
            self._in_file += error.problems
            return {}
        label = label_of(path)
        # Without a name in it the pipeline has the file's name.
        values = {"pipeline": path.stem, **dict(self._document_fields(document, "", label))}
        return {key: _LayerValue(value, label, f"{label}: {key}", value) for key, value in values.items()}

    def environment(self, env: Mapping[str, str]) -> _Layer:
        layer: _Layer = {}
        for name, field in fields_by_env().items():
            # Empty variables of other programs, such as OPENAI_BASE_URL, are ignored.
            if name in env and (env[name].strip() or name.startswith(_OURS)):
                self._put(layer, field, env[name], f"environment {name}", name)
        return layer

    def command_line(self, cli: Mapping[str, object]) -> _Layer:
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
        layer: _Layer = {}
        if stages is None:
            return layer
        for stage in stages.value:
            variables = [name for name in fields_by_env() if name.startswith(_OURS)] if stage["name"] == "learn" else []
            for name, value in stage.get("env", {}).items():
                where = f"{stages.source}: stages.{stage['name']}.env.{name}"
                if name in variables:
                    self._put(layer, fields_by_env()[name], str(env_text(value)), where, where)
                elif variables:
                    self._in_file.append(unknown(where, "variable", name, variables))
                else:
                    accepted = "no variables: only the stage learn reads its environment"
                    self._in_file.append(Problem(where, "a variable", accepted))
        return layer

    def refuse_unknown_variables(self, env: Mapping[str, str], merged: _Layer) -> None:
        # A misspelt variable with our prefix would silently change no setting.
        key_envs = {str(each.value).removeprefix(ENV_VALUE) for key, each in merged.items() if key.endswith("api_key")}
        ours = [name for name in fields_by_env() if name.startswith(_OURS)]
        for name in sorted(env):
            if name.startswith(_OURS) and name not in {*ours, *_NO_SETTINGS, *key_envs}:
                self._unknown.append(unknown(name, "variable", name, ours))

    def checked(self, layer: _Layer) -> _Layer:
        try:
            Settings.model_validate(_nested(layer))
        except ValidationError as error:
            invalid_keys = set()
            for key, path, received, accepted in _invalid_values(error):
                written = layer[key]
                where = f"{written.where}.{path}" if path else written.where
                self._refuse(key, Problem(where, received if path else shown_setting(written.raw, key), accepted))
                invalid_keys.add(key)
            return {key: value for key, value in layer.items() if key not in invalid_keys}
        return layer

    def raise_problems(self) -> None:
        if problems := tuple(dict.fromkeys([*self._in_file, *self._unknown, *self._invalid])):
            raise (PipelineError if self._in_file else SettingsError)(problems)

    def _put(self, layer: _Layer, field: SettingField, raw: object, source: str, where: str) -> None:
        try:
            value = read_value(field, raw)
        except (ValueError, RecursionError):
            received, accepted = shown_setting(raw, field.key), field.accepted
            if field.type in {tuple, dict}:
                received, accepted = f"{len(str(raw))} characters that are no JSON", f"{field.accepted}, as JSON"
            self._refuse(field.key, Problem(where, received, accepted))
        else:
            layer[field.key] = _LayerValue(value, source, where, raw)

    def _refuse(self, key: str, problem: Problem) -> None:
        if key == "tfgrpo.group_size":
            log_refusals([problem])
        self._invalid.append(problem)

    def _document_fields(self, document: Mapping[str, Any], prefix: str, label: str) -> Iterator[tuple[str, object]]:
        names = {key.removeprefix(prefix).split(".")[0] for key in fields_by_key() if key.startswith(prefix)}
        for name, value in document.items():
            key = f"{prefix}{name}"
            if name not in names and key not in fields_by_key():
                self._in_file.append(unknown(f"{label}: {key}", "key", name, names))
            elif key in fields_by_key():
                # `on` and `yes` are words in YAML 1.2.
                is_bool = fields_by_key()[key].type is bool
                yield key, TRUTH_VALUES.get(str(value).strip().lower(), value) if is_bool else value
            elif isinstance(value, dict):
                yield from self._document_fields(value, f"{key}.", label)
            elif value is not None:
                # None is a section whose every key is commented out.
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
