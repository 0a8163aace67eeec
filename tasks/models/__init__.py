"""Call language models: one protocol, a client for OpenAI-compatible endpoints, the journal in front of it."""

__all__ = [
    "base",
    "chat",
    "endpoint",
    "journaled",
    "limiter",
    "preflight",
    "replies",
    "retry",
    "simulated",
    "structured",
    "transport",
    "wire",
]
