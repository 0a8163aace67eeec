"""Write the parts of the pages that are made from the code: settings, metrics, and the picture of the house.

    python -m docs.tables

It replaces the text between the markers ``<!-- table NAME -->`` and ``<!-- end -->``. A test compares.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, get_args

from pydantic_core import to_jsonable_python

from docs import house
from tfgrpo.pipelines.settings.layers import SettingField, setting_fields
from tfgrpo.stores.outcomes import OutcomeName, Phase, Signal
from tfgrpo.stores.telemetry.setup import KEYS, ExperienceOp, Metric, RoleName, TokenType, ToolOutcome, all_metrics

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("docs/settings.md", "docs/observability.md", "docs/architecture.md")
PICTURE: Final = ROOT / "docs" / "house.svg"
_MARKED = re.compile(r"(?P<open><!-- table (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<close><!-- end -->)", re.DOTALL)


def every_setting() -> str:
    """All leaves of the settings."""
    rows = [(_code(leaf.key), _doors(leaf), _default(leaf.default), leaf.accepted, leaf.help) for leaf in setting_fields()]
    return markdown(("setting", "option and variable", "default", "accepted", "meaning"), rows)


def settings_with_an_option() -> str:
    """The settings that have an option or a variable."""
    rows = [
        (_code(leaf.flag or ""), _code(leaf.env or ""), _default(leaf.default), leaf.help)
        for leaf in setting_fields()
        if leaf.flag or leaf.env
    ]
    return markdown(("option", "environment", "default", "meaning"), rows)


def our_metrics() -> str:
    """Our own instruments."""
    rows = [
        (_code(metric.name), metric.kind, _code(metric.unit), _keys(metric), metric.description)
        for metric in all_metrics()
        if not metric.name.startswith("gen_ai.")
    ]
    return markdown(("metric", "kind", "unit", "attributes", "what"), rows)


def convention_metrics() -> str:
    """Instruments of the GenAI conventions."""
    rows = [
        (_code(metric.name), metric.kind, _code(metric.unit), _keys(metric))
        for metric in all_metrics()
        if metric.name.startswith("gen_ai.")
    ]
    return markdown(("metric", "kind", "unit", "attributes"), rows)


def metric_values() -> str:
    """Attributes whose values are known beforehand."""
    sets = (
        ("phase", "everywhere", get_args(Phase)),
        ("role", "model calls; a role that is none of these is `other`", get_args(RoleName)),
        ("outcome", "rollouts", get_args(OutcomeName)),
        ("outcome", "tool calls", get_args(ToolOutcome)),
        ("outcome", "`tfgrpo.dataserver.grades`", ("scored", "ungraded")),
        ("signal", "groups", get_args(Signal)),
        ("op", "operations on lessons", get_args(ExperienceOp)),
        ("token_type", "tokens; `total` for those of tools", get_args(TokenType)),
    )
    rows = [(_code(KEYS[name]), where, ", ".join(map(_code, values))) for name, where, values in sets]
    return markdown(("attribute", "of", "values"), rows)


def boundaries() -> str:
    """Boundaries of the histograms, with the metrics that have them."""
    shared: dict[tuple[float, ...], list[str]] = {}
    for metric in all_metrics():
        if metric.boundaries is not None:
            shared.setdefault(metric.boundaries, []).append(_code(metric.name))
    rows = [(", ".join(names), ", ".join(f"{edge:.10g}" for edge in edges)) for edges, names in shared.items()]
    return markdown(("histograms", "boundaries"), rows)


TABLES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "settings": every_setting,
        "options": settings_with_an_option,
        "metrics": our_metrics,
        "metric-values": metric_values,
        "boundaries": boundaries,
        "convention-metrics": convention_metrics,
        "tour": house.tour,
    }
)


def filled(text: str) -> str:
    """A page with every marked table made anew."""
    return _MARKED.sub(lambda match: f"{match['open']}{TABLES[match['name']]()}\n{match['close']}", text)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> int:
    """Bring the pages up to date; exit code 1 when any of them had to be changed."""
    changed = 0
    for name in PAGES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            changed = 1
    if PICTURE.read_text(encoding="utf-8") != house.picture():
        PICTURE.write_text(house.picture(), encoding="utf-8")
        changed = 1
    return changed


def _keys(metric: Metric) -> str:
    return ", ".join(_code(key) for key in sorted(metric.keys))


def _doors(leaf: SettingField) -> str:
    return " ".join(_code(door) for door in (leaf.flag, leaf.env) if door)


def _default(value: object) -> str:
    plain = to_jsonable_python(value)
    if plain is None:
        return "–"
    return _code(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    sys.exit(main())
