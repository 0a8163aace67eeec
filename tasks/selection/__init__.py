"""Best-of-K selection: sample candidates, repair, score and choose."""

__all__ = ["formats", "history", "round"]
