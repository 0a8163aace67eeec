"""Best of K for one request."""

__all__ = ["request", "select"]
