"""The steps of a run: rollouts, groups, learning, evaluation and gate, and the actors and models they use."""

__all__ = [
    "actors",
    "collector",
    "evaluation",
    "exports",
    "gate",
    "gateway",
    "group",
    "learning",
    "models",
    "processes",
    "rollout",
    "runtime",
    "selection",
    "shapes",
    "tools",
]
