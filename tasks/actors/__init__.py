"""Actors: chat, tools, and agents of the user's own: a callable, a command or an HTTP service."""

__all__ = ["own", "registry"]
