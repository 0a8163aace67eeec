"""Graders behind an HTTP service."""

__all__ = ["grader"]
