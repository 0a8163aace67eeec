"""The experience store of a task: stamped records, the library in force, promotions."""

__all__ = ["accounts", "library", "measured", "record", "retrieval", "store", "tests"]
