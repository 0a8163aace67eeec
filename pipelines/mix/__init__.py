"""Staged data mixes in Kolibrify's form: configuration, sampling, graders."""

__all__ = ["config", "items"]
