"""``tfgrpo deploy``: set a Prefect server up for nights: check what they need, make what is missing, read back what it has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import httpx
import yaml
from prefect.automations import AutomationCore
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import SCHEDULE_TYPES, CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.settings import get_current_settings
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import API_URL
from tfgrpo.flows.orchestration.deployed import asked_of, why_silent
from tfgrpo.flows.orchestration.local_server import error_line, without_login
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.errors import ConfigError, PrefectUnavailable, SettingsError

# Time for a server to answer; one that starts for the first time needs a dozen seconds.
_TIMEOUT_S: Final = 60.0


def deploy(console: Console, notify: str | None) -> None:
    """Set the server up, and print each finding as it is made."""
    findings = []
    for check, text in set_up(os.environ, _TIMEOUT_S, notify):
        findings.append({"check": check, "found": text})
        console.say(f"{check:>12}  {text}", wrap=False)
    if console.as_json:
        console.result({"ok": True, "findings": findings})


HOME: Final = "TFGRPO_HOME"
_FILE: Final = "prefect.yaml"
_NIGHT: Final = ":tfgrpo_learning"
_SERVER: Final = "the API of a Prefect server that answers; `prefect server start` starts one at http://127.0.0.1:4200/api"
_DEPLOY: Final = (sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all")
_DEPLOY_S: Final = 300.0


def set_up(environment: Mapping[str, str], patience_s: float, notify: str | None = None) -> Iterator[tuple[str, str]]:
    """Check server, checkout and pipelines, make missing work pools, apply ``prefect.yaml``, and read the deployments back.

    Yield each check with what was found. ``notify`` names the notification block of the automations that are applied, too.

    Raises ``SettingsError`` before anything is made, and ``PrefectUnavailable`` for what the server or Prefect refuses.
    """
    url = get_current_settings().api.url
    named = environment.get(HOME)
    home = Path(named or Path.cwd()).resolve()
    declared = _declared(home, HOME if named else f"the current directory, as {HOME} is not set")
    ours, pool_names = {(each.name, each.entrypoint) for each in declared}, sorted({each.pool for each in declared})
    if url is None:
        raise SettingsError.one(API_URL, "nothing", _SERVER)
    nights = [_night(each, environment, home) for each in declared]
    yield ("checkout", f"{home} ({HOME if named else f'here: {HOME} is not set'})")
    yield from (("runs", night) for night in nights if night)
    yield ("server", f"{without_login(url)}, waited for at most {patience_s:g} s")
    why = why_silent(patience_s)
    if why is not None and not isinstance(why, httpx.HTTPStatusError):  # a refused login shows in what is asked next
        raise SettingsError.one(API_URL, repr(without_login(url)), f"{_SERVER} ({error_line(why)})")
    yield ("server", "answers")
    try:
        with get_client(sync_client=True) as client:
            block = _notification_block(client, notify) if notify else None
            automations = _declared_automations(home) if notify else []
            pools = [_pool(client, name) for name in pool_names]
            yield from (("work pool", text) for _, text in pools)
            yield ("deployments", f"`prefect deploy --all`, at most {_DEPLOY_S:g} s …")
            before = {each.id: each for each in _deployed(client, ours)}
            _apply({**environment, HOME: str(home)}, home)
            deployed = _deployed(client, ours)
            for deployment in deployed:
                kept = _keep_active(client, before.get(deployment.id), deployment)
                there = client.read_deployment(deployment.id)
                plans = [
                    f"{rule_of(each.schedule)}{'' if each.active and not there.paused else ' (PAUSED)'}"
                    for each in there.schedules
                ]
                name = f"{client.read_flow(there.flow_id).name}/{there.name}"
                yield ("deployment", f"{name}, {', '.join(plans) or 'on demand'}{kept}")
            yield ("automation", _end_zombies(client, [each.id for each in deployed]))
            watched = [each.id for each in deployed if (each.entrypoint or "").endswith(_NIGHT)]
            for each in automations:
                action = {"type": "send-notification", "block_document_id": block, **each["texts"]}
                made = {"name": each["name"], "description": "Made by `tfgrpo deploy --notify`.", "actions": [action]}
                paused = _renewed(client, made, each["trigger"], watched)
                yield ("automation", f"{each['name']}{paused}: notifies {notify}")
            for pool, _ in pools:
                online = sum(worker.status == "ONLINE" for worker in client.read_workers_for_work_pool(pool.name))
                none = f"none online; start one: prefect worker start --pool {pool.name}"
                yield ("worker", f"{online} online" if online else none)
    except (PrefectException, httpx.HTTPError) as error:
        raise PrefectUnavailable(error_line(error)) from error


class _Declared(NamedTuple):
    name: str
    entrypoint: str
    pool: str
    parameters: dict[str, Any]


@contextmanager
def _yaml_in(path: Path, source: str, accepted: str) -> Iterator[Any]:
    """Give the block what is in a file. Raise ``SettingsError`` for none, and for one of a shape that the block cannot read."""
    try:
        yield yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SettingsError.one(source, f"{str(path)!r} ({type(error).__name__})", accepted) from error


def _declared(home: Path, source: str) -> list[_Declared]:
    with _yaml_in(home / _FILE, source, f"a checkout of tfgrpo, whose {_FILE} names deployments") as content:
        return [
            _Declared(each["name"], each["entrypoint"], each["work_pool"]["name"], dict(each.get("parameters") or {}))
            for each in content["deployments"]
        ]


def _declared_automations(home: Path) -> list[dict[str, Any]]:
    with _yaml_in(home / "ops" / "automations.yaml", "--notify", "the file of a checkout of tfgrpo") as content:
        return [
            {"name": each["name"], "trigger": each["trigger"], "texts": {name: each[name] for name in ("subject", "body")}}
            for each in content
        ]


def _night(declared: _Declared, environment: Mapping[str, str], home: Path) -> str:
    """Return what a learning deployment would run by its worker's settings; empty for another. Raise ``ConfigError``."""
    if not declared.entrypoint.endswith(_NIGHT) or "{{" in repr(declared.parameters):  # which Prefect fills in
        return ""
    there = f"{_FILE}, deployment {declared.name}: "
    try:
        with chdir(home):
            settings = asked_of(RunRequest, declared.parameters).resolved(environment).settings
    except ConfigError as error:
        raise SettingsError([replace(each, source=f"{there}{each.source}") for each in error.problems]) from None
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise SettingsError.one(f"{there}{name}", repr(first["input"]), first["msg"]) from None
    model = "the SIMULATED model" if choose_models(settings).simulated else settings.model.of("actor").name
    nothing = "" if settings.tfgrpo.enabled else "; it learns NOTHING, as tfgrpo.enabled is off"
    return f"{declared.name}: task {settings.task_id}, {model}{nothing}"


def _pool(client: SyncPrefectClient, name: str) -> tuple[WorkPool, str]:
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        new = WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template)
        return client.create_work_pool(new), f"{name}, created"
    return pool, f"{name}, of type {pool.type}{', PAUSED: no run starts' if pool.is_paused else ''}"


def _apply(environment: Mapping[str, str], home: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - Prefect's own command, the public door to prefect.yaml
            _DEPLOY, env=environment, cwd=home, capture_output=True, text=True, timeout=_DEPLOY_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PrefectUnavailable(f"`prefect deploy --all` took longer than {_DEPLOY_S:g} s") from error
    if done.returncode != 0:
        output = without_login(done.stdout + done.stderr).strip()
        raise PrefectUnavailable(f"`prefect deploy --all` failed in {home}:\n{output}")


def _deployed(client: SyncPrefectClient, ours: AbstractSet[tuple[str, str]]) -> list[DeploymentResponse]:
    return [each for each in client.read_deployments() if (each.name, each.entrypoint) in ours]


def _keep_active(client: SyncPrefectClient, before: DeploymentResponse | None, now: DeploymentResponse) -> str:
    """Keep what somebody paused or resumed in the server, which deploying undoes, and say what it removed."""
    was = {each.slug or rule_of(each.schedule): each for each in (before.schedules if before else ())}
    changed = set[bool]()
    if before is not None and before.paused != now.paused:
        (client.pause_deployment if before.paused else client.resume_deployment)(now.id)
        changed.add(not before.paused)
    for each in now.schedules:
        active = was.pop(each.slug or rule_of(each.schedule), each).active
        if active != each.active:
            client.update_deployment_schedule(now.id, each.id, active=active)
            changed.add(active)
    kept = ("active" if active else "paused" for active in sorted(changed))
    notes = [f"{state} in the server and left so, whatever {_FILE} says" for state in kept]
    notes += [f"REMOVED {rule_of(each.schedule)}, which {_FILE} does not have" for each in was.values()]
    return "".join(f"; {note}" for note in notes)


def rule_of(schedule: SCHEDULE_TYPES) -> str:
    """Return when a schedule fires, in a few words."""
    if isinstance(schedule, CronSchedule | RRuleSchedule):
        rule = schedule.cron if isinstance(schedule, CronSchedule) else schedule.rrule
        return f"{' '.join(rule.split())} {schedule.timezone or 'UTC'}"
    return f"every {schedule.interval}" if isinstance(schedule, IntervalSchedule) else str(schedule)


ZOMBIES: Final = "tfgrpo: end runs that lost their machine"
NO_HEARTBEAT_S: Final = 180
"""Six heartbeats of the runs of ``prefect.yaml``: a server that was down for two minutes hears of a run in time."""


def _notification_block(client: SyncPrefectClient, name: str) -> UUID:
    """Return the id of the notification block ``NAME`` or ``TYPE/NAME``. Raise ``SettingsError`` that names those there are."""
    blocks = {
        f"{each.block_type.slug}/{each.name}": each.id
        for each in client.read_block_documents(include_secrets=False)
        if each.name and each.block_type and each.block_schema and "notify" in each.block_schema.capabilities
    }
    matches = [block for full, block in blocks.items() if name in {full, full.partition("/")[2]}]
    if len(matches) != 1:
        there = ", ".join(sorted(blocks)) or "there is none; `prefect block create slack-webhook` shows where to make one"
        raise SettingsError.one("--notify", repr(name), f"a notification block of the server: {there}")
    return matches[0]


def _end_zombies(client: SyncPrefectClient, deployments: Collection[UUID]) -> str:
    """Make or renew the automation that ends runs of these deployments whose process is gone, and return what it does."""
    event = {"type": "event", "posture": "Proactive", "for_each": ["prefect.resource.id"], "within": NO_HEARTBEAT_S}
    # Any news of the run will do. With a list of ends, one with a name of its own such as ``StoppedEarly`` is missed, and
    # a Retry that waits for its place after the last heartbeat is taken for dead.
    trigger = event | {"after": ["prefect.flow-run.heartbeat"], "expect": ["prefect.flow-run.*"]}
    message = f"no heartbeat for {NO_HEARTBEAT_S} s: worker lost"
    crash = {"type": "change-flow-run-state", "state": "CRASHED", "message": message}
    made = {"name": ZOMBIES, "description": "Made by `tfgrpo deploy`.", "actions": [crash]}
    paused = _renewed(client, made, trigger, deployments)
    return f"{ZOMBIES}{paused}: a run without a heartbeat for {NO_HEARTBEAT_S} s is Crashed"


def _renewed(client: SyncPrefectClient, made: dict[str, Any], trigger: dict[str, Any], deployments: Collection[UUID]) -> str:
    """Make or renew an automation, and return a mark for one that somebody has paused, which stays so."""
    ids = [f"prefect.deployment.{each}" for each in deployments]
    ours = {"prefect.resource.role": "deployment", "prefect.resource.id": ids}
    automation = AutomationCore.model_validate({**made, "trigger": {**trigger, "match_related": ours}})
    before = client.read_automations_by_name(automation.name)
    for each in before:
        client.update_automation(each.id, automation.model_copy(update={"enabled": each.enabled}))
    if not before:
        client.create_automation(automation)
    return "" if all(each.enabled for each in before) else " (PAUSED)"
