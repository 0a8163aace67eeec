"""Defaults that keep Prefect quiet and offline; the environment overrides them.

Must be called before Prefect is imported: it reads its settings once.
"""

from __future__ import annotations

from collections.abc import MutableMapping

PREFECT_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    # An interrupt would be told once for every group under way; a group that crashes for other reasons fails the flow.
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
    # The run reports its own end; what keeps Prefect from taking it is one warning.
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "CRITICAL",
    # One error of a page for every event that a server that is gone does not take.
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # The first start of the embedded server creates its database, 12 s on a small machine and more on a busy one.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Prefect's own spans would interleave with ours as orphan roots; see docs/telemetry.md.
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    # Dask tells of every connection it opens and closes.
    "DASK_LOGGING__DISTRIBUTED": "error",
}


def quiet_prefect(environment: MutableMapping[str, str]) -> None:
    """Set each default that the environment does not set itself."""
    for name, value in PREFECT_DEFAULTS.items():
        environment.setdefault(name, value)
