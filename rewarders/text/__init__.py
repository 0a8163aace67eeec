"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = ["answers", "choices", "columns", "moments", "numbers", "references", "rules", "words"]
