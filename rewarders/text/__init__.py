"""Read answers, numbers and fenced blocks from completions."""

__all__ = ["answered_number", "answers", "completions", "fences", "number_text"]
