"""Estimates, intervals and the confidence sequence of the gate."""

__all__ = ["sequential", "summary"]
