"""Serve the endpoint to agents that call it themselves, so that their calls are taught, measured, bounded and journalled.

The path of one call: ``server`` checks who calls; ``outgoing`` adds the lessons with ``splice``; ``call`` answers from the
journal, or reserves, forwards and passes on (``relay``) and settles; ``session`` records what was seen for the attempt.
``dialects`` are the protocols. ``live`` serves clients in production.
"""

__all__ = ["dialects", "live", "relay", "server", "session"]
