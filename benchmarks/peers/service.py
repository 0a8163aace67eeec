"""What an optimizer of another package needs of the simulated service: attempts, their rewards, and reflections."""

from __future__ import annotations

import argparse
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tfgrpo.stores.json_values import json_of
from tfgrpo.tasks.models.simulated.puzzle import World, open_world

LEADS: Final = {"do": "- Do: ", "avoid": "- Avoid: "}
"""As lessons stand in the prompts of this project."""
Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an item."""

    item: Item
    output: str
    reward: float


def reflection_question(attempts: Sequence[Attempt]) -> str:
    """Return the question that the reflecting role of the service answers, as the packs of this project ask it."""
    shown = [
        {"label": chr(ord("A") + place), "reward": one.reward, "transcript": one.output} for place, one in enumerate(attempts)
    ]
    return json.dumps({"task": attempts[0].item["prompt"], "attempts": shown, "max_lessons": 1, "max_words": 32})


def lesson_of(reply: str) -> str:
    """Return the lesson of a reflection as a line of a prompt; empty when there is none."""
    lessons = json_of(reply)["lessons"]
    return "".join(LEADS[lesson["polarity"]] + lesson["text"] for lesson in lessons[:1])


def as_served(system: str) -> str:
    """Return a system prompt with its lessons in the block in which prompts of this project have them.

    The simulated actor takes advice from nowhere else.
    """
    lines = system.splitlines()
    lessons = [line for line in lines if line.startswith(tuple(LEADS.values()))]
    if not lessons or "<lessons>" in lines:
        return system
    text = "\n".join(line for line in lines if line not in lessons)
    return "\n".join([text.rstrip(), "", "<lessons>", *lessons, "</lessons>"])


@dataclass
class Service:
    """The simulated service over HTTP; every request is counted."""

    url: str
    temperature: float = 0.7
    world: World = field(default_factory=lambda: open_world("arithmetic"))
    client: httpx.Client = field(default_factory=httpx.Client)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    calls: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def attempt(self, system: str, item: Item) -> Attempt:
        """Attempt an item under a system prompt."""
        output = self._ask([{"role": "system", "content": as_served(system)}, {"role": "user", "content": item["prompt"]}])
        return Attempt(item, output, self.reward(item, output))

    def reflect(self, attempts: Sequence[Attempt]) -> str:
        """Return a lesson from attempts, as a line of a prompt; empty when there is none."""
        return lesson_of(self._ask([{"role": "user", "content": reflection_question(attempts)}]))

    def reward(self, item: Item, output: str) -> float:
        """Return 1.0 for the right answer, else 0.0."""
        puzzle = self.world.recognise(item["prompt"])
        return float(puzzle is not None and puzzle.agrees(output))

    def _ask(self, messages: Sequence[Mapping[str, str]]) -> str:
        with self._lock:
            self.calls += 1
            number = next(self._numbers)
        body = {"model": "simulated", "messages": messages, "temperature": self.temperature, "seed": number}
        reply = self.client.post(f"{self.url}/chat/completions", json=body, timeout=30.0).raise_for_status().json()
        content: str = reply["choices"][0]["message"]["content"]
        return content


@dataclass(frozen=True, slots=True)
class Order:
    """What an optimizer is asked to do."""

    url: str
    items: Sequence[Item]
    """Items to learn on."""
    system: str
    """The system prompt to begin with."""
    calls: int
    """Requests that it may make."""
    seed: int


def read_order() -> Order:
    """Return the order of the command line: a file with one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("order", type=Path)
    return Order(**json.loads(parser.parse_args().order.read_text(encoding="utf-8")))
