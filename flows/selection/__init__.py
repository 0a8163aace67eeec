"""Best-of-K selection for one request."""

__all__ = ["select"]
