"""Serve the endpoint to clients in production: with the promoted lessons, a share held out, counted by arm, kept as items."""

__all__ = ["keeping", "server", "traffic"]
