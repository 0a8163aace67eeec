"""Check a request before any spending; run, doctor and estimate call the same function."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from tfgrpo.flows.console.environment import write_error
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.context import read_api_key
from tfgrpo.flows.run.index import LATEST
from tfgrpo.flows.run.resume import earlier_run
from tfgrpo.pipelines.plan.plan import BasePlan, ExtraCheck, Plan, build_plan
from tfgrpo.pipelines.settings.guardrails import unnamed_world
from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import Problem, SettingsError, StoreError
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import IDENTIFIER_RULE
from tfgrpo.tasks.actors.registry import actor_warnings, check_actor
from tfgrpo.tasks.models.endpoint import endpoint_of
from tfgrpo.tasks.models.preflight import check_endpoint


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with valid settings and plan."""

    request: RunRequest
    """The request, with the run id in place of ``latest``."""
    resolved: Resolved
    plan: Plan
    warnings: tuple[str, ...]
    """Of the plan, the actor and the preflight."""
    earlier: Mapping[str, Any] | None = None
    """Manifest of the run that is resumed or replayed."""


def prepare(request: RunRequest, env: Mapping[str, str], *, preflight: bool = True) -> Prepared:
    """Resolve and plan a request; with ``preflight``, also check the output directory and the endpoint.

    Raises ``ConfigError`` with all problems of the first step that finds one.
    """
    _check_names(request)
    earlier, checks = None, _CHECKS
    if request.earlier is not None:
        request, earlier, resolved = earlier_run(request, env)
    else:
        resolved = resolve_settings(cli=request.options(), env=env, pipeline_path=find_pipeline(request.pipeline))
        resolved = _with_night(resolved)
        checks = (*checks, partial(unnamed_world, sources=resolved.sources))  # a run that started with it may continue
    plan = build_plan(resolved, env, extra_checks=checks)
    refuse_taken(request, plan.paths)
    warnings: tuple[str, ...] = ()
    if preflight:
        _check_out(plan.paths)
        warnings = () if request.replay is not None else asyncio.run(check_endpoint_of(plan))
    warnings = (*plan.warnings, *actor_warnings(plan.settings.actor), *warnings)
    return Prepared(request, resolved, plan, warnings, earlier)


def _with_night(resolved: Resolved) -> Resolved:
    """Number the night by the decisions of earlier ones, unless the settings give a number."""
    settings = resolved.settings
    if settings.tfgrpo.night is not None:
        return resolved
    night, source = _nights_before(settings), "as many as the gate of the task has decided"
    learning = settings.tfgrpo.model_copy(update={"night": night})
    sources = resolved.sources if not night else {**resolved.sources, "tfgrpo.night": source}
    return Resolved(settings.model_copy(update={"tfgrpo": learning}), sources)


def _nights_before(settings: Settings) -> int:
    try:
        return sum(1 for _ in promotions(TaskPaths.of(settings.out, settings.task_id).promotions))
    except ValueError:
        return 0  # an invalid task id, which the plan refuses
    except StoreError as error:
        raise SettingsError.one("the task's decisions", str(error), "a file that can be read") from error


async def check_endpoint_of(plan: BasePlan) -> tuple[str, ...]:
    """Check the endpoint of a plan and return its warnings. Raises ``EndpointError``."""
    if plan.models.base_url is None:
        return ()
    model = plan.settings.model
    # In a thread, because a Secret block is fetched with its own event loop.
    key = await asyncio.to_thread(read_api_key, model)
    return await check_endpoint(endpoint_of(model, plan.models.base_url, key, judges=plan.models.judges))


def _check_task_runner(settings: Settings) -> Sequence[Problem]:
    name = settings.task_runner
    if name == "threads" or find_spec(f"prefect_{name}") is not None:
        return ()
    return (Problem("--task-runner", name, f"threads, or {name} after `pip install 'tfgrpo[{name}]'`"),)


_CHECKS: tuple[ExtraCheck, ...] = (lambda settings: check_actor(settings.actor), _check_task_runner)


def _check_names(request: RunRequest) -> None:
    """Raise ``SettingsError`` for more than one of ``--resume``, ``--replay`` and ``--run-id``."""
    named = {"--resume": request.resume, "--replay": request.replay, "--run-id": request.run_id}
    given = [(option, name) for option, name in named.items() if name is not None]
    if len(given) > 1:
        option, name = given[-1]
        accepted = "one of the two: a run that is there has its name"
        raise SettingsError.one(option, f"{name!r} beside {given[0][0]}", accepted)


def refuse_taken(request: RunRequest, paths: TaskPaths) -> None:
    """Raise ``SettingsError`` for a name that no new run of the task can have."""
    if request.run_id is None:
        return
    if request.run_id == LATEST:
        raise SettingsError.one("--run-id", repr(LATEST), "another name: this one means the newest run")
    try:
        taken = paths.run(request.run_id).manifest.exists()
    except ValueError as error:
        raise SettingsError.one("--run-id", repr(request.run_id), IDENTIFIER_RULE) from error
    if taken:
        accepted = f"a name not used before; to go on with that run: --resume {request.run_id}"
        raise SettingsError.one("--run-id", repr(request.run_id), accepted)


def _check_out(paths: TaskPaths) -> None:
    reason = write_error(paths.root / "runs")
    if reason is not None:
        given = f"{str(paths.root)!r}, where nothing can be written ({reason})"
        raise SettingsError.one("--out", given, "a directory that can be written, or a path for a new one")
