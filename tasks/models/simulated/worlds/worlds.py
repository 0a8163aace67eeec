"""Which worlds are there, and which items do they consist of? Data files of drawn worlds are generated here, never edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.stores.seeds import stream
from tfgrpo.tasks.models.simulated.worlds.arithmetic import Arithmetic
from tfgrpo.tasks.models.simulated.worlds.ledger import LedgerTools
from tfgrpo.tasks.models.simulated.worlds.powl import Processes
from tfgrpo.tasks.models.simulated.worlds.puzzle import DrawnWorld, World
from tfgrpo.tasks.models.simulated.worlds.unlearnable import Unlearnable

DrawnName: TypeAlias = Literal["arithmetic", "ledger-tools", "unlearnable"]
WorldName: TypeAlias = Literal[DrawnName, "powl"]
SHIPPED: Final[Mapping[DrawnName, int]] = {"arithmetic": 400, "ledger-tools": 200, "unlearnable": 200}
"""Items in ``pipelines/data/<world>.jsonl``, generated with seed 0."""


def open_world(name: WorldName) -> World:
    """A world by its name."""
    return Processes() if name == "powl" else _drawn(name)


def _drawn(name: DrawnName) -> DrawnWorld:
    match name:
        case "arithmetic":
            return Arithmetic()
        case "ledger-tools":
            return LedgerTools()
        case "unlearnable":
            return Unlearnable()


def generate_items(world: DrawnName, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """``count`` items of a world as lines of a dataset, no two with the same prompt; a function of its arguments."""
    opened = _drawn(world)
    rng = stream(seed, "items", world)
    items: list[dict[str, Any]] = []
    seen: set[str] = set()
    while len(items) < count:
        draft = opened.draft(rng)
        if draft is None or draft.prompt in seen:
            continue
        seen.add(draft.prompt)
        metadata = {"world": world, "template": draft.template, "pitfalls": list(draft.pitfalls)}
        items.append({
            "id": f"{opened.prefix}-{len(items) + 1:04d}",
            "prompt": draft.prompt,
            "answer": draft.answer,
            "system_prompt": "",
            "metadata": metadata,
            "domain": opened.domain,
        })  # fmt: skip
    return items


def data_file(world: DrawnName) -> str:
    """The text of ``pipelines/data/<world>.jsonl``."""
    return "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in generate_items(world, SHIPPED[world]))
