"""A learning run, step by step: prepare, open, learn, close; resume and replay."""

__all__ = [
    "credit",
    "damage",
    "execution",
    "exit_status",
    "index",
    "judging",
    "lessons",
    "loop",
    "notify",
    "open",
    "prepare",
    "trial",
]
