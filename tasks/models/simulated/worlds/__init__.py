"""Worlds of the simulated model: items, right answers and typical mistakes, mostly read from ``<world>.yaml``."""

__all__ = ["puzzle"]
