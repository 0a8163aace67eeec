"""Rewarders for process models."""

__all__ = ["answers", "rewarders"]
