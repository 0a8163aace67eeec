"""Which process does an event log show? Discovery and log footprints by pm4py, an optional part; nothing here is our own.

pm4py (extra ``pm4py``) is licensed under the AGPL-3.0: whoever installs it, and offers a service with it, takes on its
terms. It is imported when a function of this file is called, and by nothing else of tfgrpo.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tfgrpo.rewarders.powl.footprints.relations import Footprint, footprint_of_pairs
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, OperatorKind, Silent, fold
from tfgrpo.stores.errors import DatasetError, PowlError

LOG_SUFFIXES: Final = (".xes", ".xes.gz", ".csv")
_CASE, _ACTIVITY, _TIME = "case:concept:name", "concept:name", "time:timestamp"
_KINDS: Final[dict[str, OperatorKind]] = {"->": "SEQUENCE", "X": "XOR", "+": "PARALLEL", "*": "LOOP"}


def is_event_log(path: Path) -> bool:
    """Whether the name of a file says that it is an event log."""
    return path.name.lower().endswith(LOG_SUFFIXES)


def discover_model(path: Path, *, case: str = _CASE, activity: str = _ACTIVITY, timestamp: str = _TIME) -> Model:
    """A model of the process in a log, by pm4py's inductive miner with partial orders; sound whatever the log holds.

    All behaviour in the log is in the model, rare behaviour too: pm4py's weight for filtering changes nothing here.
    ``case``, ``activity`` and ``timestamp`` name the columns of a CSV file.
    Raises ``DatasetError`` when the file cannot be read as a log or pm4py is not installed.
    """
    pm4py = _pm4py()
    log = _read(pm4py, path, (case, activity, timestamp))
    return from_pm4py(pm4py.discover_powl(log))


def log_footprint(path: Path, *, case: str = _CASE, activity: str = _ACTIVITY, timestamp: str = _TIME) -> Footprint:
    """The ``direct`` footprint of a log itself: of what was seen to follow, not of a model of it.

    Raises ``DatasetError`` as ``discover_model`` does.
    """
    pm4py = _pm4py()
    found = pm4py.discover_footprints(_read(pm4py, path, (case, activity, timestamp)))
    return _footprint(found)


def pm4py_footprint(model: Model) -> Footprint:
    """The ``direct`` footprint of a model as pm4py works it out, to check ours against.

    Raises ``DatasetError`` when pm4py is not installed.
    """
    _pm4py()
    algorithm = importlib.import_module("pm4py.algo.discovery.footprints.powl.variants.bottomup")
    return _footprint(algorithm.apply(to_pm4py(model)))


def to_pm4py(model: Model) -> Any:
    """The same model as an object of pm4py's. Raises ``DatasetError`` when pm4py is not installed."""
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
    """Our model from an object of pm4py's. Raises ``PowlError`` for a kind of node that is none of ours."""
    nodes: list[Any] = []
    waiting = [found]
    while waiting:
        nodes.append(waiting.pop())
        waiting.extend(_children(nodes[-1]))
    done: dict[int, Model] = {}
    for node in reversed(nodes):
        done[id(node)] = _node(node, [done[id(child)] for child in _children(node)])
    return done[id(found)]


def _node(node: Any, children: list[Model]) -> Model:
    name = type(node).__name__
    if name == "SilentTransition":
        return Silent()
    if name == "Transition":
        return Activity(str(node.label))
    if name == "FrequentTransition":
        return _repeated(Activity(str(node.activity)), optional=node.skippable, again=node.selfloop)
    if name == "StrictPartialOrder":
        places = list(node.children)
        pairs = frozenset(
            (before, after)
            for before, one in enumerate(places)
            for after, other in enumerate(places)
            if one is not other and node.order.is_edge(one, other)
        )
        return _ordered(children, pairs)
    kind = _KINDS.get(str(getattr(getattr(node, "operator", None), "value", "")))
    if kind is None:
        raise PowlError(f"pm4py made a {name}, which is none of the five operators")
    return Operator(kind, tuple(children))


def _repeated(activity: Activity, *, optional: bool, again: bool) -> Model:
    turns: Model = Operator("LOOP", (activity, Silent())) if again else activity
    return Operator("XOR", (turns, Silent())) if optional else turns


def _ordered(children: list[Model], pairs: frozenset[tuple[int, int]]) -> Model:
    """A chain as a SEQUENCE and an order of nothing as a PARALLEL: that is what people call them."""
    count = len(children)
    if not pairs:
        return children[0] if count == 1 else Operator("PARALLEL", tuple(children))
    later = [sum(before == place for before, _ in pairs) for place in range(count)]
    if sorted(later) == list(range(count)):
        return Operator("SEQUENCE", tuple(children[place] for place in sorted(range(count), key=lambda i: -later[i])))
    return Operator("PARTIAL_ORDER", tuple(children), pairs)


def _children(node: Any) -> list[Any]:
    return list(getattr(node, "children", None) or ())


def _footprint(found: Any) -> Footprint:
    """pm4py's footprint; ``exclusive`` is everything that is in neither of its relations."""
    succession, concurrency = frozenset(found["sequence"]), frozenset(found["parallel"])
    labels = sorted(found["activities"])
    related = succession | concurrency | {(after, before) for before, after in succession}
    exclusive = {(one, other) for one in labels for other in labels} - related
    return footprint_of_pairs(
        "direct", direct_succession=succession, concurrency=concurrency, exclusive=exclusive, activities=labels
    )


def _read(pm4py: Any, path: Path, columns: tuple[str, str, str]) -> Any:
    """The log as a table. pm4py raises whatever its parsers raise, so anything is taken for an unreadable file."""
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
