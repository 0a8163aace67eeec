"""Check a request before any spending, and describe it to the processes that work on it.

Run, doctor and estimate call the same function. A resumed or replayed run has the settings it started with: only what cannot
change its results may differ, and any other setting is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import ValidationError

from tfgrpo.flows.console.environment import installed_version, write_error
from tfgrpo.flows.orchestration.request import Measuring, RunRequest
from tfgrpo.flows.run import index
from tfgrpo.flows.run.lessons import starting_library
from tfgrpo.pipelines.plan.plan import BasePlan, ExtraCheck, Plan, build_plan
from tfgrpo.pipelines.settings.guardrails import unnamed_world
from tfgrpo.pipelines.settings.layers import Resolved, fields_by_key
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline, load_pipeline
from tfgrpo.pipelines.settings.tree import MODEL_ROLES, ModelSettings, Settings
from tfgrpo.rewarders.importing import load_object
from tfgrpo.stores.errors import (
    ConfigError,
    CorruptFile,
    EndpointUnavailable,
    PipelineError,
    Problem,
    SettingsError,
    StoreError,
)
from tfgrpo.stores.experiences.decisions import WAY_OUT, sealed_tests
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.json_values import mapping_of
from tfgrpo.stores.runs import ManifestFile, expected_shape
from tfgrpo.stores.telemetry.setup import TelemetryOptions
from tfgrpo.stores.text import IDENTIFIER_RULE
from tfgrpo.tasks.actors.registry import actor_warnings, check_actor, listed_tools
from tfgrpo.tasks.models.endpoint import await_endpoint, check_endpoint, endpoint_of
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.tools.schema import ListedTool

# ``model.wait_s`` of a deployment that does not set it: at night there is time, and no one who starts the run again.
_DEPLOYED_WAIT_S: Final = 600.0


_COUNTED: Final = "as many as the task has begun"
_TEST: Final = "tfgrpo test"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with valid settings and plan."""

    request: RunRequest
    """The request, with the run id in place of ``latest``."""
    resolved: Resolved
    plan: Plan
    warnings: tuple[str, ...]
    earlier: Mapping[str, Any] | None = None
    mcp_tools: tuple[ListedTool, ...] = ()
    """Tools of the actor's MCP servers: listed now, or recorded by the earlier run."""
    happened: tuple[str, ...] = ()
    """Warnings about what happened before it, which stay when it is resumed."""
    waits: bool = False
    """Whether an endpoint is unavailable, so that the run starts with waiting for it."""


def prepare(request: RunRequest, env: Mapping[str, str], *, preflight: bool = True, starts: bool = False) -> Prepared:
    """Resolve and plan a request; with ``preflight``, also check the output directory and the endpoint.

    ``starts``: a run follows, which waits for an unavailable endpoint. Raises ``ConfigError`` with all problems of the first
    step that finds one.
    """
    _check_names(request)
    earlier, checks = None, _CHECKS
    if request.earlier is not None:
        request, earlier, resolved = earlier_run(request, env)
    elif (newest_id := _newest(request, env)) is not None:
        _, _, newest = earlier_run(request.model_copy(update={"resume": newest_id}), env, anew=request.test)
        learning = newest.settings.tfgrpo.model_copy(update={"night": None})
        resolved = replace(newest, settings=newest.settings.model_copy(update={"tfgrpo": learning}))
    else:
        resolved = request.resolved(env)
        checks = (*checks, partial(unnamed_world, sources=resolved.sources))  # a run that started with it may continue
    saturated = bool(mapping_of((earlier or {}).get("forecast")).get("saturated"))
    if earlier is None:
        resolved, saturated = _with_night(resolved)
    if request.flow_run_id is not None and resolved.sources["model.wait_s"] == "default":
        model = resolved.settings.model.model_copy(update={"wait_s": _DEPLOYED_WAIT_S})
        sources = {**resolved.sources, "model.wait_s": "deployment"}
        resolved = Resolved(resolved.settings.model_copy(update={"model": model}), sources)
    measuring = None if request.measures is None else request.measures.rollouts
    sealed = request.test if earlier is None else bool(earlier.get("opens_sealed"))
    # A run that is resumed or replayed has the tools that it began with, and starts no server to list them.
    tools = [ListedTool(**each) for each in (earlier or {}).get("mcp_tools", ())]
    checks = (*checks, partial(_check_tools, tools=tools, begun=earlier is not None))
    plan = build_plan(
        resolved, env, extra_checks=checks, measuring=measuring, sealed=sealed, saturated=saturated and not sealed
    )
    refuse_taken(request, plan.paths)
    if sealed and earlier is None:
        refuse_second_test(plan)
    warnings, waits = tuple[str, ...](), False
    if preflight:
        if reason := write_error(plan.paths.root / "runs"):
            unwritable = f"{str(plan.paths.root)!r}, where nothing can be written ({reason})"
            raise SettingsError.one("--out", unwritable, "a directory that can be written, or a path for a new one")
        try:
            warnings = () if request.replay is not None else asyncio.run(check_endpoint_of(plan))
        except EndpointUnavailable:
            if not starts:
                raise
            waits = True
    warnings = (*plan.warnings, *actor_warnings(plan.settings.actor), *warnings)
    return Prepared(request, resolved, plan, warnings, earlier, tuple(tools), waits=waits)


def _newest(request: RunRequest, env: Mapping[str, str]) -> str | None:
    """Return the run whose settings a new one has: to measure, and without a named pipeline to test. None for no such run.

    A test that is asked for with a model, or as a dry run, has those of the newest run with its kind of model.
    """
    if request.measures is not None:
        return index.LATEST
    if not request.test or request.pipeline != RunRequest.model_fields["pipeline"].default:
        return None
    requested = request.resolved(env)
    # An address in the environment may be for other programs.
    named = requested.settings.model.name is not None or requested.sources[_ADDRESS].startswith("command line")
    kind = choose_models(requested.settings).simulated if named or requested.settings.dry_run else None
    runs = index.runs_of(index.task_named(request.settings.get("task_id"), request.settings.get("out")))
    return next((each.run_id for each in runs if each.begun and kind in {None, each.simulated}), None)


def _check_tools(settings: Settings, tools: list[ListedTool], *, begun: bool) -> Sequence[Problem]:
    """List the tools of the actor's MCP servers. Return a problem for each server that lists none, and for names."""
    try:
        if not begun:
            tools[:] = listed_tools(settings.actor)
        without = check_actor(settings.actor)  # what ``_CHECKS`` has reported
        return [each for each in check_actor(settings.actor, listed=tools) if each not in without]
    except SettingsError as error:
        return tuple(error.problems)


def counted_again(prepared: Prepared) -> Prepared:
    """Return a night that is planned anew, if another one has begun with its number meanwhile."""
    plan, is_counted = prepared.plan, prepared.resolved.sources["tfgrpo.night"] in {"default", _COUNTED}
    if not is_counted or index.nights_begun(plan.paths, simulated=plan.simulated) == plan.settings.tfgrpo.night:
        return prepared
    again = prepare(prepared.request, os.environ, preflight=False)
    return replace(prepared, resolved=again.resolved, plan=again.plan)


def _with_night(resolved: Resolved) -> tuple[Resolved, bool]:
    """Number the night by those of its task and kind of model, unless the settings do. Return, too, if that is saturated."""
    settings = resolved.settings
    try:
        task, simulated = TaskPaths.of(settings.out, settings.task_id), choose_models(settings).simulated
        night, unchanged = (count(task, simulated=simulated) for count in (index.nights_begun, index.unchanged_nights))
    except ValueError:
        night = unchanged = 0  # an invalid task id, which the plan refuses
    except StoreError as error:
        raise SettingsError.one("the task's decisions", str(error), WAY_OUT) from error
    saturated = unchanged >= index.SATURATED
    if settings.tfgrpo.night is not None:
        return resolved, saturated
    learning = settings.tfgrpo.model_copy(update={"night": night})
    source = {"tfgrpo.night": _COUNTED} if night else {}
    return Resolved(settings.model_copy(update={"tfgrpo": learning}), {**resolved.sources, **source}), saturated


def refuse_second_test(plan: Plan) -> None:
    """Raise ``SettingsError`` without lessons in force, and for a library that was tested or whose test can be resumed."""
    library, _ = starting_library(plan)
    if not library.entries:
        raise SettingsError.one(_TEST, "no lessons in force", "a task with lessons in force")
    of_library = (library.library_id, plan.simulated)
    for test in sealed_tests(plan.paths.tests):
        if (test.library_id, test.simulated) == of_library:
            tested = f"the library {test.library_id}, which run {test.run_id} has tested: {test.result}"
            raise SettingsError.one(_TEST, tested, "a library that was not tested yet: each is, once")
    for path in plan.paths.root.glob("runs/*/manifest.json"):
        with suppress(OSError, CorruptFile), expected_shape(path.parent):
            begun = ManifestFile(path).read()
            if begun.get("opens_sealed") and (begun["in_force"]["library_id"], begun["simulated"]) == of_library:
                run_id = path.parent.name
                under_way = f"the library {of_library[0]}, whose test has begun as run {run_id}"
                raise SettingsError.one(_TEST, under_way, f"`tfgrpo run --resume {run_id}`, which ends it")


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
            check = check_endpoint(endpoint) if waiting is None else await_endpoint(endpoint, chosen.wait_s, waiting)
            try:
                warnings += await check
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


def _check_world(settings: Settings) -> Sequence[Problem]:
    try:
        if ":" in settings.simulated.world:
            load_object(settings.simulated.world, "--world")
    except PipelineError as error:
        return tuple(error.problems)
    return ()


_CHECKS: tuple[ExtraCheck, ...] = (
    lambda settings: check_actor(settings.actor, learns=settings.tfgrpo.enabled),
    _check_task_runner,
    _check_world,
)


def _check_names(request: RunRequest) -> None:
    """Raise ``SettingsError`` for more than one of ``--resume``, ``--replay`` and ``--run-id``."""
    named = {"--resume": request.resume, "--replay": request.replay, "--run-id": request.run_id}
    options = [option for option, name in named.items() if name is not None]
    if len(options) > 1:
        beside = f"{named[options[-1]]!r} beside {options[0]}"
        raise SettingsError.one(options[-1], beside, "one of the two: a run that is there has its name")
    if request.pay_again and request.resume is None and request.flow_run_id is None:
        raise SettingsError.one("--pay-again", "it without --resume", "it with --resume RUN")


def refuse_taken(request: RunRequest, paths: TaskPaths) -> None:
    """Raise ``SettingsError`` for a name that no new run of the task can have."""
    if request.run_id is None:
        return
    if request.run_id == index.LATEST:
        raise SettingsError.one("--run-id", repr(index.LATEST), "another name: this one means the newest run")
    try:
        manifest = paths.run(request.run_id).manifest
        taken = manifest.exists() and index.has_begun(ManifestFile(manifest).read())
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
    from prefect.blocks.system import Secret  # noqa: PLC0415 - 0.7 s, for keys in a Secret block only
    from prefect.exceptions import PrefectException  # noqa: PLC0415 - as above

    async def load() -> object:
        block: Secret[Any] = await Secret.aload(name)
        return block.get()

    try:
        value = asyncio.run(load())
    except ValueError:
        # Prefect's own text for a missing block; nothing of it is repeated, because the key may stand where the name should.
        raise SettingsError.one("model.api_key", "no such block", _BLOCKS) from None
    except (PrefectException, httpx.HTTPError, OSError, RuntimeError) as error:
        silence = f"no answer from Prefect ({type(error).__name__})"
        raise SettingsError.one("model.api_key", silence, "a Prefect server that can be reached") from None
    return str(value) if value else None


MAY_CHANGE = (
    *("out", "task_id", "task_runner", "packs_root", "tfgrpo.concurrency", "tfgrpo.allow_zero"),
    *(
        f"model.{role}{name}"
        for role in ("", *(f"{each}." for each in MODEL_ROLES))
        for name in ("base_url", "api_key", "headers", "timeout_s", "max_retries", "wait_s")
    ),
    *("budget.", "telemetry.", "notify."),
)
"""Keys, or prefixes of keys, that may change when a run is resumed."""

_LOCATION = ("out", "task_id")
# A run without one was simulated, and stays so: OPENAI_BASE_URL may be set for other programs.
_ADDRESS = "model.base_url"
_ASKED = ("command line", "environment")
_MISSING = object()


def earlier_run(
    request: RunRequest, env: Mapping[str, str], *, anew: bool = False
) -> tuple[RunRequest, dict[str, Any], Resolved]:
    """Find the run to resume or replay, of the named task, else of any.

    Return the request with the id of the run in place of ``latest``, the run's manifest, and the settings of the manifest,
    updated by the permitted options; ``anew``, for a new run with its settings, by all. Raises ``SettingsError`` that names
    the existing runs, or every option that a run cannot take on.
    """
    requested = request.resolved(env)
    run, manifest = _find(request, requested)
    stored: dict[str, Any] = deepcopy(manifest["settings"])
    sources = dict.fromkeys(fields_by_key(), "default") | dict(manifest["sources"])
    problems: list[Problem] = []
    wanted = requested.settings.model_dump(mode="json")
    for key, source in requested.sources.items():
        if not source.startswith(_ASKED) or key in _LOCATION:
            continue
        new, old = _leaf(wanted, key), _leaf(stored, key)
        simulated = key.endswith("base_url") and old is None and _leaf(stored, _ADDRESS) is None
        if new == old or (simulated and source.startswith("environment")):
            continue
        lasting = simulated or not key.startswith(MAY_CHANGE)
        if request.as_begun and (lasting or key.startswith("budget.")):
            continue
        # All that differ are named at once, so that nobody meets them one by one.
        if lasting and not anew:
            began = "nothing" if old is _MISSING else json.dumps(old)
            name = source.removeprefix("command line ").removeprefix("environment ")
            problems.append(Problem(name, json.dumps(new), f"{began}, as the run began with"))
            continue
        *parents, last = key.split(".")
        section = stored
        for part in parents:
            section = section.setdefault(part, {})
        section[last], sources[key] = new, source
    if problems:
        raise SettingsError(problems)
    # The run continues where its manifest is, even if it was started from another directory.
    task = run.root.parent.parent
    stored |= {"out": str(task.parent), "task_id": task.name}
    try:
        # By way of JSON: from Python a strict model takes no list for a tuple.
        resolved = request.capped(Resolved(Settings.model_validate_json(json.dumps(stored)), sources))
    except ValidationError as error:
        accepted = f"a run whose settings this version knows ({error.error_count()} do not fit)"
        raise _unusable(request, accepted) from error
    named: dict[str, Any] = {"replay" if request.resume is None else "resume": run.root.name}
    if manifest.get("measures") is not None and request.measures is None:
        named["measures"] = Measuring.model_validate_json(json.dumps(manifest["measures"]))
    return request.model_copy(update=named), manifest, resolved


def lasting_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that cannot change when a run is resumed, by dotted key."""
    tree = settings.model_dump(mode="json")
    values = ((key, _leaf(tree, key)) for key in fields_by_key() if not key.startswith(MAY_CHANGE))
    return {key: value for key, value in values if value is not _MISSING}


def continued(request: RunRequest, env: Mapping[str, str]) -> RunRequest:
    """Return the request as one that resumes the run of the same flow run, at a retry or after a worker died.

    Raises ``ConfigError`` for settings that do not resolve.
    """
    if request.flow_run_id is None or request.run_id is None:
        return request
    settings = request.resolved(env).settings
    with suppress(ValueError, OSError, CorruptFile):  # reported by ``prepare``
        manifest = ManifestFile(TaskPaths.of(settings.out, settings.task_id).run(request.run_id).manifest).read()
        if manifest.get("flow_run_id") == request.flow_run_id and index.has_begun(manifest):
            return request.model_copy(update={"run_id": None, "resume": request.run_id, "as_begun": True})
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


def _find(request: RunRequest, requested: Resolved) -> tuple[RunPaths, dict[str, Any]]:
    task_id: str | None = requested.settings.task_id
    named = requested.sources["task_id"].startswith(_ASKED)
    if not named and request.pipeline == RunRequest.model_fields["pipeline"].default:  # the task may be of any pipeline
        task_id = None
    task = index.task_named(task_id, requested.settings.out)
    run = index.find_run(task, str(request.earlier), everywhere=not named)
    if run is None:
        raise _unusable(request, f"a run of task {task.root.name}: {index.known_runs(task)}")
    if request.measures is None:  # which takes the settings alone
        index.refuse_pruned(run, "--replay" if request.resume is None else "--resume")
    try:
        manifest = ManifestFile(run.manifest).read()
    except (OSError, CorruptFile) as error:
        raise _unusable(request, f"a run whose manifest can be read ({error})") from error
    needed = {"settings", "sources"} if request.measures is not None else {"settings", "sources", "began_with"}
    if lacks := ", ".join(sorted(needed - set(manifest))):
        raise _unusable(request, f"a run that has begun; its manifest lacks {lacks}")
    return run, manifest


def _unusable(request: RunRequest, accepted: str) -> SettingsError:
    option = "--replay" if request.resume is None else "--resume"
    return SettingsError([Problem(option, repr(request.earlier), accepted)])


def _leaf(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part, _MISSING) if isinstance(tree, dict) else _MISSING
    return tree
