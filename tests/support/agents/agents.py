"""Agents and tools of a user, which tests name as ``module:attr``."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import Field

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.tasks.shapes import Frame, Trajectory
from tfgrpo.tasks.tools.schema import priced

P = ParamSpec("P")
R = TypeVar("R")
AskAsync = Callable[[Any], Awaitable[str]]
Ask = Callable[[Any], str]

CALLS: list[str] = []
"""Calls of tools and agents, in order; a test clears it."""


async def drafts_and_corrects(prompt: str, system: str, chat: AskAsync) -> str:
    draft = await chat(prompt)
    return await chat([{"role": "user", "content": f"Correct: {draft} under {system}"}])


async def rambles(prompt: str, chat: AskAsync) -> str:
    return f"{'Let us see. ' * 400}\n{await chat(prompt)}"


def blocking(prompt: str, chat: Ask, seed: int, temperature: float, item: Item) -> str:
    CALLS.append(threading.current_thread().name)
    assert item.answer == ""
    assert isinstance(seed, int)
    assert temperature == 0.7
    return chat(prompt)


def takes_everything(**arguments: Any) -> str:
    return " ".join(sorted(arguments))


def returns_a_trajectory(prompt: str) -> Trajectory:
    return Trajectory("7", (Frame("model", "own", "7", 11, 0.5, 2.0),))


def returns_a_number(prompt: str) -> int:
    return 7


def raises(prompt: str) -> str:
    raise RuntimeError("my own bug")


def demands_more(prompt: str, database: object) -> str:
    return prompt


async def swallows_errors(chat: AskAsync) -> str:
    try:
        return await chat("hi")
    except Exception:  # noqa: BLE001
        return "never mind"


async def keeps_its_draft(chat: AskAsync) -> str:
    draft = await chat("hi")
    try:
        return await chat(f"Correct: {draft}")
    except Exception:  # noqa: BLE001
        return draft


async def wraps_errors(chat: AskAsync) -> str:
    try:
        return await chat("hi")
    except Exception as error:
        raise ValueError("wrapped") from error


def calls_after_the_end(chat: Ask) -> str:
    time.sleep(0.3)
    try:
        return chat("still there?")
    except Exception as error:
        CALLS.append(str(error))
        raise


async def sends_a_system_message(chat: AskAsync) -> str:
    return await chat([{"role": "system", "content": "mine"}, {"role": "user", "content": "hi"}])


async def uses_a_strange_role(chat: AskAsync) -> str:
    return await chat([{"role": "wizard", "content": "hi"}])


class Agent:
    async def __call__(self, prompt: str) -> str:
        return f"answer to {prompt}"


instance = Agent()


def yields(prompt: str) -> Iterator[str]:
    yield prompt


async def yields_later(prompt: str) -> AsyncIterator[str]:
    yield prompt


class Yielding:
    def __call__(self, prompt: str) -> Iterator[str]:
        yield prompt


yielding = Yielding()


@priced(0.002)
def add(left: int, right: Annotated[int, Field(description="what to add")] = 1) -> int:
    """Add two whole numbers.

    Not part of the description.
    """
    CALLS.append(f"add {left} {right}")
    return left + right


async def shout(json: str, _x: str = "!") -> dict[str, str]:
    """Shout."""
    return {"loud": json.upper() + _x}


def pass_through(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function in another one, as most decorators do."""

    @functools.wraps(function)
    def around(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return around


decorated_shout = pass_through(shout)


@pass_through
async def decorated_breaks(text: str) -> str:
    raise LookupError(f"no {text}")


@pass_through
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


def returns_a_lone_surrogate(prompt: str) -> str:
    return "half \ud83d"


def untyped(value) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the refusal of a tool without types
    return str(value)


def by_position(value: int, /) -> int:
    return value


def many(*values: int) -> int:
    return len(values)


def strange(value: threading.Thread) -> int:
    return 1


def unresolved(value: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821, UP037
    return 1


def huge(size: int) -> str:
    return "x" * size


def odd_object(size: int) -> object:
    return object()


def answers_alone(prompt: str, system: str) -> str:
    """Answer without the chat of the run, as an agent with its own client does; a function of the prompt only."""
    return f"Answer: {len(prompt) % 7}"


async def asks_and_often_fails(prompt: str, chat: AskAsync, seed: int) -> str:
    """Ask, and raise for one seed in three."""
    answer = await chat(prompt)
    if seed % 3 == 0:
        raise OSError("out of paper")
    return answer


async def asks_through_chat(prompt: str, chat: AskAsync) -> str:
    return await chat(prompt)


def proxied(prompt: str, base_url: str, api_key: str) -> str:
    return f"{base_url} {api_key}"
