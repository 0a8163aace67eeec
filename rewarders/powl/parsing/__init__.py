"""Read process models from text and JSON."""

__all__ = ["json_parser", "text"]
