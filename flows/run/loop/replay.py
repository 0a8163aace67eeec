"""Compare a finished replay with its run: rollouts, groups, records, credit and decision, clocks aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

from tfgrpo.flows.run.exit_status import Status
from tfgrpo.flows.run.lessons import store_of
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import read_rows
from tfgrpo.stores.text import replace_surrogates

_IGNORED: Final = frozenset(
    {
        *("latency_s", "latency_ms", "duration_s", "created_at", "decided_at"),
        *("stamp_signature", "signatures", "previous", "schema_version", "explanation"),
        *("credit_lines", "credit_sha256"),
    }
)
"""Times, and values computed from times or from all lines of the task."""
_COMPARED: Final = (
    *(("rollout", "rollout_id"), ("group", "group_id"), ("record", "experience_id"), ("line of credit", "line_id")),
    ("decision", "decision"),
)
"""What is compared row by row, and the field that names a row."""


def compare_with_original(session: Session, message: str) -> tuple[Status, str]:
    """Return status and message of a finished replay: ``failed`` with the first difference, if there is one."""
    if session.replay_of is None:
        raise ValueError("not a replay")
    try:
        difference = next(_differences(session, session.replay_of), None)
    except CorruptFile as error:
        difference = str(error)
    if difference is not None:
        return "failed", f"the replay differs from its run: {replace_surrogates(difference)}"
    count = sum(record.run_id == session.run_id for record in session.store.records())
    return "finished", f"the replay came to the same store, {count} records; {message}"


def _differences(session: Session, task: TaskPaths) -> Iterator[str]:
    store = store_of(session.plan, task)
    then, now = _rows(session, task, store), _rows(session, session.task, session.store)
    for (noun, name), old, new in zip(_COMPARED, then, now, strict=True):
        yield from _in_rows(noun, name, old, new)


def _rows(session: Session, task: TaskPaths, store: ExperienceStore) -> Iterator[Iterable[dict[str, Any]]]:
    """Yield what a task has of the run, in the order of ``_COMPARED``."""
    run = task.run(session.run_id)
    yield read_rows(run.rollouts)
    yield read_rows(run.groups)
    records = (record for record in store.records() if record.run_id == session.run_id)
    yield ({**record.model_dump(mode="json"), "stamp holds": store.verify_stamp(record)} for record in records)
    yield (row for row in read_rows(task.credit) if row.get("run_id") == session.run_id)
    yield (one.model_dump(mode="json") for one in read_decisions(task.promotions) if one.run_id == session.run_id)


def _in_rows(
    noun: str, name: str, then: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    lost, more = 0, 0
    for number, (old, new) in enumerate(zip_longest(then, now), start=1):
        lost, more = lost + (new is None), more + (old is None)
        if old and new and (before := _compared(old)) != (after := _compared(new)):
            changed = [key for key in before if before[key] != after.get(key)]
            yield f"{noun} {number} differs: {old.get(name)}: {', '.join(changed)}"
    if lost or more:
        yield f"{number - more} {noun}s then, {number - lost} now"


def _compared(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _compared(each) for key, each in value.items() if key not in _IGNORED}
    return [*map(_compared, value)] if isinstance(value, list) else value
