"""Did the replay come to the same store? Compares records of one run in two stores, clocks aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.session import Session
from flows.stops import Status
from prompt_packs import approved_stamps
from stores.canonical import canonical_json
from stores.experience_store import ExperienceStore


def compare_with_original(session: Session, message: str) -> tuple[Status, str]:
    """Status and message of a finished replay: ``failed`` when any record differs."""
    if session.replay_of is None:
        raise ValueError("not a replay")
    approved = approved_stamps([session.plan.pack])
    original = list(_timeless(ExperienceStore(session.replay_of.experiences, approved=approved), session.run_id))
    replayed = list(_timeless(session.store, session.run_id))
    if original == replayed:
        return "finished", f"the replay came to the same store, {len(replayed)} records; {message}"
    place = next((at for at, pair in enumerate(zip(original, replayed, strict=False)) if pair[0] != pair[1]), None)
    where = f"record {place + 1} differs" if place is not None else f"{len(original)} records then, {len(replayed)} now"
    return "failed", f"the replay came to another store: {where}"


def _timeless(store: ExperienceStore, run_id: str) -> Iterator[str]:
    for record in store.records():
        if record.run_id == run_id:
            fields: dict[str, Any] = record.model_dump(mode="json", exclude={"created_at"})
            yield canonical_json(fields)
