"""Prefect: flow runs, task runners, states, artifacts, deployments and secrets."""

__all__ = [
    "artifacts",
    "dask_workers",
    "deployed",
    "deploying",
    "interrupts",
    "local_run",
    "quiet",
    "request",
    "secrets",
    "server",
    "states",
    "task_runner",
]
