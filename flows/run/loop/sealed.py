"""Test the champion on the sealed items, against no lessons, and record the result."""

from __future__ import annotations

from tfgrpo.flows.run.loop.learn import sweep
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.tests import SealedTest, record_test
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.tasks.gate import decide_gate


def open_sealed(session: Session) -> str:
    """Run both arms, ``champion`` without lessons and ``candidate`` with the library, and return the result.

    The interval is the gate's, with its worst case where the arms lost unequal shares of their attempts. Nothing is
    decided. A resumed run keeps the result on record.
    """
    gate = session.settings.gate
    evidence = sweep(session, Library(()), session.champion)
    decision = decide_gate(evidence, gate, session.plan.score_range)
    interval = decision.interval
    test = SealedTest(
        run_id=session.run_id,
        tested_at=session.clock(),
        library_id=session.champion.library_id,
        experience_ids=tuple(entry.experience_id for entry in session.champion.entries),
        model=session.plan.models.name,
        simulated=session.plan.simulated,
        estimate=interval.estimate if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confidence=gate.confidence,
        pairs=len(evidence.pairs),
        lost=len(evidence.lost_pairs),
        group_size=gate.group_size,
        seen=_seen(session),
    )
    test = record_test(session.task.tests, test)
    session.books.manifest.update(test=test.model_dump(mode="json"))
    return f"tested once, lessons against none: {test.result}"


def _seen(session: Session) -> int:
    """Return how many of the sealed items other runs of the task, tests aside, have attempted."""
    sealed = {item.id for item in session.plan.eval_items}
    seen: set[str] = set()
    for path in (session.replay_of or session.task).root.glob("runs/*/manifest.json"):
        run = RunPaths(path.parent)
        if not ManifestFile(path).read().get("opens_sealed") and run.items.is_file():
            seen |= sealed & {row["item_id"] for row in read_rows(run.items)}
    return len(seen)
