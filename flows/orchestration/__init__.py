"""Prefect: flow runs, task runners, states, artifacts and deployments."""

__all__ = ["deployed", "interrupts", "local_server", "request", "second_signal"]
