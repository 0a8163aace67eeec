"""Which settings does a resumed or replayed run have? Those it began with; only what cannot change its results may differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from flows.request import RunRequest
from pipelines.layers import Resolved, resolve_settings
from pipelines.pipeline_file import find_pipeline
from pipelines.settings import Settings
from stores.errors import Problem, SettingsError
from stores.layout import TaskPaths

MAY_CHANGE = (
    "out",
    "task_id",
    "task_runner",
    "tfgrpo.concurrency",
    "model.base_url",
    "model.timeout_s",
    "model.max_retries",
    "budget.",
    "telemetry.",
)
"""Keys, or beginnings of keys, that a resumed run may be given anew."""


def settings_of_run(request: RunRequest, env: Mapping[str, str]) -> Resolved:
    """Settings from the run's manifest, with the permitted options laid over. Raises ``SettingsError`` otherwise."""
    asked = resolve_settings(cli=request.options(), env=env, pipeline_path=find_pipeline(request.pipeline))
    manifest = manifest_of(request, asked.settings)
    stored: dict[str, Any] = manifest["settings"]
    sources = dict(manifest["sources"])
    problems: list[Problem] = []
    for key in request.options():
        wanted, had = _leaf(asked.settings.model_dump(mode="json"), key), _leaf(stored, key)
        if wanted == had:
            continue
        if not key.startswith(MAY_CHANGE):
            problems.append(Problem(key, json.dumps(wanted), f"{json.dumps(had)}, as the run began with"))
            continue
        _set_leaf(stored, key, wanted)
        sources[key] = asked.sources[key]
    if problems:
        raise SettingsError(problems)
    try:
        return Resolved(Settings.model_validate_json(json.dumps(stored)), sources)
    except ValidationError as error:
        raise SettingsError.one("--resume", request.resume or "", f"a run of this version: {error}") from error


def manifest_of(request: RunRequest, settings: Settings) -> dict[str, Any]:
    """The manifest of the run that is resumed or replayed. Raises ``SettingsError`` naming the runs there are."""
    name = request.resume or request.replay or ""
    option = "--resume" if request.resume else "--replay"
    try:
        paths = TaskPaths.of(settings.out, settings.task_id).run(name)
        manifest: dict[str, Any] = json.loads(paths.manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        known = sorted(
            path.parent.name for path in TaskPaths.of(settings.out, settings.task_id).root.glob("runs/*/manifest.json")
        )
        raise SettingsError.one(
            option, name, f"a run of task {settings.task_id}: {', '.join(known) or 'there is none'}"
        ) from error
    return manifest


def _leaf(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for part in key.split("."):
        value = value[part]
    return value


def _set_leaf(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for part in parents:
        tree = tree[part]
    tree[last] = value
