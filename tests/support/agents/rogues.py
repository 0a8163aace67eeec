"""Misbehaving agents and tools, which tests name as ``module:attr``: they exit, hang, cancel and swallow."""

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable

BEGUN = threading.Event()
RELEASED = threading.Event()
SWALLOWED: list[str] = []


async def exits_the_process(prompt: str) -> str:
    sys.exit(3)


def exits_from_a_thread(prompt: str) -> str:
    sys.exit(3)


async def exits_from_a_task(prompt: str) -> str:
    async def leave() -> None:
        sys.exit(3)

    task = asyncio.ensure_future(leave())
    await asyncio.sleep(0.05)
    return f"task done: {task.done()}"


async def interrupts(prompt: str) -> str:
    raise KeyboardInterrupt


async def cancels_itself(prompt: str) -> str:
    raise asyncio.CancelledError


async def swallows_cancellation(prompt: str) -> str:
    BEGUN.set()
    while not RELEASED.is_set():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            SWALLOWED.append("once")
    return "too late"


async def answers_when_cancelled(prompt: str) -> str:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        return "7"
    return "not cancelled"


async def closes_itself(prompt: str) -> str:
    raise GeneratorExit


def closes_itself_in_a_thread(prompt: str) -> str:
    raise GeneratorExit


async def closes_itself_from_a_task(prompt: str) -> str:
    return await asyncio.create_task(closes_itself(prompt))


async def fails_in_a_task_group(prompt: str) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(raises_at_length())
    return "7"


async def raises_at_length() -> None:
    raise ValueError("too long: " + "x" * 1_000_000)


class LeavesWhenShown(BaseException):
    def __str__(self) -> str:
        raise SystemExit(3)


async def leaves_when_shown(prompt: str) -> str:
    raise LeavesWhenShown


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


async def raises_what_cannot_be_shown(prompt: str) -> str:
    raise NoText


def tool_that_exits(text: str) -> str:
    sys.exit(text)


async def tool_that_exits_asynchronously(text: str) -> str:
    raise SystemExit(text)


async def tool_that_cancels_itself(text: str) -> str:
    raise asyncio.CancelledError


def tool_that_raises_what_cannot_be_shown(text: str) -> str:
    raise NoText


async def tool_that_hangs(text: str) -> str:
    await asyncio.sleep(60)
    return text


def measure(text: str) -> str:
    """Measure."""
    return text


measure.__name__ = "größe"


def a_name_that_is_far_longer_than_any_vendor_takes_for_the_name_of_a_tool() -> str:
    """Return an empty text."""
    return ""


def moves_away(prompt: str, chat: Callable[[str], str]) -> str:
    os.chdir(tempfile.gettempdir())
    return chat(prompt)
