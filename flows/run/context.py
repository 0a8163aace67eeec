"""Describe a planned run or selection to the processes that work on it."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.flows.console.version import installed_version
from tfgrpo.flows.orchestration.secrets import read_api_key
from tfgrpo.pipelines.plan.plan import BasePlan
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
        ),
    )
