"""Write the Markdown that Prefect shows of a run: id, decision, rewards, cost, lessons, warnings, report, how to go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.observer import EPOCH_COLUMNS, epoch_rows
from tfgrpo.flows.run.exit_status import resume_command
from tfgrpo.stores.text import pluralize

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#!~&]|:(?=//))")
_LESSONS: Final = 50
_WARNINGS: Final = 20


def night_page(status: str, message: str, run_id: str | None, details: Mapping[str, Any]) -> str:
    """The page of a run as it is now. ``status`` is that of its summary, or ``running``.

    Lessons, warnings and messages may contain a model's words: they are shown as text, never as Markdown or HTML.
    """
    gate = details.get("gate") or {}
    decision = gate.get("decision") if status == "finished" else None
    parts = [f"# {str(decision or status).upper()}"]
    if details.get("simulated"):
        parts.append("SIMULATED model: these figures show that the machine works, not that an agent got better.")
    parts.extend(_text(line) for line in message.splitlines())
    if facts := list(_facts(run_id, gate, details)):
        parts.append(_table(facts[0], facts[1:]))
    if rows := list(epoch_rows(details)):
        parts.append(_table(EPOCH_COLUMNS, rows))
    lessons = [f"{each['polarity']}: {each['text']} ({each['id']})" for each in details.get("lessons", ())]
    parts.extend(_listed("Lessons", lessons, _LESSONS))
    parts.extend(_listed("Warnings", details.get("warnings", ()), _WARNINGS))
    return "\n\n".join(parts) + "\n"


def _facts(run_id: str | None, gate: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    facts = {
        "run": run_id,
        "task": details.get("task_id"),
        "before": _arm(gate.get("champion")),
        "after": _arm(gate.get("candidate")),
        "difference": _arm(gate.get("difference")),
        "spent": details.get("spent"),
        "calls": (details.get("ledger") or {}).get("calls"),
        "lost": _lost(details.get("lost")),
        "directory": _whole(details.get("run")),
        "report": _whole(details.get("report")),
        "go on": _go_on(details),
    }
    return ((name, str(value)) for name, value in facts.items() if value is not None)


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _arm(interval: Mapping[str, float] | None) -> str | None:
    return None if interval is None else "{estimate:.3f}, interval {low:.3f} … {high:.3f}".format_map(interval)


def _lost(lost: Mapping[str, int] | None) -> str | None:
    return f"{lost['rollouts']} of {pluralize(lost['of'], 'rollout')}" if lost and lost["rollouts"] else None


def _go_on(details: Mapping[str, Any]) -> str | None:
    command = resume_command(details)
    return (
        None if command is None else f"{command}; for a run of a deployment also Retry. No answered call is sent again"
    )


def _listed(title: str, lines: Sequence[str], most: int) -> Iterator[str]:
    if lines:
        yield f"## {title}: {len(lines)}"
        more = [f"- and {len(lines) - most} more in the report"] if len(lines) > most else []
        yield "\n".join([*(f"- {_text(line)}" for line in lines[:most]), *more])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(map(_text, row))} |" for row in (columns, *rows))
    return "\n".join([head, f"|{' --- |' * len(columns)}", *body])


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))
