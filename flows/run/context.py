"""Describe a planned run or selection to the processes that work on it, and read the API key in these."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx

from tfgrpo.flows.console.environment import installed_version
from tfgrpo.pipelines.plan.plan import BasePlan
from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.telemetry.setup import TelemetryOptions
from tfgrpo.tasks.runtime.runtime import RunContext


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
        rollout_model=plan.models.name,
        learning_model=plan.models.reflection_name,
        base_url=plan.models.base_url,
        telemetry=TelemetryOptions(
            service_version=installed_version(),
            run_id=run_id,
            task_id=task_id,
            genai_metrics=telemetry.genai_metrics,
            content=telemetry.content,
            shutdown_s=telemetry.shutdown_s,
            several_processes=plan.settings.task_runner != "threads",
        ),
    )


_ACCEPTED = "the name of a Prefect Secret block; `prefect block ls` lists those there are"


def read_api_key(model: ModelSettings) -> str | None:
    """Return the key of the Prefect Secret block that the settings name, else of the environment; None without one.

    The process that uses the key reads it; it is never part of a setting, a context or a record. Raises ``SettingsError``
    when the named block cannot be read.
    """
    if model.api_key_secret is None:
        return os.environ.get(model.api_key_env) or None
    # Only endpoints with a Secret block pay for importing Prefect here.
    from prefect.blocks.system import Secret  # noqa: PLC0415
    from prefect.exceptions import PrefectException  # noqa: PLC0415

    async def load() -> object:
        block: Secret[Any] = await Secret.aload(name)
        return block.get()

    name = model.api_key_secret
    try:
        value = asyncio.run(load())
    except ValueError:
        # Prefect's own text for a missing block; nothing of it is repeated, because the key may stand where the name should.
        raise SettingsError.one("model.api_key_secret", "no such block", _ACCEPTED) from None
    except (PrefectException, httpx.HTTPError, OSError, RuntimeError) as error:
        given = f"no answer from Prefect ({type(error).__name__})"
        raise SettingsError.one("model.api_key_secret", given, "a Prefect server that can be reached") from None
    return str(value) if value else None
