"""Discover process models and footprints from event logs with pm4py (extra ``pm4py``).

pm4py is licensed under the AGPL-3.0, whose terms apply to users who install it and offer a service with it. It is
imported when a function of this module is called, and by no other module of tfgrpo.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any, Final

from tfgrpo.rewarders.powl.footprints import Footprint, footprint_of_pairs
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, OperatorKind, Silent, fold
from tfgrpo.stores.errors import DatasetError, PowlError

LOG_SUFFIXES: Final = (".xes", ".xes.gz", ".csv")
_CASE, _ACTIVITY, _TIME = "case:concept:name", "concept:name", "time:timestamp"
_KINDS: Final[dict[str, OperatorKind]] = {"->": "SEQUENCE", "X": "XOR", "+": "PARALLEL", "*": "LOOP"}


def is_event_log(path: Path) -> bool:
    """Return whether the file name has a suffix of an event log."""
    return path.name.lower().endswith(LOG_SUFFIXES)


def discover_model(path: Path, *, case: str = _CASE, activity: str = _ACTIVITY, timestamp: str = _TIME) -> Model:
    """Return a sound model of the process in a log, by pm4py's inductive miner with partial orders.

    All behaviour in the log is in the model, rare behaviour too: pm4py's filter weight has no effect on this variant.
    ``case``, ``activity`` and ``timestamp`` name the columns of a CSV file.
    Raises ``DatasetError`` when the file cannot be read as a log or pm4py is not installed.
    """
    pm4py = _pm4py()
    log = _read(pm4py, path, (case, activity, timestamp))
    return from_pm4py(pm4py.discover_powl(log))


def log_footprint(path: Path, *, case: str = _CASE, activity: str = _ACTIVITY, timestamp: str = _TIME) -> Footprint:
    """Return the ``direct`` footprint of the log itself, not of a model. Raises ``DatasetError`` as ``discover_model``."""
    pm4py = _pm4py()
    return _footprint(pm4py.discover_footprints(_read(pm4py, path, (case, activity, timestamp))))


def pm4py_footprint(model: Model) -> Footprint:
    """Return the ``direct`` footprint of a model by pm4py's algorithm. Raises ``DatasetError`` without pm4py."""
    _pm4py()
    algorithm = importlib.import_module("pm4py.algo.discovery.footprints.powl.variants.bottomup")
    return _footprint(algorithm.apply(to_pm4py(model)))


def to_pm4py(model: Model) -> Any:
    """Return the model as an object of pm4py. Raises ``DatasetError`` when pm4py is not installed."""
    _pm4py()
    objects = importlib.import_module("pm4py.objects.powl.obj")
    signs = importlib.import_module("pm4py.objects.process_tree.obj").Operator

    def combine(node: Model, parts: Sequence[Any]) -> Any:
        if isinstance(node, Activity):
            return objects.Transition(node.label)
        if not isinstance(node, Operator):
            return objects.SilentTransition()
        if len(parts) == 1:
            return parts[0]
        if node.kind in ("XOR", "LOOP"):
            return objects.OperatorPOWL(signs.XOR if node.kind == "XOR" else signs.LOOP, list(parts))
        ordered = objects.StrictPartialOrder(list(parts))
        pairs = node.order if node.kind != "SEQUENCE" else {(i, i + 1) for i in range(len(parts) - 1)}
        for before, after in pairs:
            ordered.order.add_edge(parts[before], parts[after])
        ordered.order.add_transitive_edges()
        return ordered

    return fold(model, combine)


def from_pm4py(found: Any) -> Model:
    """Return the model of an object of pm4py. Raises ``PowlError`` for an unknown kind of node."""
    # It may recurse, as pm4py does.
    children = [from_pm4py(child) for child in getattr(found, "children", None) or ()]
    name = type(found).__name__
    if name == "SilentTransition":
        return Silent()
    if name == "Transition":
        return Activity(str(found.label))
    if name == "FrequentTransition":
        turns: Model = Activity(str(found.activity))
        if found.selfloop:
            turns = Operator("LOOP", (turns, Silent()))
        return Operator("XOR", (turns, Silent())) if found.skippable else turns
    if name == "StrictPartialOrder":
        pairs = frozenset(
            (before, after)
            for (before, one), (after, other) in permutations(enumerate(found.children), 2)
            if found.order.is_edge(one, other)
        )
        return _ordered(children, pairs)
    kind = _KINDS.get(str(getattr(getattr(found, "operator", None), "value", "")))
    if kind is None:
        raise PowlError(f"pm4py made a {name}, which is none of the five operators")
    return Operator(kind, tuple(children))


def _ordered(children: list[Model], pairs: frozenset[tuple[int, int]]) -> Model:
    """Return a chain as a SEQUENCE and an empty order as a PARALLEL, which are the usual names."""
    count = len(children)
    if not pairs:
        return children[0] if count == 1 else Operator("PARALLEL", tuple(children))
    later = [sum(before == child for before, _ in pairs) for child in range(count)]
    if sorted(later) == list(range(count)):
        return Operator("SEQUENCE", tuple(children[child] for child in sorted(range(count), key=lambda i: -later[i])))
    return Operator("PARTIAL_ORDER", tuple(children), pairs)


def _footprint(found: Any) -> Footprint:
    """Return pm4py's footprint as ours; ``exclusive`` are the pairs in neither of its relations."""
    succession, concurrency = frozenset(found["sequence"]), frozenset(found["parallel"])
    labels = sorted(found["activities"])
    related = succession | concurrency | {(after, before) for before, after in succession}
    exclusive = set(product(labels, repeat=2)) - related
    return footprint_of_pairs(
        "direct", direct_succession=succession, concurrency=concurrency, exclusive=exclusive, activities=labels
    )


def _read(pm4py: Any, path: Path, columns: tuple[str, str, str]) -> Any:
    """Read the log as a table. pm4py passes on any error of its parsers, so all of them mean an unreadable file."""
    try:
        if not path.name.lower().endswith(".csv"):
            return pm4py.read_xes(str(path))
        table = importlib.import_module("pandas").read_csv(path)
    except Exception as error:
        raise DatasetError.one(str(path), f"{type(error).__name__}: {error}", "an event log in XES or CSV") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        known = ", ".join(map(str, table.columns))
        raise DatasetError.one(str(path), f"no column {', '.join(missing)}", f"names of columns: {known}")
    return pm4py.format_dataframe(table, case_id=columns[0], activity_key=columns[1], timestamp_key=columns[2])


def _pm4py() -> Any:
    try:
        return importlib.import_module("pm4py")
    except ImportError as error:
        accepted = "pip install 'tfgrpo[pm4py]' (AGPL-3.0: see docs/process-models.md)"
        raise DatasetError.one("event log", "pm4py is not installed", accepted) from error
