"""The sub-commands of ``tfgrpo``, imported when they are called."""

__all__ = ["options", "table"]
