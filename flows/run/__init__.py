"""A learning run, step by step: prepare, open, learn, promote, close; resume and replay."""

__all__ = ["champion", "execution", "exit_status", "index", "prepare", "session"]
