"""Actors: the protocol, chat, tools, and any Python callable. A run imports the one that it uses."""

__all__ = ["base", "callable", "recorded", "registry", "tools"]
