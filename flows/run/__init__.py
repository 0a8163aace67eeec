"""A learning run, step by step: prepare, open, learn, close; resume and replay."""

__all__ = ["damage", "execution", "index", "judging", "lessons", "loop", "notify", "open", "prepare", "trial"]
