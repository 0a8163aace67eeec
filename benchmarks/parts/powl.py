"""Speed of footprints of process models, against plain nested loops: ``python -m benchmarks powl``.

The bars are ratios to the nested loops, measured in the same run: 300 µs to 277 µs at 50 activities and 1.3 ms to 1.18 ms
at 100, the times that the loops took on the machine of the specification.
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator

from benchmarks.table import Row
from tfgrpo.rewarders.powl import Activity, Model, Operator, footprint, footprint_similarity, parse_text, to_text
from tfgrpo.rewarders.powl.model import OperatorKind

SIZES = {10: None, 50: 300 / 277, 100: 1.3 / 1.18}
ROUNDS, LEAST_S = 15, 0.02
_KINDS: tuple[OperatorKind, ...] = ("SEQUENCE", "XOR", "PARALLEL", "LOOP")

Sets = tuple[frozenset[tuple[str, str]], ...]


def model_of(activities: int, seed: int = 7) -> Model:
    """A tree of nested blocks with this many activities, every label once; the same for the same seed."""
    return _grown(activities, 4, random.Random(seed), (f"step {number}" for number in itertools.count()))


def _grown(activities: int, levels: int, rng: random.Random, labels: Iterator[str]) -> Model:
    if activities == 1:
        return Activity(next(labels))
    if levels == 0:
        return Operator(rng.choice(_KINDS[:3]), tuple(Activity(next(labels)) for _ in range(activities)))
    kind = rng.choice(_KINDS)
    count = 2 if kind == "LOOP" else min(activities, rng.randint(2, 5))
    cuts = [0, *sorted(rng.sample(range(1, activities), count - 1)), activities]
    return Operator(kind, tuple(_grown(end - begin, levels - 1, rng, labels) for begin, end in itertools.pairwise(cuts)))


def nested_loops(model: Model) -> Sets:
    """The block footprint straight from its definition: sets of pairs, one pair at a time. Four operators, no silence."""
    direct: set[tuple[str, str]] = set()
    concurrent: set[tuple[str, str]] = set()
    exclusive: set[tuple[str, str]] = set()

    def visit(node: Model) -> list[str]:
        if not isinstance(node, Operator):
            return [node.label] if isinstance(node, Activity) else []
        blocks = [visit(child) for child in node.children]
        if node.kind in ("SEQUENCE", "LOOP"):
            for left, right in itertools.pairwise(blocks):
                _cross(direct, left, right, back=node.kind == "LOOP")
        else:
            for left, right in itertools.combinations(blocks, 2):
                _cross(exclusive if node.kind == "XOR" else concurrent, left, right, back=True)
        return list(itertools.chain.from_iterable(blocks))

    visit(model)
    return frozenset(direct), frozenset(concurrent), frozenset(exclusive)


def _cross(pairs: set[tuple[str, str]], left: list[str], right: list[str], *, back: bool) -> None:
    for one in left:
        for other in right:
            pairs.add((one, other))
            if back:
                pairs.add((other, one))


def with_pairs(model: Model) -> Sets:
    """Our footprint with every pair spelled out, as a person would look at it."""
    found = footprint(model)
    return found.direct_succession, found.concurrency, found.exclusive


def plain_likeness(left: Sets, right: Sets) -> float:
    """The macro score over sets of pairs."""
    shares = [len(a & b) / len(a | b) if a or b else 1.0 for a, b in zip(left, right, strict=True)]
    return sum(shares) / len(shares)


def ratios(activities: int, *, rounds: int = ROUNDS) -> dict[str, float]:
    """Times of our ways as multiples of the nested loops', in turns, so that a slow moment hits both."""
    model = model_of(activities)
    reference = footprint(model_of(activities, seed=8))
    plain_reference = nested_loops(model_of(activities, seed=8))
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: nested_loops(model),
        "footprint": lambda: footprint(model),
        "pairs": lambda: with_pairs(model),
        "direct": lambda: footprint(model, "direct"),
        "plain score": lambda: plain_likeness(nested_loops(model), plain_reference),
        "score": lambda: footprint_similarity(model, reference, "macro"),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, work in ways.items():
            best[name] = min(best[name], _round(work))
    return {
        **{name: best[name] / best["plain"] for name in ("footprint", "pairs", "direct")},
        "score": best["score"] / best["plain score"],
        "plain_us": best["plain"] * 1e6,
    }


def measure() -> list[Row]:
    """One row for each way and size; the bars are for the footprint itself."""
    rows = []
    for activities, bar in SIZES.items():
        found = ratios(activities)
        note = f"nested loops: {found['plain_us']:,.0f} µs"
        rows.append(Row(f"powl: footprint of {activities} activities", found["footprint"], "x the loops", bar, note))
        rows.append(Row(f"powl: its likeness to a reference, {activities}", found["score"], "x the loops"))
        rows.append(Row(f"powl: with all pairs spelled out, {activities}", found["pairs"], "x the loops"))
        rows.append(Row(f"powl: in mode direct, {activities}", found["direct"], "x the loops"))
    text = to_text(model_of(100))
    rows.append(Row("powl: reading the text of 100 activities", _round(lambda: parse_text(text)) * 1e3, "ms"))
    return rows


def _round(work: Callable[[], object]) -> float:
    """Seconds of the fastest call of some: what a busy machine adds is not ours."""
    gc.collect()
    count, spent, best = 0, 0.0, float("inf")
    while spent < LEAST_S or count < 3:
        begin = time.perf_counter()
        work()
        took = time.perf_counter() - begin
        best, spent, count = min(best, took), spent + took, count + 1
    return best
