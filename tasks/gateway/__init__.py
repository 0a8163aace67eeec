"""Serve the endpoint to agents that call it themselves, so that their calls are taught, measured, bounded and journalled.

The path of one call: ``server`` checks who calls; ``session`` adds the lessons, and records what was seen for the attempt;
``call`` answers from the journal, or reserves, forwards, passes on and settles. ``dialects`` are the protocols. ``live``
serves clients in production.
"""

__all__ = ["call", "dialects", "live", "server", "session"]
