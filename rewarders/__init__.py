"""Score rollouts: ground truth, relative rank, graders, judges and composites; advantages and statistics."""

__all__ = [
    "advantages",
    "base",
    "composite",
    "faults",
    "graders",
    "gt",
    "importing",
    "judge",
    "options",
    "powl",
    "registry",
    "repairing",
    "scoring",
    "statistics",
    "text",
    "threads",
]
