"""Apply automations to our deployments: the one that ends runs whose machine is gone, and those that notify by a block."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import yaml
from prefect.automations import AutomationCore, ChangeFlowRunState, EventTrigger, Posture, ResourceSpecification
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType

from tfgrpo.stores.errors import SettingsError

_FILE: Final = Path("ops", "automations.yaml")
ZOMBIES: Final = "tfgrpo: end runs that lost their machine"
NO_HEARTBEAT_S: Final = 180
"""Six heartbeats of the runs of ``prefect.yaml``: a server that was down for two minutes hears of a run in time."""


def notification_block(client: SyncPrefectClient, name: str) -> UUID:
    """Return the id of the notification block ``NAME`` or ``TYPE/NAME``. Raise ``SettingsError`` that names those there are."""
    known = {
        f"{each.block_type.slug}/{each.name}": each.id
        for each in client.read_block_documents(include_secrets=False)
        if each.name and each.block_type and each.block_schema and "notify" in each.block_schema.capabilities
    }
    found = [block for full, block in known.items() if name in {full, full.partition("/")[2]}]
    if len(found) != 1:
        there = (
            ", ".join(sorted(known)) or "there is none; `prefect block create slack-webhook` shows where to make one"
        )
        raise SettingsError.one("--notify", repr(name), f"a notification block of the server: {there}")
    return found[0]


def declared_automations(home: Path) -> list[dict[str, Any]]:
    """Return the automations of a checkout. Raise ``SettingsError`` for a file that is none."""
    try:
        declared: list[dict[str, Any]] = yaml.safe_load((home / _FILE).read_text(encoding="utf-8"))
        return [{name: each[name] for name in ("name", "trigger", "subject", "body")} for each in declared]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:  # YAML of any shape
        given = f"{str(home / _FILE)!r} ({type(error).__name__})"
        raise SettingsError.one("--notify", given, "the file of a checkout of tfgrpo") from error


def apply_automations(
    client: SyncPrefectClient, declared: Collection[dict[str, Any]], block: UUID, deployments: Collection[UUID]
) -> Iterator[str]:
    """Make or renew the automations for these deployments; yield each by its name. One that is paused stays so."""
    ours = {
        "prefect.resource.role": "deployment",
        "prefect.resource.id": [f"prefect.deployment.{each}" for each in deployments],
    }
    for each in declared:
        action = {
            "type": "send-notification",
            "block_document_id": block,
            "subject": each["subject"],
            "body": each["body"],
        }
        automation = AutomationCore.model_validate(
            {
                "name": each["name"],
                "description": "Made by `tfgrpo deploy --notify`.",
                "trigger": {**each["trigger"], "match_related": ours},
                "actions": [action],
            }
        )
        yield f"{each['name']}{_renewed(client, automation)}"


def end_zombies(client: SyncPrefectClient, deployments: Sequence[UUID]) -> str:
    """Make or renew the automation that ends runs of these deployments whose process is gone, and return what it does."""
    ids = [f"prefect.deployment.{each}" for each in deployments]
    trigger = EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.heartbeat"},
        # Any news of the run will do. With a list of ends, one with a name of its own such as ``StoppedEarly`` is missed, and
        # a Retry that waits for its place after the last heartbeat is taken for dead.
        expect={"prefect.flow-run.*"},
        match_related=ResourceSpecification({"prefect.resource.role": "deployment", "prefect.resource.id": ids}),
        for_each={"prefect.resource.id"},
        within=timedelta(seconds=NO_HEARTBEAT_S),
    )
    crash = ChangeFlowRunState(state=StateType.CRASHED, message=f"no heartbeat for {NO_HEARTBEAT_S} s: worker lost")
    automation = AutomationCore(name=ZOMBIES, description="Made by `tfgrpo deploy`.", trigger=trigger, actions=[crash])
    paused = _renewed(client, automation)
    return f"{ZOMBIES}{paused}: a run without a heartbeat for {NO_HEARTBEAT_S} s is Crashed"


def _renewed(client: SyncPrefectClient, automation: AutomationCore) -> str:
    """Make or renew an automation, and return a mark for one that somebody has paused, which stays so."""
    before = client.read_automations_by_name(automation.name)
    for known in before:
        client.update_automation(known.id, automation.model_copy(update={"enabled": known.enabled}))
    if not before:
        client.create_automation(automation)
    return "" if all(known.enabled for known in before) else " (PAUSED)"
