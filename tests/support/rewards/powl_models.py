"""Generate POWL models with hypothesis and enumerate their languages trace by trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from hypothesis import strategies as st

from tfgrpo.rewarders.powl import Activity, Footprint, Model, Operator, PowlError, Silent
from tfgrpo.rewarders.powl.footprints import RELATIONS
from tfgrpo.rewarders.powl.model import OperatorKind

MAX_TRACES = 4_000

Trace = tuple[str, ...]


def shape(model: Model) -> dict[str, Any]:
    """Return a tree in the form of the text vectors, without ids."""
    if isinstance(model, Activity):
        return {"type": "ACTIVITY", "label": model.label}
    assert isinstance(model, Operator)
    return {"type": model.kind, "children": [shape(child) for child in model.children]}


def brief(model: Model) -> str:
    """Return a model as the vectors write it: labels alone, which need not read back."""
    if isinstance(model, Activity):
        return model.label
    if isinstance(model, Silent):
        return "SILENT()"
    order = ", ".join(f"{before}->{after}" for before, after in sorted(model.order))
    parts = [*map(brief, model.children), *([f"ORDER({order})"] if order else [])]
    return f"{model.kind}({', '.join(parts)})"


def attempt(read: Callable[..., Model], *arguments: Any, **options: Any) -> Model | PowlError:
    """Return the model that a parser reads, or its ``PowlError``; any other exception fails the test."""
    try:
        return read(*arguments, **options)
    except PowlError as error:
        return error


def pairs_of(footprint: Footprint) -> dict[str, Any]:
    """Return a footprint as a JSON object with sorted pairs, which ``footprint_from_value`` reads."""
    pairs = {name: [list(pair) for pair in sorted(getattr(footprint, name))] for name in RELATIONS}
    return {"mode": footprint.mode, "activities": list(footprint.activities), **pairs}


# --- models


def orders(count: int) -> st.SearchStrategy[frozenset[tuple[int, int]]]:
    """Return acyclic orders: pairs that agree with a random permutation of the children."""
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    chosen = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset())
    return st.tuples(chosen, st.permutations(range(count))).map(
        lambda both: frozenset((both[1][one], both[1][other]) for one, other in both[0])
    )


def operators(children: st.SearchStrategy[Model]) -> st.SearchStrategy[Model]:
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    loops = st.tuples(children, children).map(lambda both: Operator("LOOP", both))
    kinds: list[OperatorKind] = ["SEQUENCE", "XOR", "PARALLEL"]
    unordered = st.tuples(st.sampled_from(kinds), several).map(lambda both: Operator(*both))
    ordered = several.flatmap(lambda members: orders(len(members)).map(lambda order: Operator("PARTIAL_ORDER", members, order)))
    return unordered | loops | ordered


def models(labels: st.SearchStrategy[str], max_leaves: int = 6) -> st.SearchStrategy[Model]:
    return st.recursive(labels.map(Activity) | st.just(Silent()), operators, max_leaves=max_leaves)


few_labels = st.sampled_from("abcd")
"""Few enough that models repeat them."""
any_label = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
small_models = models(few_labels)
any_models = models(any_label, max_leaves=10)


# --- languages


class TooMany(Exception):
    """The language is too large to enumerate."""


def language(model: Model, turns: int = 2) -> set[Trace]:
    """Return every trace, with at most ``turns`` turns of each loop, by the definition of each operator."""
    if isinstance(model, Activity):
        return {(model.label,)}
    if isinstance(model, Silent):
        return {()}
    parts = [language(child, turns) for child in model.children]
    if model.kind == "XOR":
        return _limited(set.union(*parts))
    if model.kind == "SEQUENCE":
        return _limited({sum(chosen, ()) for chosen in _choices(parts)})
    if model.kind == "LOOP":
        do, redo = parts
        traces = reached = set(do)
        for _ in range(turns):
            reached = _limited({a + b + c for a, b, c in _choices([reached, redo, do])})
            traces = _limited(traces | reached)
        return traces
    before = _before(len(parts), model.order)
    return _limited({trace for chosen in _choices(parts) for trace in _shuffles(chosen, before)})


def _choices(parts: list[set[Trace]]) -> Iterator[tuple[Trace, ...]]:
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_TRACES:
        raise TooMany
    return product(*parts)


def _limited(traces: set[Trace]) -> set[Trace]:
    if len(traces) > MAX_TRACES:
        raise TooMany
    return traces


def _before(count: int, order: frozenset[tuple[int, int]]) -> list[set[int]]:
    """Return the children that must finish before each child, directly or transitively."""
    before = [{one for one, other in order if other == child} for child in range(count)]
    for _ in range(count):
        before = [set().union(direct, *(before[one] for one in direct)) for direct in before]
    return before


def _shuffles(chosen: tuple[Trace, ...], before: list[set[int]]) -> set[Trace]:
    """Return every interleaving of the chosen traces in which no child starts before its predecessors finish."""
    traces: set[Trace] = set()
    seen = set()
    waiting: list[tuple[tuple[int, ...], Trace]] = [((0,) * len(chosen), ())]
    while waiting:
        at, trace = waiting.pop()
        if (at, trace) in seen:
            continue
        seen.add((at, trace))
        if len(seen) > 5 * MAX_TRACES:
            raise TooMany
        finished = {child for child, part in enumerate(chosen) if at[child] == len(part)}
        if len(finished) == len(chosen):
            traces.add(trace)
        for child, part in enumerate(chosen):
            if at[child] < len(part) and before[child] <= finished:
                further = tuple(step + (other == child) for other, step in enumerate(at))
                waiting.append((further, (*trace, part[at[child]])))
    return traces
