"""Means and intervals, sequential evidence and its power, effects of lessons."""

__all__ = ["credit", "summary"]
