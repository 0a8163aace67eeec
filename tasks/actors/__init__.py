"""Actors: chat, tools, and any Python callable. A run imports the one that it uses."""

__all__ = ["callable", "registry"]
