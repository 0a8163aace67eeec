"""Actors: chat, tools, and agents of the user's own: a callable, a command or an HTTP service. A run imports one of these."""

__all__ = ["own", "registry"]
