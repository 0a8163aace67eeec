"""Best of K for one request."""

__all__ = ["context", "request", "select"]
