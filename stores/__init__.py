"""Everything recorded, with its shapes: experiences, runs, ledger, telemetry and batches of rollouts."""

__all__ = [
    "batch",
    "clock",
    "errors",
    "experiences",
    "files",
    "json_values",
    "ledger",
    "metrics",
    "numeric",
    "outcomes",
    "packaged",
    "runs",
    "telemetry",
    "text",
]
