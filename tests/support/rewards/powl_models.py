"""Models made by hypothesis, languages written out trace by trace, and the sample vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from hypothesis import strategies as st

from tests.support.vectors import VECTORS
from tfgrpo.rewarders.powl import Activity, Model, Operator, PowlError, Silent

MAX_TRACES = 4_000

Trace = tuple[str, ...]


def vectors(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"powl_{name}.jsonl").read_text("utf-8").splitlines() if line]


def shape(model: Model) -> dict[str, Any]:
    """A tree as the text vectors write it: no ids."""
    if isinstance(model, Activity):
        return {"type": "ACTIVITY", "label": model.label}
    assert isinstance(model, Operator)
    return {"type": model.kind, "children": [shape(child) for child in model.children]}


def attempt(read: Callable[..., Model], *given: Any, **options: Any) -> Model | PowlError:
    """What a parser makes of something; any other exception than its own is a failure of the test."""
    try:
        return read(*given, **options)
    except PowlError as error:
        return error


# --- models


def orders(count: int) -> st.SearchStrategy[frozenset[tuple[int, int]]]:
    """Acyclic orders: pairs along a hidden line of the children."""
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    chosen = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset())
    return st.tuples(chosen, st.permutations(range(count))).map(
        lambda both: frozenset((both[1][one], both[1][other]) for one, other in both[0])
    )


def operators(children: st.SearchStrategy[Model]) -> st.SearchStrategy[Model]:
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    loops = st.tuples(children, children).map(lambda both: Operator("LOOP", both))
    plain = st.tuples(st.sampled_from(["SEQUENCE", "XOR", "PARALLEL"]), several).map(lambda both: Operator(*both))
    ordered = several.flatmap(
        lambda given: orders(len(given)).map(lambda order: Operator("PARTIAL_ORDER", given, order))
    )
    return plain | loops | ordered


def models(labels: st.SearchStrategy[str], leaves: int = 6) -> st.SearchStrategy[Model]:
    return st.recursive(labels.map(Activity) | st.just(Silent()), operators, max_leaves=leaves)


few_labels = st.sampled_from("abcd")
"""So few that models repeat them."""
any_label = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
small_models = models(few_labels)
any_models = models(any_label, leaves=10)


# --- languages


class TooMany(Exception):
    """The language is too large to be written out."""


def language(model: Model, turns: int = 2) -> set[Trace]:
    """Every trace, with at most ``turns`` turns of each loop. Straight from the definition of each operator."""
    if isinstance(model, Activity):
        return {(model.label,)}
    if isinstance(model, Silent):
        return {()}
    parts = [language(child, turns) for child in model.children]
    if model.kind == "XOR":
        return _counted(set.union(*parts))
    if model.kind == "SEQUENCE":
        return _counted({sum(chosen, ()) for chosen in _choices(parts)})
    if model.kind == "LOOP":
        do, redo = parts
        traces = reached = set(do)
        for _ in range(turns):
            reached = _counted({a + b + c for a, b, c in _choices([reached, redo, do])})
            traces = _counted(traces | reached)
        return traces
    before = _before(len(parts), model.order)
    return _counted({trace for chosen in _choices(parts) for trace in _shuffles(chosen, before)})


def _choices(parts: list[set[Trace]]) -> Iterator[tuple[Trace, ...]]:
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_TRACES:
        raise TooMany
    return product(*parts)


def _counted(traces: set[Trace]) -> set[Trace]:
    if len(traces) > MAX_TRACES:
        raise TooMany
    return traces


def _before(count: int, order: frozenset[tuple[int, int]]) -> list[set[int]]:
    """All that must be finished before each child, through others too."""
    before = [{one for one, other in order if other == place} for place in range(count)]
    for _ in range(count):
        before = [set().union(direct, *(before[one] for one in direct)) for direct in before]
    return before


def _shuffles(chosen: tuple[Trace, ...], before: list[set[int]]) -> set[Trace]:
    """Every interleaving of the chosen traces in which no child begins before what must be finished is finished."""
    found: set[Trace] = set()
    seen = set()
    waiting: list[tuple[tuple[int, ...], Trace]] = [((0,) * len(chosen), ())]
    while waiting:
        at, trace = waiting.pop()
        if (at, trace) in seen:
            continue
        seen.add((at, trace))
        if len(seen) > 5 * MAX_TRACES:
            raise TooMany
        finished = {place for place, part in enumerate(chosen) if at[place] == len(part)}
        if len(finished) == len(chosen):
            found.add(trace)
        for place, part in enumerate(chosen):
            if at[place] < len(part) and before[place] <= finished:
                further = tuple(step + (other == place) for other, step in enumerate(at))
                waiting.append((further, (*trace, part[at[place]])))
    return found
