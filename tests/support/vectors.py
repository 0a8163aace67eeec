"""Sample cases with known answers, as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

VECTORS: Final = Path(__file__).parents[1] / "vectors"
