"""``python -m tfgrpo``: the command ``tfgrpo``."""

from __future__ import annotations

from tfgrpo.flows.cli import entry_point

if __name__ == "__main__":
    entry_point()
