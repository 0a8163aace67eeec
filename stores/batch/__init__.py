"""Batches of rollout groups as frozen arrays, with their files."""

__all__ = ["batch", "lines", "shapes"]
