"""The declaration of a run: settings, datasets, data mixes, the plan with its forecast, and the data server."""

__all__ = ["datasets", "mix", "plan", "server", "settings"]
