"""Serve the endpoint to clients in production: with the lessons in force, a share held out, counted by arm, kept as items."""

__all__ = ["server", "traffic"]
