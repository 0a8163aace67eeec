"""Everything recorded, with its shapes: experiences, runs, ledger, telemetry and batches of rollouts."""

__all__ = [
    "batch",
    "canonical",
    "clock",
    "counted",
    "errors",
    "experiences",
    "files",
    "frozen_json",
    "group_terms",
    "identifiers",
    "ledger",
    "numbers",
    "outcomes",
    "patterns",
    "percentiles",
    "plain",
    "runs",
    "seeds",
    "telemetry",
    "words",
]
