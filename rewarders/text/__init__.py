"""Read answers, numbers and references, and fenced blocks, and compare them by tables of rules."""

__all__ = [
    "answers",
    "base",
    "choices",
    "formulas",
    "labels",
    "lexer",
    "moments",
    "numbers",
    "options",
    "quantities",
    "references",
    "rules",
    "spelling",
    "words",
]
