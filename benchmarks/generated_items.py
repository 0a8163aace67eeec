"""Generate items of the simulated worlds: more than are shipped, for benchmarks and tests, and the shipped ones.

The data files of these worlds, ``pipelines/data/<world>.jsonl``, are ``data_file`` of each and never edited by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, combinations
from typing import Any, Final

from tfgrpo.stores.canonical import stream
from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    GeneratedName,
    Slots,
    Solver,
    Template,
    World,
    answer_of,
    open_world,
    world_data,
)

SHIPPED: Final[Mapping[GeneratedName, int]] = {"arithmetic": 400, "ledger-tools": 200, "unlearnable": 200}
"""Items in ``pipelines/data/<world>.jsonl``, generated with seed 0."""

_WORDS: Final = world_data("words")
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


def generate_items(name: GeneratedName, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return ``count`` items of a world as lines of a dataset, with distinct prompts; a function of its arguments."""
    world, prefix = open_world(name), world_data(name)["prefix"]
    rng = stream(seed, "items", name)
    items: dict[str, dict[str, Any]] = {}
    while len(items) < count:
        item = _draft(world, rng)
        if item is not None and item["prompt"] not in items:
            items[item["prompt"]] = {"id": f"{prefix}-{len(items) + 1:04d}", **item}
    return list(items.values())


def data_file(world: GeneratedName) -> str:
    """Return the text of ``pipelines/data/<world>.jsonl``."""
    return "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in generate_items(world, SHIPPED[world]))


def _draft(world: World, rng: random.Random) -> dict[str, Any] | None:
    """Return a random item without an id; None when a mistake would not show in its answer, or too many could be made."""
    template = _choose(world.templates, rng)
    slots = _draw(template, rng)
    puzzle = world.puzzle(template, slots)

    def answer(hit: frozenset[str]) -> str:
        return answer_of(puzzle.solved(Solver(hit)))

    right, pitfalls = answer(frozenset()), template.pitfalls
    if pitfalls is None:
        pitfalls = [name for name in world.pitfalls if differ(right, answer(frozenset({name})))]
        if not 1 <= len(pitfalls) <= _MOST_PITFALLS:
            return None
    if not every_mistake_shows(pitfalls, answer):
        return None
    return {
        "prompt": template.text.format_map(slots),
        "answer": right,
        "system_prompt": "",
        "metadata": {"world": world.name, "template": template.name, "pitfalls": list(pitfalls)},
        "domain": world_data(world.name)["domain"],
    }


def _choose(templates: Sequence[Template], rng: random.Random) -> Template:
    """Draw a template; in three ways, as the shipped items were drawn."""
    weights = [template.weight for template in templates]
    if len(templates) == 1:
        return templates[0]
    return rng.choice(templates) if set(weights) == {1} else rng.choices(templates, weights)[0]


def _draw(template: Template, rng: random.Random) -> Slots:
    """Return random values for the slots of a template."""
    drawn: dict[str, str] = {}
    for slot, kind in template.slots.items():
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
