"""Call language models.

The path of one call: ``base.ChatModel.complete`` is the interface; ``journaled`` chooses the model of the call's role and
answers from the journal or passes the call on; ``chat`` waits for a slot, reserves budget, encodes the request (``wire``),
sends it (``transport`` to an ``endpoint``), reads the reply (``wire``) or the refusal (``retry``), settles the budget, and
repeats failed attempts.
``arrival`` hands over the chunks of a stream for the gateway. ``structured`` turns text into checked values, ``preflight``
checks an endpoint before a run, ``ping`` asks it for a token.
"""

__all__ = [
    "arrival",
    "base",
    "chat",
    "endpoint",
    "journaled",
    "ping",
    "preflight",
    "retry",
    "simulated",
    "structured",
    "transport",
    "wire",
]
