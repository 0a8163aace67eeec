"""What lessons gain when there are more of them than slots: ``python -m benchmarks.learning.retrieval``.

Items of the simulated arithmetic world, each with the pitfalls of one or two of ten families, and a library of thirty
lessons: one right one for each family and twenty about other work. Which of them are worth most is drawn by seed. A prompt
carries twelve: the twelve worth most for every item, or fewer of these and some that BM25 finds for the item. True success
is measured on the simulated model, with the same draws for every prompt.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Final

from benchmarks.generated_items import generate_items
from benchmarks.table import Row, table
from tfgrpo.flows.run.champion import lessons_for, rendered
from tfgrpo.pipelines.settings.learning import RetrievalSettings
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import derive_seed
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, stamp_record
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.engine import act
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

SLOTS: Final = 12
PER_ITEM: Final = (0, 2, 4, 6, 8, 12)
SEEDS, ITEMS = 10, 150
MOST_MISSING: Final = 0.4
"""Share of what the same twelve lessons lose that retrieval may not win back."""
_OTHERS: Final = 20
_TEMPERATURE: Final = 0.3


def gains(per_item: Sequence[int] = PER_ITEM, seeds: int = SEEDS, items: int = ITEMS) -> dict[str, float]:
    """Return points above no lessons, with all thirty in the prompt, and with twelve of which so many are retrieved."""
    found: dict[str, list[float]] = {"all": [], **{str(k): [] for k in per_item}}
    for seed in range(seeds):
        prompts = [item["prompt"] for item in _items(seed, items)]
        nothing = success(seed, _systems(Library(()), prompts, 0, SLOTS))
        library = thirty_lessons(seed)
        for name, gained in found.items():
            k, slots = (0, len(library.entries)) if name == "all" else (int(name), SLOTS)
            gained.append(success(seed, _systems(library, prompts, k, slots)) - nothing)
    return {name: statistics.mean(each) for name, each in found.items()}


def thirty_lessons(seed: int) -> Library:
    """Return ten lessons of which each helps one family, and twenty about other work, in an order drawn by seed."""
    pack = load_prompt_pack("arithmetic")
    families = [pitfall.good_advice[0] for pitfall in open_world("arithmetic").pitfalls.values()]
    worlds = open_world("ledger-tools"), open_world("powl")
    others = [
        advice
        for nth in range(2)
        for world in worlds
        for each in world.pitfalls.values()
        for advice in each.good_advice[nth : nth + 1]
    ]
    advice = [*families, *others[:_OTHERS]]
    random.Random(seed).shuffle(advice)
    records = [
        ExperienceRecord(
            experience_id=f"lesson-{number:02d}",
            run_id="bench",
            task_id="bench",
            domain=pack.manifest.domain,
            pack_id=pack.manifest.id,
            epoch=1,
            batch=0,
            group_id=f"g{number}",
            operation="add",
            summary32=each.text,
            polarity=each.polarity,
            reward=Reward(gt_score=1.0, relative_rank=1.0),
            stamp_signature="",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number, each in enumerate(advice)
    ]
    return Library(tuple(stamp_record(record, pack_stamp(pack)) for record in records))


def success(seed: int, systems: Sequence[str]) -> float:
    """Return the true success at the items of a seed, in points of 100, each under its own prompt."""
    world, options, right = open_world("arithmetic"), SimulatedOptions(seed=seed), 0
    for number, (item, system) in enumerate(zip(_items(seed, len(systems)), systems, strict=True)):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": item["prompt"]}]
        body = ChatBody.model_validate({"model": MODEL_NAME, "messages": messages, "temperature": _TEMPERATURE})
        puzzle = world.puzzle.recognise(item["prompt"])
        draws = random.Random(derive_seed(seed, "served", number))
        right += puzzle is not None and puzzle.agrees(act(world, body, options, draws).text)
    return 100.0 * right / len(systems)


def _systems(library: Library, prompts: Sequence[str], per_item: int, slots: int) -> list[str]:
    """Return the system text of each prompt; those with the same lessons are rendered once."""
    pack = load_prompt_pack("arithmetic")
    pack = replace(pack, manifest=pack.manifest.model_copy(update={"experience_slots": slots}))
    chosen = [lessons_for(pack, library, RetrievalSettings(per_item=per_item), prompt) for prompt in prompts]
    names = [tuple(lesson.experience_id for lesson in lessons) for lessons in chosen]
    distinct = dict(zip(names, chosen, strict=True))
    made = rendered(pack, list(distinct.values()))
    texts = {ids: each.text.system for ids, each in zip(distinct, made, strict=True)}
    return [texts[ids] for ids in names]


@cache
def _items(seed: int, count: int) -> Sequence[dict[str, str]]:
    return generate_items("arithmetic", count, seed=2_000 + seed)


def measure(seeds: int = SEEDS, items: int = ITEMS) -> list[Row]:
    """State what twelve slots gain of what thirty would, by the number of retrieved lessons."""
    return list(_rows(gains(seeds=seeds, items=items)))


def _rows(found: dict[str, float]) -> Iterator[Row]:
    yield Row("retrieval: all thirty lessons in the prompt", found["all"], "points", note="above no lessons")
    yield Row("retrieval: the same twelve in every prompt", found["0"], "points")
    lost = found["all"] - found["0"]
    missing = {k: (found["all"] - found[str(k)]) / lost for k in PER_ITEM if k}
    for k, share in missing.items():
        name = f"retrieval: twelve, {k} of them by the item's text"
        yield Row(name, found[str(k)], "points", note=f"{1.0 - share:.0%} of the difference won back")
    yield Row("retrieval: share not won back by default", missing[RetrievalSettings().per_item], "", MOST_MISSING)


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
