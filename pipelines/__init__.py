"""A run as declared: settings, datasets, data mixes, the plan with its forecast, and the data server."""

__all__ = ["datasets", "loopback", "mix", "parts", "plan", "problems", "server", "settings"]
