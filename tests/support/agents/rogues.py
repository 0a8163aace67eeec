"""Agents and tools that behave as badly as user code can, named by tests as ``module:attr``."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

RELEASED = threading.Event()
SWALLOWED: list[str] = []


async def leaves_the_process(prompt):
    sys.exit(3)


def leaves_the_process_from_a_thread(prompt):
    sys.exit(3)


async def leaves_from_a_task_of_its_own(prompt):
    async def leave():
        sys.exit(3)

    task = asyncio.ensure_future(leave())
    await asyncio.sleep(0.05)
    return f"task done: {task.done()}"


async def interrupts(prompt):
    raise KeyboardInterrupt


async def cancels_itself(prompt):
    raise asyncio.CancelledError


async def swallows_cancellation(prompt):
    while not RELEASED.is_set():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            SWALLOWED.append("once")
    return "too late"


async def answers_when_cancelled(prompt):
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        return "7"


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


async def raises_what_cannot_be_shown(prompt):
    raise NoText


def blocks_the_loop_for(seconds):
    async def agent(prompt):
        time.sleep(seconds)  # noqa: ASYNC251 - what it is for
        return "7"

    return agent


def tool_that_leaves(text: str) -> str:
    sys.exit(text)


async def tool_that_leaves_asynchronously(text: str) -> str:
    raise SystemExit(text)


async def tool_that_cancels_itself(text: str) -> str:
    raise asyncio.CancelledError


def tool_that_cannot_say_why(text: str) -> str:
    raise NoText


async def tool_that_hangs(text: str) -> str:
    await asyncio.sleep(60)
    return text


def measure(text: str) -> str:
    """Measure."""
    return text


measure.__name__ = "größe"


def a_name_that_is_far_longer_than_any_vendor_takes_for_the_name_of_a_tool() -> str:
    """Nothing."""
    return ""
