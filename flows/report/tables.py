"""Rows of the report's tables: epochs, signals, costs, tools, checks and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfgrpo.flows.report.files import Groups, Json, RoleCost, Rollouts
from tfgrpo.stores.runs.per_epoch import Column, Summary

_ARMS = {"train": "learning", "champion": "sweep, before", "candidate": "sweep, after"}
_ROLES = {
    "rollout": "attempts",
    "agent": "attempts (own agent)",
    "reflect": "reflection",
    "curate": "curation",
    "shorten": "shortening",
    "judge": "judging",
    "tool": "tools",
}
SIGNALS = ("all_pass", "mixed", "flat", "all_fail", "lost")
"""Signals of groups, from good to bad; only ``mixed`` ones teach."""
_FLIPS = 12


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a stacked bar."""

    name: str
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm of one epoch."""

    epoch: str
    what: str
    groups: int
    reward: str
    scored: int
    lost: int
    signals: tuple[Share, ...]
    latency: tuple[str, ...]
    """Seconds of a rollout: median, p90, p99."""
    tokens: tuple[str, ...]
    """Of a rollout: median, p90, p99."""


def arm_rows(epochs: Mapping[str, Json], tokens: Mapping[tuple[int, str], Column]) -> list[ArmRow]:
    """A row per epoch and arm, out of ``per-epoch.json``; champion before candidate."""
    return [
        _arm_row(epoch, name, block["arms"][name], tokens)
        for epoch, block in epochs.items()
        for name in sorted(block["arms"], key=_place_of)
    ]


def _place_of(arm: str) -> tuple[int, str]:
    return (list(_ARMS).index(arm) if arm in _ARMS else len(_ARMS)), arm


def _arm_row(epoch: str, name: str, arm: Json, tokens: Mapping[tuple[int, str], Column]) -> ArmRow:
    used = tokens[int(epoch), name].summary() if (int(epoch), name) in tokens else {}
    return ArmRow(
        epoch=epoch,
        what=_ARMS.get(name, name),
        groups=arm["groups"],
        reward=number(arm["reward_mean"]["mean"]),
        scored=arm["outcomes"].get("scored", 0),
        lost=arm["rollouts"] - arm["outcomes"].get("scored", 0),
        signals=tuple(
            Share(signal.replace("_", " "), count, 100.0 * count / arm["groups"])
            for signal in SIGNALS
            if (count := arm["signals"].get(signal, 0))
        ),
        latency=tuple(seconds(arm["latency_ms"][name], 1000.0) for name in ("p50", "p90", "p99")),
        tokens=_attempt_tokens(used),
    )


def _attempt_tokens(used: Summary) -> tuple[str, ...]:
    figures = [whole(used.get(name)) for name in ("p50", "p90", "p99")]
    unknown = int(used.get("unknown") or 0)
    if unknown:
        figures[0] = f"{figures[0]} ({unknown:,} unknown)" if used["count"] else "unknown"
    return tuple(figures)


def cost_rows(roles: Mapping[str, RoleCost]) -> list[tuple[str, ...]]:
    """Role, calls, failed, prompt and completion tokens, cost, its share, median and p90 seconds."""
    known = {role: cost.usd.summary() for role, cost in roles.items()}
    total = sum(float(summary["sum"] or 0.0) for summary in known.values())
    order = [*(role for role in _ROLES if role in roles), *sorted(set(roles) - set(_ROLES))]
    rows: list[tuple[str, ...]] = []
    for role in order:
        cost, usd, latency = roles[role], known[role], roles[role].latency_s.summary()
        rows.append(
            (
                _ROLES.get(role, role),
                f"{cost.calls:,}",
                f"{cost.failures:,}",
                _tokens(cost.prompt, cost),
                _tokens(cost.completion, cost),
                _money(usd["sum"], int(usd["unknown"] or 0)),
                f"{100.0 * float(usd['sum'] or 0.0) / total:.0f} %" if total else "–",
                seconds(latency["p50"]),
                seconds(latency["p90"]),
            )
        )
    return rows


def tool_rows(tools: Sequence[Json]) -> list[tuple[str, ...]]:
    """Tool, calls, errors, tokens, cost, seconds of a call on average."""
    return [
        (
            tool["tool"],
            f"{tool['calls']:,}",
            f"{tool['errors']:,}",
            f"{tool['tokens']:,}",
            _money(tool["cost_usd"], 0 if tool["cost_usd"] is not None else tool["calls"]),
            seconds(tool["latency_ms"] / tool["calls"], 1000.0) if tool["calls"] else "–",
        )
        for tool in tools
    ]


def lost_rows(rollouts: Rollouts) -> list[tuple[str, str, str]]:
    """How rollouts without a reward ended, how many, and a reason or two."""
    return [(name, f"{count:,}", "; ".join(rollouts.reasons[name])) for name, count in rollouts.lost.most_common()]


def flip_rows(groups: Groups) -> list[tuple[str, str, str]]:
    """Held-out items whose mean reward changed most: id, before, after."""
    pairs = [(item, arms["champion"], arms["candidate"]) for item, arms in groups.arms.items() if len(arms) == 2]
    changed = sorted((pair for pair in pairs if pair[1] != pair[2]), key=lambda pair: (-abs(pair[2] - pair[1]), pair))
    worse = [pair for pair in changed if pair[2] < pair[1]]
    better = [pair for pair in changed if pair[2] > pair[1]]
    # Losses first: a gain is what one hopes for, a loss is what one has to look at.
    shown = [*worse[:_FLIPS], *better[: max(_FLIPS - len(worse), _FLIPS // 2)]]
    return [(item, number(before), number(after)) for item, before, after in shown]


def setting_rows(manifest: Json) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """Settings as key, value, source: those that somebody gave, and the defaults."""
    rows = [(row["key"], _value(row["value"]), row["source"]) for row in manifest.get("settings_table", ())]
    return [row for row in rows if row[2] != "default"], [row for row in rows if row[2] == "default"]


def number(value: float | None) -> str:
    """A reward."""
    return "–" if value is None else f"{value:.3f}"


def whole(value: float | None) -> str:
    """A count."""
    return "–" if value is None else f"{value:,.0f}"


def seconds(value: float | None, per_second: float = 1.0) -> str:
    """A span of time, with as many digits as make sense."""
    if value is None:
        return "–"
    span = value / per_second
    return f"{span * 1000:.0f} ms" if span < 1 else f"{span:.1f} s"


def _tokens(known: int, cost: RoleCost) -> str:
    if cost.without_usage:
        return f"{known:,} + unknown" if known else "unknown"
    return f"{known:,}" if known else "–"


def _money(usd: float | None, unknown: int) -> str:
    known = "" if usd is None else f"${usd:.4f}"
    if not unknown:
        return known or "–"
    return f"{known} + {unknown:,} unknown" if known else "unknown"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
