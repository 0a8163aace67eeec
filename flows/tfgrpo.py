"""The main job as a module: ``python -m flows.tfgrpo …`` is ``tfgrpo run …``. The flow itself is in ``learning_flow``."""

from __future__ import annotations

import sys

from flows.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
