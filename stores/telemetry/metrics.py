"""Record events in the metrics that measure them, a no-op without a meter.

Unknown figures are omitted, never recorded as zero. Names chosen by users or models (tools, models, error classes) are
bounded: beyond the bound they become ``other``, so that no run can flood a metrics backend.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Unpack, cast

from opentelemetry.metrics import Meter

from tfgrpo.stores.telemetry.names import KEYS, OTHER, ROLES, Event, Facts, Metric, all_metrics
from tfgrpo.stores.text import replace_surrogates

NAMES_PER_KEY: Final = 24
"""Distinct names of one open attribute per process."""
_OPEN: Final = frozenset(
    {"tool", "model", "rewarder", "domain", "reason", "rule", "error_type", "agent", "provider", "grader", "dataset"}
)


class _Measure(NamedTuple):
    """One figure of an event, and the instrument that takes it."""

    write: Callable[[float, dict[str, Any]], None]
    fact: str
    keys: tuple[str, ...]
    fixed: dict[str, str]
    adds: bool
    """Whether the instrument is a counter, for which zero is nothing."""


class MetricsRecorder:
    """The metrics of ``Telemetry``. Without a ``meter`` it records none."""

    def __init__(self, meter: Meter | None) -> None:
        self._seen: dict[str, set[str]] = {attribute: set() for attribute in _OPEN}
        """Names of each open attribute; the first ones keep their name."""
        self._turn = threading.Lock()
        self._measures: defaultdict[Event, list[_Measure]] = defaultdict(list)
        for metric in () if meter is None else all_metrics():
            self._measures[metric.event] += _measures(cast("Meter", meter), metric)

    def record(self, event: Event, **facts: Unpack[Facts]) -> None:
        """Record what is known of an event in every metric that measures any of it; None is unknown."""
        if not self._measures:
            return
        known = {
            KEYS[name]: self._named(name, fact) for name, fact in facts.items() if name in KEYS and fact is not None
        }
        figures: dict[str, Any] = {"count": 1, **facts}
        for measure in self._measures[event]:
            figure = figures.get(measure.fact)
            if figure is not None and math.isfinite(figure) and (figure > 0 or not measure.adds):
                measure.write(figure, {key: known[key] for key in measure.keys if key in known} | measure.fixed)

    def _named(self, name: str, fact: Any) -> Any:
        if name == "role":
            return fact if fact in ROLES else OTHER
        if name not in _OPEN or fact in self._seen[name]:
            return fact
        fact, seen = replace_surrogates(fact), self._seen[name]  # a lone surrogate would fail the whole export
        with self._turn:  # two threads must not both add the last name
            if fact not in seen and len(seen) >= NAMES_PER_KEY:
                return OTHER
            seen.add(fact)
        return fact


def _measures(meter: Meter, metric: Metric) -> list[_Measure]:
    name, unit, description = metric.name, metric.unit, metric.description
    if metric.kind == "counter":
        write = meter.create_counter(name, unit, description).add
    elif metric.kind == "gauge":
        write = meter.create_gauge(name, unit, description).set
    else:
        boundaries = metric.boundaries
        write = meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries).record
    keys = tuple(KEYS[attribute] for attribute in metric.attributes)
    return [
        _Measure(
            write, fact, keys, {KEYS[attribute]: value for attribute, value in fixed.items()}, metric.kind == "counter"
        )
        for fact, fixed in metric.values.items()
    ]
