"""Lessons as files for other agents: the forms, reading them back, and screening before they are stored."""

__all__ = ["forms", "reading", "screening"]
