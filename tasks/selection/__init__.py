"""Best of K: ask, score, choose and remember what helped."""

__all__ = ["formats", "hints", "round", "shapes"]
