"""Everything recorded, with its shapes: experiences, runs, ledger, telemetry and batches of rollouts."""

__all__ = [
    "batch",
    "canonical",
    "clock",
    "errors",
    "experiences",
    "files",
    "frozen_json",
    "ledger",
    "metrics",
    "numeric",
    "outcomes",
    "packaged",
    "runs",
    "telemetry",
    "text",
]
