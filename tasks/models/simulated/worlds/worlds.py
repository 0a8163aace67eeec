"""The worlds by name, and the generator of their items. Data files of generated worlds are never edited by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.stores.seeds import stream
from tfgrpo.tasks.models.simulated.worlds.data import Pitfall, load_world
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.worlds.puzzle import Draft, Puzzle

GeneratedName: TypeAlias = Literal["arithmetic", "ledger-tools", "unlearnable"]
WorldName: TypeAlias = Literal[GeneratedName, "powl"]
SHIPPED: Final[Mapping[GeneratedName, int]] = {"arithmetic": 400, "ledger-tools": 200, "unlearnable": 200}
"""Items in ``pipelines/data/<world>.jsonl``, generated with seed 0."""

_MODULES: Final[Mapping[WorldName, str]] = {
    "arithmetic": "arithmetic",
    "ledger-tools": "ledger",
    "unlearnable": "unlearnable",
    "powl": "powl",
}
"""Modules of the worlds, each with ``recognise``, and ``draft`` where items are generated; a run needs one of them."""


def _module(name: WorldName) -> Any:
    return import_module(f"{__package__}.{_MODULES[name]}")


@dataclass(frozen=True, slots=True)
class World:
    """A closed family of items with their pitfalls."""

    name: WorldName
    domain: str
    prefix: str
    """Start of its item ids."""
    pitfalls: tuple[Pitfall, ...]
    """What its items test, and so what its lessons can be about."""
    lexicon: Lexicon
    """Recognises advice on the pitfalls."""
    recognise: Callable[[str], Puzzle | None]
    """Return the item in a prompt, or None when it is not of this world."""


def open_world(name: WorldName) -> World:
    """Return a world by its name."""
    data = load_world(name)
    pitfalls = tuple(data.pitfalls.values())
    return World(name, data.domain, data.prefix, pitfalls, Lexicon(pitfalls), _module(name).recognise)


def generate_items(world: GeneratedName, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return ``count`` items of a world as lines of a dataset, with distinct prompts; a function of its arguments."""
    data = load_world(world)
    rng = stream(seed, "items", world)
    draft_item: Callable[[random.Random], Draft | None] = _module(world).draft
    items: dict[str, dict[str, Any]] = {}
    while len(items) < count:
        draft = draft_item(rng)
        if draft is None or draft.prompt in items:
            continue
        items[draft.prompt] = {
            "id": f"{data.prefix}-{len(items) + 1:04d}",
            "prompt": draft.prompt,
            "answer": draft.answer,
            "system_prompt": "",
            "metadata": {"world": world, "template": draft.template, "pitfalls": list(draft.pitfalls)},
            "domain": data.domain,
        }
    return list(items.values())


def data_file(world: GeneratedName) -> str:
    """Return the text of ``pipelines/data/<world>.jsonl``."""
    return "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in generate_items(world, SHIPPED[world]))
