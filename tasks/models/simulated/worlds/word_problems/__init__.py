"""Templates of word problems."""

__all__ = ["double", "problem", "single", "solution", "template"]
