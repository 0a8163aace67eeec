"""What people see on the terminal while a command works."""

__all__ = ["console", "observer", "parsing", "powl_input", "progress", "release", "tally", "writable"]
