"""Lessons as files for other agents: the forms, rendered and read, and screening before they are stored."""

__all__ = ["forms", "screening"]
