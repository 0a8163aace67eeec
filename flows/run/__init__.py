"""A learning run, step by step: prepare, open, learn, close; resume and replay."""

__all__ = ["close", "damage", "execution", "index", "lessons", "loop", "prepare", "trial"]
