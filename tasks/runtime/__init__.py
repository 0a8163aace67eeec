"""What the steps of a process share: event loop, clients, limits, scrubbing."""

__all__ = [
    "assembly",
    "containment",
    "context",
    "host",
    "judging",
    "observing",
    "runtime",
    "scrubbing",
]
