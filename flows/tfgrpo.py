"""The main job as a module: ``python -m flows.tfgrpo …`` is ``tfgrpo run …``. The flow itself is in ``learning_flow``."""

from __future__ import annotations

import sys

from tfgrpo.flows.cli import entry_point

if __name__ == "__main__":
    entry_point(["run", *sys.argv[1:]])
