"""Apply the automations of ``ops/automations.yaml``, which notify of the runs of our deployments by a notification block."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import AutomationCore

from tfgrpo.stores.errors import SettingsError

_FILE: Final = Path("ops", "automations.yaml")


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
        before = client.read_automations_by_name(each["name"])
        for known in before:
            client.update_automation(known.id, automation.model_copy(update={"enabled": known.enabled}))
        if not before:
            client.create_automation(automation)
        paused = any(not known.enabled for known in before)
        yield f"{each['name']}{' (PAUSED)' if paused else ''}"
