"""Render ``report.html``: self-contained, and a pure function of the files of a task and a run.

Fields that an older manifest or a run that ended early lacks are omitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from inspect import isfunction
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, UndefinedError

from tfgrpo.flows.console import figures
from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import ARMS
from tfgrpo.flows.report import attempts
from tfgrpo.flows.report.attempts import PHASES, ViewLimits, item_views, worst_items
from tfgrpo.flows.report.calibration import compared_pairs
from tfgrpo.flows.report.files import JsonObject, RoleCost, Rollouts, learned, read_costs, read_run_groups
from tfgrpo.flows.report.night import Night, place_options
from tfgrpo.flows.report.nights import COLUMNS, picture
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.metrics import Column, Summary, aggregate
from tfgrpo.stores.runs import expected_shape
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import chance

_ROLES = {
    "rollout": "attempts",
    "agent": "attempts (own agent)",
    "gateway": "calls of own agents",
    "digest": "digests of long attempts",
    "reflect": "reflection",
    "curate": "curation",
    "shorten": "shortening",
    "judge": "judging",
    "tool": "tools",
}
_ITEMS_SHOWN = 50
_ITEM_LIMITS = ViewLimits(attempts=6, steps=6, chars=400)
"""Limits for each item on the page, so that it stays small: `tfgrpo show` has the rest."""


def write_report(night: Night) -> Path:
    """Write the page of a run and return its path. Raises ``CorruptFile`` or ``StoreError`` naming the file."""
    with expected_shape(night.run.root, UndefinedError):
        page = _template().render(_page(night))
    replace_text(night.run.report, page)
    return night.run.report


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tfgrpo.flows"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    for module in (figures, attempts):
        own = (each for each in vars(module).values() if isfunction(each) and each.__module__ == module.__name__)
        environment.filters |= {each.__name__: each for each in own}
    environment.filters |= {"chance": chance, "compared_pairs": compared_pairs, "pluralize": pluralize}
    return environment.get_template("report.html.j2")


def _page(night: Night) -> dict[str, Any]:
    task, run = night.task, night.run
    with expected_shape(run.groups):
        groups = read_run_groups(run)
    for text, reason in night.block("tfgrpo").get("rejected", ()):
        groups.refuse(text, reason)
    lessons, rollouts = learned(night)
    packs = night.block("settings").get("packs_root")
    return {
        "night": night,
        "manifest": night.manifest,
        "tfgrpo": night.block("tfgrpo"),
        "place": place_options(task),
        "packs": f" --packs-root {shlex.quote(packs)}" if packs else "",
        "chart": picture(night.history),
        "columns": COLUMNS,
        "arms": list(_arms(run, rollouts)),
        "costs": _costs(run),
        "rollouts": rollouts,
        "groups": groups,
        "lessons": lessons,
        "texts": {each.experience_id: f"{each.polarity}: {each.summary32}" for each, *_ in lessons.known},
        "items": item_views(task, run, worst_items(rollouts.items)[:_ITEMS_SHOWN], _ITEM_LIMITS),
        "limits": _ITEM_LIMITS,
        "items_left_out": max(0, len(rollouts.items) - _ITEMS_SHOWN),
    }


def _labelled(labels: Mapping[str, str], names: Collection[str]) -> list[tuple[str, str]]:
    """Return names with their labels, in the order of the labels; names without one come last."""
    order = [*labels, *sorted(set(names) - set(labels))]
    return [(name, labels.get(name, name)) for name in order if name in names]


def _arms(run: RunPaths, rollouts: Rollouts) -> Iterator[tuple[str, str, JsonObject, Summary]]:
    """Yield epoch, label, figures and tokens of each arm, also of an epoch that did not end."""
    # Not from ``per-epoch.json``, which is written at the end of an epoch.
    epochs = aggregate(read_objects(run.metrics), run.metrics) if run.metrics.is_file() else {}
    for epoch, block in epochs.items():
        for name, label in _labelled(ARMS, block["arms"]):
            phase = PHASES.get(block["phase"], "")
            tokens = rollouts.tokens.get((int(epoch), name), Column()).summary()
            yield epoch, phase if name == "group" else f"{phase}, {label}", block["arms"][name], tokens


def _costs(run: RunPaths) -> list[tuple[str, RoleCost, float | None]]:
    roles = read_costs(run)
    known = {role: float(cost.usd.summary()["sum"] or 0.0) for role, cost in roles.items()}
    total = sum(known.values())
    return [(label, roles[role], known[role] / total if total else None) for role, label in _labelled(_ROLES, roles)]
