"""Read answers, numbers and fenced blocks from completions."""

__all__ = ["answers", "fences"]
