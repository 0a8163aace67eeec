"""Check identifiers that become file names, by one strict rule for every platform."""

from __future__ import annotations

import re

LONGEST = 100
"""Characters of an identifier."""
_SHAPE = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
ACCEPTED = f"1 to {LONGEST} of A-Z a-z 0-9 . _ -, starting with a letter or digit, not ending in a dot, no device name"


def check_identifier(value: str) -> str:
    """Return the value when it is safe as a file name on every platform; raise ``ValueError`` otherwise."""
    if not _SHAPE.fullmatch(value) or value.endswith(".") or ".." in value or _RESERVED.fullmatch(value):
        raise ValueError(f"{value[:60]!r} is not an identifier; accepted: {ACCEPTED}")
    return value
