"""Call language models.

The path of one call: ``base.ChatModel.complete`` is the interface; ``chat`` chooses the model of the call's role, answers
from the journal, or waits for a slot, reserves budget, encodes the request (``wire``), sends it (``transport`` to an
``endpoint``), reads the reply (``wire``) or the refusal (``retry``), settles the budget, and repeats failed attempts. An
endpoint is checked before a run.
"""

__all__ = ["base", "chat", "endpoint", "retry", "simulated", "transport", "wire"]
