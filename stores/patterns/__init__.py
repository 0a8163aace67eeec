"""Running averages of the hints of best-of-K selection."""

__all__ = ["memory", "stats"]
