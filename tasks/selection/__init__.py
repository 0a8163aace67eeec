"""Best-of-K selection: sample candidates, repair, score and choose."""

__all__ = ["history", "round"]
