"""``python -m tfgrpo``: the command ``tfgrpo``."""

from __future__ import annotations

import sys

from tfgrpo.flows.cli import main

if __name__ == "__main__":
    sys.exit(main())
