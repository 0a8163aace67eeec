"""Read answers, numbers, references, columns of them, and fenced blocks."""

__all__ = [
    "answers",
    "choices",
    "columns",
    "doubts",
    "lexer",
    "moments",
    "numbers",
    "references",
    "rules",
    "spelling",
    "words",
]
