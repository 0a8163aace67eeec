"""Prefect: flow runs, task runners, states, artifacts and deployments."""

__all__ = [
    "artifacts",
    "dask_workers",
    "deployed",
    "deploying",
    "interrupts",
    "local_run",
    "quiet",
    "request",
    "server",
    "task_runner",
]
