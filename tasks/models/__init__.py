"""Call language models.

The path of one call: ``base.ChatModel.complete`` is the interface; ``journaled`` chooses the model of the call's role and
answers from the journal or passes the call on; ``chat`` waits for a slot, reserves budget, encodes the request (``wire``),
sends it (``transport`` to an ``endpoint``), reads the reply (``wire``) or the refusal (``retry``), settles the budget, and
repeats failed attempts. ``preflight`` checks an endpoint before a run.
"""

__all__ = ["base", "chat", "endpoint", "journaled", "preflight", "retry", "simulated", "transport", "wire"]
