"""Settings of a resumed or replayed run: those it started with; only what cannot change its results may differ.

Any other setting from the command line or the environment is refused, never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

from pydantic import ValidationError

from tfgrpo.flows.orchestration.request import Measuring, RunRequest
from tfgrpo.flows.run.index import find_run, has_begun, known_runs, refuse_pruned, task_named
from tfgrpo.pipelines.settings.fields import fields_by_key
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model import ROLES
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline, load_pipeline
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import ConfigError, CorruptFile, Problem, SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile

MAY_CHANGE = (
    "out",
    "task_id",
    "task_runner",
    "packs_root",
    "tfgrpo.concurrency",
    "tfgrpo.allow_zero",
    *(
        f"model.{role}{name}"
        for role in ("", *(f"{each}." for each in ROLES))
        for name in ("base_url", "api_key", "headers", "timeout_s", "max_retries", "wait_s")
    ),
    "budget.",
    "telemetry.",
    "notify.",
)
"""Keys, or prefixes of keys, that may change when a run is resumed."""

_LOCATION = ("out", "task_id")
_ADDRESS = "model.base_url"
"""A run without one was simulated, and stays so: OPENAI_BASE_URL may be set for other programs."""
_ASKED = ("command line", "environment")
_MISSING = object()


class Earlier(NamedTuple):
    """A run to resume or replay."""

    request: RunRequest
    """With the id of the run in place of ``latest``."""
    manifest: dict[str, Any]
    resolved: Resolved
    """The settings of the manifest, updated by the permitted options."""


def earlier_run(request: RunRequest, env: Mapping[str, str]) -> Earlier:
    """Find the run to resume or replay, of the named task, else of any.

    Raises ``SettingsError`` that names the existing runs, or every option that a run cannot take on.
    """
    asked = request.resolved(env)
    run, manifest = _find(request, asked)
    stored: dict[str, Any] = deepcopy(manifest["settings"])
    sources = dict.fromkeys(fields_by_key(), "default") | dict(manifest["sources"])
    problems: list[Problem] = []
    wanted = asked.settings.model_dump(mode="json")
    for key, source in asked.sources.items():
        if not source.startswith(_ASKED) or key in _LOCATION:
            continue
        new, old = _leaf(wanted, key), _leaf(stored, key)
        simulated = key.endswith("base_url") and old is None and _leaf(stored, _ADDRESS) is None
        if new == old or (simulated and source.startswith("environment")):
            continue
        if not key.startswith(MAY_CHANGE) or simulated:
            began = "nothing" if old is _MISSING else json.dumps(old)
            name = source.removeprefix("command line ").removeprefix("environment ")
            problems.append(Problem(name, json.dumps(new), f"{began}, as the run began with"))
            continue
        _set_leaf(stored, key, new)
        sources[key] = source
    if problems:
        raise SettingsError(problems)
    # The run continues where its manifest is, even if it was started from another directory.
    task = run.root.parent.parent
    stored |= {"out": str(task.parent), "task_id": task.name}
    try:
        resolved = Resolved(Settings.model_validate_json(json.dumps(stored)), sources)
    except ValidationError as error:
        accepted = f"a run whose settings this version knows ({error.error_count()} do not fit)"
        raise _unusable(request, accepted) from error
    named: dict[str, Any] = {"replay" if request.resume is None else "resume": run.root.name}
    if manifest.get("measures") is not None and request.measures is None:
        named["measures"] = Measuring.model_validate_json(json.dumps(manifest["measures"]))
    return Earlier(request.model_copy(update=named), manifest, resolved)


def lasting_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that cannot change when a run is resumed, by dotted key."""
    tree = settings.model_dump(mode="json")
    leaves = ((key, _leaf(tree, key)) for key in fields_by_key() if not key.startswith(MAY_CHANGE))
    return {key: value for key, value in leaves if value is not _MISSING}


def continued(request: RunRequest, env: Mapping[str, str]) -> RunRequest:
    """Return the request as one that resumes the run of the same flow run, at a retry or after a worker died.

    Raises ``ConfigError`` for settings that do not resolve.
    """
    if request.flow_run_id is None or request.run_id is None:
        return request
    asked = request.resolved(env).settings
    with suppress(ValueError, OSError, CorruptFile):  # reported by ``prepare``
        manifest = ManifestFile(TaskPaths.of(asked.out, asked.task_id).run(request.run_id).manifest).read()
        if manifest.get("flow_run_id") == request.flow_run_id and has_begun(manifest):
            return request.model_copy(update={"run_id": None, "resume": request.run_id})
    return request


def task_of_request(request: RunRequest, env: Mapping[str, str]) -> TaskPaths:
    """Return the task of a request whose other settings may be refused. Raises ``ValueError`` for no name of a task."""
    document: Mapping[str, Any] = {}
    with suppress(ConfigError):
        document = load_pipeline(find_pipeline(request.pipeline))

    def named(key: str) -> str:
        value = request.settings.get(key) or env.get(f"TFGRPO_{key.upper()}") or document.get(key)
        return str(value or Settings.model_fields[key].default)

    return TaskPaths.of(named("out"), named("task_id"))


def _find(request: RunRequest, asked: Resolved) -> tuple[RunPaths, dict[str, Any]]:
    task_id: str | None = asked.settings.task_id
    named = asked.sources["task_id"].startswith(_ASKED)
    if not named and request.pipeline == RunRequest.model_fields["pipeline"].default:  # the task may be of any pipeline
        task_id = None
    task = task_named(task_id, asked.settings.out)
    run = find_run(task, request.earlier or "", everywhere=not named)
    if run is None:
        raise _unusable(request, f"a run of task {task.root.name}: {known_runs(task)}")
    if request.measures is None:  # which takes the settings alone
        refuse_pruned(run, "--replay" if request.resume is None else "--resume")
    try:
        manifest = ManifestFile(run.manifest).read()
    except (OSError, CorruptFile) as error:
        raise _unusable(request, f"a run whose manifest can be read ({error})") from error
    if not {"settings", "sources"} <= set(manifest):
        raise _unusable(request, "a run that has begun, whose manifest has its settings")
    return run, manifest


def _unusable(request: RunRequest, accepted: str) -> SettingsError:
    option = "--replay" if request.resume is None else "--resume"
    return SettingsError([Problem(option, repr(request.earlier), accepted)])


def _leaf(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part, _MISSING) if isinstance(tree, dict) else _MISSING
    return tree


def _set_leaf(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
    tree[last] = value
