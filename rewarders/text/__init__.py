"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = ["answers", "json_values", "numbers", "references", "words"]
