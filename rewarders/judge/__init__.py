"""Language models as judges: scores, votes and pairs."""

__all__ = ["judge", "model"]
