"""Read answers, numbers and references, and fenced blocks, and compare them by tables of rules."""

__all__ = ["answers", "choices", "lexer", "moments", "numbers", "references", "rules", "spelling", "words"]
