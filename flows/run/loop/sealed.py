"""Test the champion on the sealed items, against no lessons, and record the result: each library once."""

from __future__ import annotations

from contextlib import suppress

from tfgrpo.flows.run.champion import starting_library
from tfgrpo.flows.run.loop.learn import sweep
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.tests import SealedTest, record_test, sealed_tests
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.tasks.gate import decide_gate

_NAME = "tfgrpo test"


def refuse_second_test(plan: Plan) -> None:
    """Raise ``SettingsError`` without a champion, and for one that was tested or whose test can be resumed."""
    champion, _ = starting_library(plan)
    if not champion.entries:
        raise SettingsError.one(_NAME, "no lessons in force", "a task whose gate has promoted a library")
    of_library = (champion.library_id, plan.simulated)
    for test in sealed_tests(plan.paths.tests):
        if (test.library_id, test.simulated) == of_library:
            given = f"the library {test.library_id}, which run {test.run_id} has tested: {test.result}"
            raise SettingsError.one(_NAME, given, "a library that was not tested yet: each is, once")
    for path in plan.paths.root.glob("runs/*/manifest.json"):
        with suppress(OSError, CorruptFile), expected_shape(path.parent):
            begun = ManifestFile(path).read()
            if begun.get("opens_sealed") and (begun["champion"]["library_id"], begun["simulated"]) == of_library:
                run_id = path.parent.name
                given = f"the library {of_library[0]}, whose test has begun as run {run_id}"
                raise SettingsError.one(_NAME, given, f"`tfgrpo run --resume {run_id}`, which ends it")


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
