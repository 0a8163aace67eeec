"""Prefect: flow runs, task runners, states, artifacts and deployments."""

__all__ = ["artifacts", "deployed", "interrupts", "local_server", "request", "second_signal"]
