"""Means and intervals, sequential evidence, effects of lessons."""

__all__ = ["effects", "sequential", "summary"]
