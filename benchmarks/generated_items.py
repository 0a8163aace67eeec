"""Generate items of the simulated worlds: more than are shipped, for benchmarks and tests, and the shipped ones.

The data files of these worlds are ``data_file`` of each and never edited by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, combinations
from typing import Any, Final

from tfgrpo.stores.json_values import stream
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.tasks.models.simulated.puzzle import Solver, World, answer_of, open_world

LEDGER: Final = "benchmarks.ledger.world:WORLD"
POWL: Final = "benchmarks.powl.world:WORLD"
"""Worlds of this checkout, as ``simulated.world`` names them."""
FILES: Final[Mapping[str, tuple[int, str]]] = {
    "arithmetic": (400, "pipelines/data/arithmetic.jsonl"),
    "unlearnable": (200, "pipelines/data/unlearnable.jsonl"),
    LEDGER: (200, "benchmarks/ledger/items.jsonl"),
}
"""Worlds with how many items their file holds, generated with seed 0, and the file."""

_WORDS: Final = packaged_yaml(__file__, "words.yaml")
_MOST_PITFALLS = 2
_MIN_GAP = Decimal("0.05")
_MIN_GAP_SHARE = Decimal("0.0002")
"""Share of the right answer; together wider than any sensible tolerance of a grader."""


_DRAWS: Final[Mapping[str, Callable[..., str]]] = {
    "name": lambda rng, _: rng.choice(_WORDS["name"]),
    "month": lambda rng, _: rng.choice(_WORDS["month"]),
    "customer": lambda rng, _: f"{rng.choice(_WORDS['customers'])}-{rng.randrange(10, 100)}",
    "account": lambda rng, _: (
        f"{''.join(rng.choices(_WORDS['letters'], k=2))}-{rng.randrange(1000, 10000)}-{rng.randrange(1, 4)}"
    ),
    "day": lambda rng, _, year: f"{year}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
    "whole": lambda rng, _, low, high: str(rng.randint(int(low), int(high))),
    "price": lambda rng, _, low, high: f"{rng.randrange(int(low), int(high))}.{rng.choice(_WORDS['cents'])}",
    "later": lambda rng, drawn, slot, low, high: str(int(drawn[slot]) + rng.randint(int(low), int(high))),
    "multiple": lambda rng, drawn, slot, low, high: str(int(drawn[slot]) * rng.randint(int(low), int(high))),
}
"""Kinds of draws: functions of the generator, the slots drawn before, and the arguments after the kind's name.

``price`` has cents; ``later`` is that slot plus a number, ``multiple`` that slot times one.
"""


def generate_items(name: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return ``count`` items of a world as lines of a dataset, with distinct prompts; a function of its arguments."""
    world = open_world(name)
    rng = stream(seed, "items", world.name)
    items: dict[str, dict[str, Any]] = {}
    while len(items) < count:
        item = _draft(world, rng)
        if item is not None and item["prompt"] not in items:
            items[item["prompt"]] = {"id": f"{world.data['prefix']}-{len(items) + 1:04d}", **item}
    return list(items.values())


def data_file(world: str) -> str:
    """Return the text of a world's file."""
    return "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in generate_items(world, FILES[world][0]))


def _draft(world: World, rng: random.Random) -> dict[str, Any] | None:
    """Return a random item without an id; None when a mistake would not show in its answer, or too many could be made."""
    kind, template = _choose(world.data["templates"], rng)
    slots = _draw(template["slots"], rng)
    puzzle = world.puzzle(world, kind, slots)

    def answer(hit: frozenset[str]) -> str:
        return answer_of(puzzle.solved(Solver(hit)))

    right, pitfalls = answer(frozenset()), template.get("pitfalls")
    if pitfalls is None:
        pitfalls = [name for name in world.pitfalls if differ(right, answer(frozenset({name})))]
        if not 1 <= len(pitfalls) <= _MOST_PITFALLS:
            return None
    if not every_mistake_shows(pitfalls, answer):
        return None
    return {
        "prompt": template["text"].format_map(slots),
        "answer": right,
        "system_prompt": "",
        "metadata": {"world": world.name, "template": kind, "pitfalls": list(pitfalls)},
        "domain": world.data["domain"],
    }


def _choose(templates: Mapping[str, Any], rng: random.Random) -> tuple[str, Mapping[str, Any]]:
    """Draw a template; in three ways, as the items in the files were drawn."""
    rows = list(templates.items())
    weights = [row.get("weight", 1) for _, row in rows]
    if len(rows) == 1:
        return rows[0]
    return rng.choice(rows) if set(weights) == {1} else rng.choices(rows, weights)[0]


def _draw(slots: Mapping[str, Any], rng: random.Random) -> Mapping[str, str]:
    """Return random values for the slots of a template."""
    drawn: dict[str, str] = {}
    for slot, kind in slots.items():
        if isinstance(kind, str):
            name, *arguments = kind.split()
            drawn[slot] = _DRAWS[name](rng, drawn, *arguments)
        else:
            drawn[slot] = str(rng.choice(kind))
    return drawn


def differ(right: str, wrong: str) -> bool:
    """Whether two numbers differ by more than any sensible tolerance."""
    good, bad = Decimal(right), Decimal(wrong)
    return abs(good - bad) >= max(_MIN_GAP, _MIN_GAP_SHARE * abs(good))


def hit_sets(pitfalls: Sequence[str]) -> list[frozenset[str]]:
    """Return every combination of at least one of the pitfalls."""
    sizes = range(1, len(pitfalls) + 1)
    return [frozenset(hit) for hit in chain.from_iterable(combinations(pitfalls, size) for size in sizes)]


def every_mistake_shows(pitfalls: Sequence[str], answer: Callable[[frozenset[str]], str]) -> bool:
    """Whether each combination of pitfalls leads to an answer that differs from the right one."""
    right = answer(frozenset())
    return all(differ(right, answer(hit)) for hit in hit_sets(pitfalls))
