"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = ["answers", "choices", "columns", "lexer", "moments", "numbers", "references", "rules", "words"]
