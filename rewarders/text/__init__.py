"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = ["answers", "choices", "numbers", "references", "words"]
