"""Load graders from files and modules of the user."""

__all__ = ["files", "trial"]
