"""Let the product itself learn for some nights on the simulated service and measure what it serves.

``tfgrpo.learn`` as it ships, with its prompts and parsers, in process: unlike in the sketched worlds, reflection and
curation read text. Dials of the simulated model make the worlds. What is served is measured without noise, on items
that no night has seen, with the same draws for every prompt.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import tfgrpo
from benchmarks.dials import DialledEngine, Dials, dialled
from benchmarks.generated_items import generate_items
from benchmarks.worlds.figures import Figure, figure
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.prompt_packs.stamps import load_prompt_pack, merge_experiences
from tfgrpo.stores.experiences.store import Polarity
from tfgrpo.stores.json_values import derive_seed
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody
from tfgrpo.tasks.models.simulated.puzzle import advice_in

SEEDS: Final = 5
NIGHTS: Final = 6
ITEMS: Final = 50
"""Items of an epoch; the shipped pipeline takes 100."""
DRIFT: Final = 3
_FRESH: Final = 300
_TEMPERATURE: Final = 0.3
_WORLDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {},
    "noisy": {"label_noise": 0.15},
    "small": {"effect": 5.0},
    "misjudged": {"misjudged": 0.2},
    "drift": {},
    "unlearnable": {"attention": 0.01},
}
"""Dials; in ``drift`` the rules turn after ``DRIFT`` nights, ``unlearnable`` is a world of the product."""
WORLDS: Final = tuple(_WORLDS)


@dataclass(frozen=True, slots=True)
class Served:
    """What one task serves after each night, in one world of one seed."""

    gain: tuple[float, ...]
    """Points above no lessons."""
    lessons: tuple[int, ...]
    wrong: tuple[int, ...]
    """Lessons that name the wrong direction, or nothing that matters."""
    in_force: int
    """Nights after which lessons are in force."""
    calls: int


def serve(world: str, seed: int, nights: int = NIGHTS, items: int = ITEMS) -> Served:
    """Learn for some nights on one task. Seeds are paired over the worlds."""
    simulated = SimulatedSettings(world="unlearnable" if world == "unlearnable" else "arithmetic", seed=seed)
    settings: dict[str, Any] = {"simulated.world": simulated.world, "simulated.seed": seed}
    nothing = merge_experiences(load_prompt_pack("arithmetic")).text
    gains, lessons, wrong, in_force, calls = [], [], [], 0, 0
    with tempfile.TemporaryDirectory() as out:
        for night in range(nights):
            dials = {**_WORLDS[world], "drifted": world == "drift" and night >= DRIFT}
            asked: dict[str, Any] = {"task_id": "served", "run_id": f"night-{night}", "sample_size": items}
            with dialled(**dials):
                result = tfgrpo.learn(settings=settings, dry_run=True, seed=seed, out=out, **asked)
            served = tfgrpo.prompt("served", out=out)
            truth = DialledEngine(simulated, Dials(**{**dials, "label_noise": 0.0, "misjudged": 0.0}))
            gains.append(_success(served, truth) - _success(nothing, truth))
            taught = advice_in(served)
            lessons.append(len(taught))
            wrong.append(sum(not _helps(lesson.polarity, lesson.text, truth) for lesson in taught))
            in_force += result.decision == "in force"
            calls += result.usage.calls or 0
    return Served(tuple(gains), tuple(lessons), tuple(wrong), in_force, calls)


def _success(system: str, truth: DialledEngine) -> float:
    """Return the true success of a prompt, in points of 100."""
    right, settings = 0, truth.settings
    for number, prompt in enumerate(_fresh(settings.world, settings.seed)):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        body = ChatBody.model_validate({"model": MODEL_NAME, "messages": messages, "temperature": _TEMPERATURE})
        draws = random.Random(derive_seed(settings.seed, "served", number))
        puzzle = truth.world.recognise(prompt)
        right += puzzle is not None and puzzle.agrees(truth.act(body, draws).text)
    return 100.0 * right / _FRESH


@cache
def _fresh(world: Any, seed: int) -> Sequence[str]:
    return [item["prompt"] for item in generate_items(world, _FRESH, seed=1_000 + seed)]


def _helps(polarity: Polarity, text: str, truth: DialledEngine) -> bool:
    """Return whether a lesson says the right thing about a pitfall as the rules are this night."""
    stances = truth.world.stances(polarity, text)
    helping = [stance == (-1 if name in truth.turned else 1) for name, stance in stances.items()]
    return truth.world.name != "unlearnable" and bool(helping) and all(helping)


def measure_service(executor: Executor, seeds: int = SEEDS, nights: int = NIGHTS) -> Mapping[str, Sequence[Served]]:
    """Run every world with the same seeds."""
    jobs = [(world, seed, nights) for world in WORLDS for seed in range(seeds)]
    courses = iter(list(executor.map(_served, jobs)))
    return {world: [next(courses) for _ in range(seeds)] for world in WORLDS}


def _served(job: tuple[str, int, int]) -> Served:
    return serve(*job)


def service_lines(table: Mapping[str, Sequence[Served]]) -> Iterator[str]:
    """Yield the lines of the table."""
    nights = range(len(next(iter(table.values()))[0].gain))
    headings = [*(f"night {night + 1}" for night in nights), "lessons", "of them wrong", "nights in force", "calls a night"]
    yield f"| world | {' | '.join(headings)} |"
    yield f"|{' --- |' * (len(headings) + 1)}"
    for world, courses in table.items():
        gains: list[Figure] = [figure(one.gain[night] for one in courses) for night in nights]
        last = [[one.lessons[-1], one.wrong[-1], one.in_force, one.calls / len(nights)] for one in courses]
        lessons, wrong, in_force, calls = (sum(column) / len(courses) for column in zip(*last, strict=True))
        yield f"| {world} | {' | '.join(map(str, gains))} | {lessons:.1f} | {wrong:.1f} | {in_force:.1f} | {calls:.0f} |"
