"""Models as objects of pm4py, for comparing our footprints with its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tfgrpo.rewarders.powl import event_log
from tfgrpo.rewarders.powl.footprints import Footprint
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold


def pm4py_footprint(model: Model) -> Footprint:
    """Return the ``direct`` footprint of a model by pm4py's algorithm."""
    algorithm = importlib.import_module("pm4py.algo.discovery.footprints.powl.variants.bottomup")
    return event_log._footprint(algorithm.apply(to_pm4py(model)))


def to_pm4py(model: Model) -> Any:
    """Return the model as an object of pm4py."""
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
