"""The experience store of a task: stamped records, credit of each lesson, decisions on what is in force."""

__all__ = ["credit", "decisions", "store"]
