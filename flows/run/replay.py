"""Compare a finished replay with its run: rollouts, groups, records, gate and promotion, clocks aside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.report.files import rows_of
from tfgrpo.flows.run.exit_status import Status
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile

_IGNORED: Final = frozenset(
    {
        *("latency_s", "latency_ms", "duration_s", "created_at", "decided_at"),
        *("stamp_signature", "signatures", "previous", "schema_version", "explanation"),
    }
)
"""Times, values computed from times, and fields that differ between versions."""
_SHOWN = 80


def compare_with_original(session: Session, message: str, gate: Mapping[str, Any] | None) -> tuple[Status, str]:
    """Return status and message of a finished replay: ``failed`` with the first difference, if there is one."""
    if session.replay_of is None:
        raise ValueError("not a replay")
    try:
        difference = next(_differences(session, session.replay_of, gate), None)
    except CorruptFile as error:
        difference = str(error)
    if difference is not None:
        return "failed", f"the replay differs from its run: {difference}"
    count = sum(1 for _ in _records(session, session.store))
    return "finished", f"the replay came to the same store, {count} records; {message}"


def _differences(session: Session, task: TaskPaths, gate: Mapping[str, Any] | None) -> Iterator[str]:
    then, now = task.run(session.run_id), session.paths
    yield from _in_rows("rollout", "rollout_id", _valid(session, then.rollouts), _valid(session, now.rollouts))
    yield from _in_rows("group", "group_id", _valid(session, then.groups), _valid(session, now.groups))
    approved = approved_stamps([session.plan.pack])
    store = ExperienceStore(task.experiences, approved=approved, task_id=session.settings.task_id)
    yield from _in_rows("record", "experience_id", _records(session, store), _records(session, session.store))
    yield from _in_rows("gate", "decision", _gate(ManifestFile(then.manifest).read().get("gate")), _gate(gate))
    yield from _in_rows("promotion", "decision", _decisions(session, task), _decisions(session, session.task))


def _valid(session: Session, path: Path) -> Iterator[dict[str, Any]]:
    """Yield all rows but those of void groups: a rewarder that timed out may be in time in the replay."""
    return (row for row in rows_of(path) if row.get("group_id") not in session.voided)


def _records(session: Session, store: ExperienceStore) -> Iterator[dict[str, Any]]:
    for record in store.records():
        if record.run_id == session.run_id:
            yield {**record.model_dump(mode="json"), "stamp holds": store.verify_stamp(record)}


def _gate(gate: Mapping[str, Any] | None) -> list[Any]:
    return [] if gate is None else [json.loads(json.dumps(gate))]


def _decisions(session: Session, task: TaskPaths) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in promotions(task.promotions) if one.run_id == session.run_id]


def _in_rows(
    noun: str, name: str, then: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    lost, more = 0, 0
    for number, (old, new) in enumerate(zip_longest(then, now), start=1):
        lost, more = lost + (new is None), more + (old is None)
        difference = _first(old, new, "") if old and new else None
        if old and difference:
            yield f"{noun} {number} differs: {old.get(name)}: {difference}"
    if lost or more:
        yield f"{number - more} {noun}s then, {number - lost} now"


def _first(old: Any, new: Any, path: str) -> str | None:
    """Return the first difference of two JSON values. Fields that only one of them has do not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = [key for key in old if key in new and key not in _IGNORED]
        pairs = [(old[key], new[key], f"{path}.{key}" if path else key) for key in both]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(*pair, f"{path}[{place}]") for place, pair in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else f"{path} was {_shown(old)}, is {_shown(new)}"
    return next((found for pair in pairs if (found := _first(*pair)) is not None), None)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
