"""Wait until something has happened: a busy machine is slow, not wrong."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 60.0


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until something holds, while the event loop goes on."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)
