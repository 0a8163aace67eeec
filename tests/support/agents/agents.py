"""Agents and tools that tests name as ``module:attr``."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from tfgrpo.tasks.shapes import Frame, Trajectory
from tfgrpo.tasks.tools.schema import priced

CALLS: list[str] = []


async def drafts_and_corrects(prompt, system, chat):
    draft = await chat(prompt)
    return await chat([{"role": "user", "content": f"Correct: {draft} under {system}"}])


def blocking(prompt, chat, seed, temperature, item):
    CALLS.append(threading.current_thread().name)
    assert item.answer == ""
    assert isinstance(seed, int)
    assert temperature == 0.7
    return chat(prompt)


def takes_everything(**given):
    return " ".join(sorted(given))


def returns_a_trajectory(prompt):
    return Trajectory("7", (Frame("model", "own", "7", 11, 0.5, 2.0),))


def returns_a_number(prompt):
    return 7


def raises(prompt):
    raise RuntimeError("my own bug")


def demands_more(prompt, database):
    return prompt


async def swallows_errors(chat):
    try:
        return await chat("hi")
    except Exception:  # noqa: BLE001
        return "never mind"


async def wraps_errors(chat):
    try:
        return await chat("hi")
    except Exception as error:
        raise ValueError("wrapped") from error


def goes_on_after_the_end(chat):
    time.sleep(0.3)
    try:
        return chat("still there?")
    except Exception as error:
        CALLS.append(str(error))
        raise


async def brings_its_own_system_text(chat):
    return await chat([{"role": "system", "content": "mine"}, {"role": "user", "content": "hi"}])


async def uses_a_strange_role(chat):
    return await chat([{"role": "wizard", "content": "hi"}])


class Agent:
    async def __call__(self, prompt):
        return f"answer to {prompt}"


instance = Agent()


def yields(prompt):
    yield prompt


async def yields_later(prompt):
    yield prompt


class Yielding:
    def __call__(self, prompt):
        yield prompt


yielding = Yielding()


@priced(0.002)
def add(left: int, right: Annotated[int, Field(description="what to add")] = 1) -> int:
    """Add two whole numbers.

    Details nobody needs.
    """
    CALLS.append(f"add {left} {right}")
    return left + right


async def shout(json: str, _x: str = "!") -> dict[str, str]:
    """Shout."""
    return {"loud": json.upper() + _x}


def plainly(function):
    """A decorator as most are: a function around whatever it decorates."""

    @functools.wraps(function)
    def around(*args, **kwargs):
        return function(*args, **kwargs)

    return around


decorated_shout = plainly(shout)


@plainly
async def decorated_breaks(text: str) -> str:
    raise LookupError(f"no {text}")


@plainly
async def decorated_sleeps(text: str) -> str:
    try:
        await asyncio.sleep(60)
    finally:
        CALLS.append(f"{text} was cancelled")
    return text


def breaks(text: str) -> str:
    raise LookupError(f"no {text}")


async def breaks_later(text: str) -> str:
    raise LookupError(f"no {text}")


def no_schema(value: Callable[[], int]) -> int:
    return 1


def echo(text: str) -> str:
    return text


def says_half_a_pair(prompt):
    return "half \ud83d"


def untyped(value) -> str:
    return value


def by_position(value: int, /) -> int:
    return value


def many(*values: int) -> int:
    return len(values)


def strange(value: threading.Thread) -> int:
    return 1


def unresolved(value: "Nowhere") -> int:  # noqa: F821, UP037
    return 1


def huge(size: int) -> str:
    return "x" * size


def odd_object(size: int) -> object:
    return object()


def answers_alone(prompt, system):
    """Stands for an agent that calls models by itself: the answer depends on the question alone."""
    return f"Answer: {len(prompt) % 7}"


async def asks_through_chat(prompt, chat):
    return await chat(prompt)
