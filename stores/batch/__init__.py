"""Batches of rollout groups as frozen arrays, with their files."""

__all__ = ["arrow", "batch", "lines", "shapes"]
