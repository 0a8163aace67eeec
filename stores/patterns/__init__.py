"""Structures that best-of-K selections tried, and their rewards."""

__all__ = ["memory", "stats"]
