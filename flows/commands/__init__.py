"""One module per command; each has ``add`` (its arguments) and ``execute`` (its work, returning the exit code)."""
