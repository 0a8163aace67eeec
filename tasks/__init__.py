"""The steps of a run: rollouts, groups, learning, the decision, and the actors and models they use."""

__all__ = [
    "actors", "collector", "decision", "exports", "gateway", "group", "learning", "models", "processes", "recorded", "rollout",
    "runtime", "selection", "shapes", "tools",
]  # fmt: skip
