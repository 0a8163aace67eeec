"""Check a request before any spending, and describe it to the processes that work on it.

Run, doctor and estimate call the same function.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx

from tfgrpo.flows.console.environment import installed_version, write_error
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.index import LATEST, has_begun, is_saturated, nights_begun
from tfgrpo.flows.run.resume import earlier_run
from tfgrpo.pipelines.plan.plan import BasePlan, ExtraCheck, Plan, build_plan
from tfgrpo.pipelines.settings.guardrails import unnamed_world
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import CorruptFile, EndpointUnavailable, Problem, SettingsError, StoreError
from tfgrpo.stores.experiences.decisions import WAY_OUT
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.telemetry.setup import TelemetryOptions
from tfgrpo.stores.text import IDENTIFIER_RULE
from tfgrpo.tasks.actors.registry import actor_warnings, check_actor, listed_tools
from tfgrpo.tasks.models.endpoint import endpoint_of
from tfgrpo.tasks.models.preflight import await_endpoint, check_endpoint
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.tools.schema import ListedTool

_DEPLOYED_WAIT_S: Final = 600.0
"""``model.wait_s`` of a deployment that does not set it: at night there is time, and no one who starts the run again."""


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
    mcp_tools: tuple[ListedTool, ...] = ()
    """Tools of the actor's MCP servers: listed now, or recorded by the earlier run."""
    happened: tuple[str, ...] = ()
    """Warnings about what happened before it, which stay when it is resumed."""
    waits: bool = False
    """Whether an endpoint is unavailable, so that the run begins with waiting for it."""


def prepare(request: RunRequest, env: Mapping[str, str], *, preflight: bool = True, starts: bool = False) -> Prepared:
    """Resolve and plan a request; with ``preflight``, also check the output directory and the endpoint.

    ``starts``: a run follows, which waits for an unavailable endpoint. Raises ``ConfigError`` with all problems of the first
    step that finds one.
    """
    _check_names(request)
    earlier, checks = None, _CHECKS
    if request.earlier is not None:
        request, earlier, resolved = earlier_run(request, env)
    elif request.measures is not None:
        found = earlier_run(request.model_copy(update={"resume": LATEST}), env)
        settings = found.resolved.settings
        learning = settings.tfgrpo.model_copy(update={"night": None})
        resolved = _with_night(Resolved(settings.model_copy(update={"tfgrpo": learning}), found.resolved.sources))
    else:
        resolved = _with_night(request.resolved(env))
        checks = (*checks, partial(unnamed_world, sources=resolved.sources))  # a run that started with it may continue
    if request.flow_run_id is not None and resolved.sources["model.wait_s"] == "default":
        model = resolved.settings.model.model_copy(update={"wait_s": _DEPLOYED_WAIT_S})
        sources = {**resolved.sources, "model.wait_s": "deployment"}
        resolved = Resolved(resolved.settings.model_copy(update={"model": model}), sources)
    measuring = None if request.measures is None else request.measures.rollouts
    sealed = request.test if earlier is None else bool(earlier.get("opens_sealed"))
    tools = _McpTools(earlier)
    checks = (*checks, tools.check)
    saturated = (
        _saturated(resolved.settings) if earlier is None else bool(mapping_of(earlier.get("forecast")).get("saturated"))
    )
    plan = build_plan(
        resolved, env, extra_checks=checks, measuring=measuring, sealed=sealed, saturated=saturated and not sealed
    )
    refuse_taken(request, plan.paths)
    if sealed and earlier is None:
        from tfgrpo.flows.run.loop.sealed import refuse_second_test  # noqa: PLC0415 - for tests on sealed items only

        refuse_second_test(plan)
    warnings: tuple[str, ...] = ()
    waits = False
    if preflight:
        if reason := write_error(plan.paths.root / "runs"):
            given = f"{str(plan.paths.root)!r}, where nothing can be written ({reason})"
            raise SettingsError.one("--out", given, "a directory that can be written, or a path for a new one")
        try:
            warnings = () if request.replay is not None else asyncio.run(check_endpoint_of(plan))
        except EndpointUnavailable:
            if not starts:
                raise
            waits = True
    warnings = (*plan.warnings, *actor_warnings(plan.settings.actor), *warnings)
    return Prepared(request, resolved, plan, warnings, earlier, tools.listed, waits=waits)


class _McpTools:
    """The tools of the actor's MCP servers. A run that is resumed or replayed has its own, and starts no server for them."""

    def __init__(self, earlier: Mapping[str, Any] | None) -> None:
        self._known = earlier is not None
        self.listed = tuple(ListedTool(**each) for each in (earlier or {}).get("mcp_tools", ()))

    def check(self, settings: Settings) -> Sequence[Problem]:
        """List them. Return a problem for each server of which they cannot be listed, and for names."""
        try:
            if not self._known:
                self.listed = listed_tools(settings.actor)
            without = check_actor(settings.actor)  # what ``_CHECKS`` has reported
            return [each for each in check_actor(settings.actor, listed=self.listed) if each not in without]
        except SettingsError as error:
            return tuple(error.problems)


def _with_night(resolved: Resolved) -> Resolved:
    """Number the night by those of the task that have begun with its kind of model, unless the settings give a number."""
    settings = resolved.settings
    if settings.tfgrpo.night is not None:
        return resolved
    try:
        task = TaskPaths.of(settings.out, settings.task_id)
        night = nights_begun(task, simulated=choose_models(settings).simulated)
    except ValueError:
        night = 0  # an invalid task id, which the plan refuses
    except StoreError as error:
        raise SettingsError.one("the task's decisions", str(error), WAY_OUT) from error
    learning = settings.tfgrpo.model_copy(update={"night": night})
    source = {"tfgrpo.night": "as many as the task has begun"} if night else {}
    return Resolved(settings.model_copy(update={"tfgrpo": learning}), {**resolved.sources, **source})


def _saturated(settings: Settings) -> bool:
    """Return whether the task's last nights changed nothing. What cannot be read is reported elsewhere."""
    with suppress(ValueError, StoreError):
        task = TaskPaths.of(settings.out, settings.task_id)
        return is_saturated(task, simulated=choose_models(settings).simulated)
    return False


async def check_endpoint_of(plan: BasePlan, waiting: Callable[[str], object] | None = None) -> tuple[str, ...]:
    """Check each endpoint of a plan and return their warnings. Raises ``EndpointError``.

    ``waiting``: wait for those that are unavailable, as ``await_endpoint`` does.
    """
    warnings: list[str] = []
    unavailable: EndpointUnavailable | None = None
    for role, names in plan.models.endpoints.items():
        chosen = plan.models.roles[role]
        if chosen.base_url is not None:
            # In a thread, because a Secret block is fetched with its own event loop.
            key = await asyncio.to_thread(read_api_key, chosen)
            endpoint = endpoint_of(chosen, chosen.base_url, key, names)
            asked = check_endpoint(endpoint) if waiting is None else await_endpoint(endpoint, chosen.wait_s, waiting)
            try:
                warnings += await asked
            except EndpointUnavailable as error:  # a wrong key of another endpoint is refused at once all the same
                unavailable = error
    if unavailable is not None:
        raise unavailable
    return tuple(warnings)


def _check_task_runner(settings: Settings) -> Sequence[Problem]:
    name = settings.task_runner
    if name == "threads" or find_spec(f"prefect_{name}") is not None:
        return ()
    return (Problem("--task-runner", name, f"threads, or {name} after `pip install 'tfgrpo[{name}]'`"),)


_CHECKS: tuple[ExtraCheck, ...] = (
    lambda settings: check_actor(settings.actor, learns=settings.tfgrpo.enabled),
    _check_task_runner,
)


def _check_names(request: RunRequest) -> None:
    """Raise ``SettingsError`` for more than one of ``--resume``, ``--replay`` and ``--run-id``."""
    named = {"--resume": request.resume, "--replay": request.replay, "--run-id": request.run_id}
    given = [(option, name) for option, name in named.items() if name is not None]
    if len(given) > 1:
        option, name = given[-1]
        accepted = "one of the two: a run that is there has its name"
        raise SettingsError.one(option, f"{name!r} beside {given[0][0]}", accepted)
    if request.pay_again and request.resume is None and request.flow_run_id is None:
        raise SettingsError.one("--pay-again", "it without --resume", "it with --resume RUN")


def refuse_taken(request: RunRequest, paths: TaskPaths) -> None:
    """Raise ``SettingsError`` for a name that no new run of the task can have."""
    if request.run_id is None:
        return
    if request.run_id == LATEST:
        raise SettingsError.one("--run-id", repr(LATEST), "another name: this one means the newest run")
    try:
        manifest = paths.run(request.run_id).manifest
        taken = manifest.exists() and has_begun(ManifestFile(manifest).read())
    except CorruptFile:
        taken = True
    except ValueError as error:
        raise SettingsError.one("--run-id", repr(request.run_id), IDENTIFIER_RULE) from error
    if taken:
        accepted = f"a name not used before; to go on with that run: --resume {request.run_id}"
        raise SettingsError.one("--run-id", repr(request.run_id), accepted)


def run_context(plan: BasePlan, run_id: str, run_dir: Path, task_id: str | None) -> RunContext:
    """Return the context of a run that shares no ledger and replays nothing; ``task_id`` is that of telemetry."""
    telemetry = plan.settings.telemetry
    return RunContext(
        settings=plan.settings,
        run_dir=run_dir,
        run_id=run_id,
        pack_id=plan.pack.manifest.id,
        packs_root=plan.pack.root.parent,
        read_secret=read_api_key,
        models=plan.models,
        telemetry=TelemetryOptions(
            service_version=installed_version(),
            run_id=run_id,
            task_id=task_id,
            content=telemetry.content,
            several_processes=plan.settings.task_runner != "threads",
        ),
    )


_BLOCKS = "the name of a Prefect Secret block; `prefect block ls` lists those there are"


def read_api_key(model: ModelSettings) -> str | None:
    """Return the key of the Prefect Secret block that the settings name, else of the environment; None without one.

    The process that uses the key reads it; it is never part of a setting, a context or a record. Raises ``SettingsError``
    when the named block cannot be read.
    """
    source, _, name = model.api_key.partition(":")
    if source == "env":
        return os.environ.get(name) or None
    # Only endpoints with a Secret block pay for importing Prefect here.
    from prefect.blocks.system import Secret  # noqa: PLC0415
    from prefect.exceptions import PrefectException  # noqa: PLC0415

    async def load() -> object:
        block: Secret[Any] = await Secret.aload(name)
        return block.get()

    try:
        value = asyncio.run(load())
    except ValueError:
        # Prefect's own text for a missing block; nothing of it is repeated, because the key may stand where the name should.
        raise SettingsError.one("model.api_key", "no such block", _BLOCKS) from None
    except (PrefectException, httpx.HTTPError, OSError, RuntimeError) as error:
        given = f"no answer from Prefect ({type(error).__name__})"
        raise SettingsError.one("model.api_key", given, "a Prefect server that can be reached") from None
    return str(value) if value else None
