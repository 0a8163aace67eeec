"""Score rollouts: ground truth, relative rank, graders, judges and composites; advantages and statistics."""

__all__ = [
    "advantages",
    "calling",
    "composite",
    "graders",
    "gt",
    "importing",
    "judge",
    "options",
    "powl",
    "registry",
    "runner",
    "scorer",
    "statistics",
    "text",
    "threads",
]
