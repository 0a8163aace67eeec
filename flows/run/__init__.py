"""A learning run, step by step: prepare, open, learn, close; resume and replay."""

__all__ = [
    "champion",
    "effects",
    "execution",
    "exit_status",
    "index",
    "judging",
    "loop",
    "prepare",
    "promoted",
    "resume",
    "trial",
]
