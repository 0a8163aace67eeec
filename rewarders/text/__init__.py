"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = ["answers", "columns", "json_values", "numbers", "references", "words"]
