"""The learning loop of an open run: epochs, batches of groups on two sides, credit, curation, sweep, decision."""

__all__ = ["books", "learn"]
