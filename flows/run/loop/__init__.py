"""The learning loop of an open run: epochs, batches of groups, curation, sweep, gate and promotion."""

__all__ = ["books", "knowledge", "learn", "measuring", "promotion", "sealed", "session"]
