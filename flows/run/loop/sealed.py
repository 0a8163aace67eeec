"""Test what is in force on the sealed items, against no lessons, and record the result: each library once."""

from __future__ import annotations

from contextlib import suppress

from tfgrpo.flows.run.lessons import starting_library
from tfgrpo.flows.run.loop.learn import swept_sides
from tfgrpo.flows.run.loop.session import Session
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.statistics.summary import paired_confidence_sequence
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.experiences.tests import SealedTest, record_test, sealed_tests
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_rows
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.tasks.decision import CONFIDENCE

_NAME = "tfgrpo test"


def refuse_second_test(plan: Plan) -> None:
    """Raise ``SettingsError`` without lessons in force, and for a library that was tested or whose test can be resumed."""
    library, _ = starting_library(plan)
    if not library.entries:
        raise SettingsError.one(_NAME, "no lessons in force", "a task with lessons in force")
    of_library = (library.library_id, plan.simulated)
    for test in sealed_tests(plan.paths.tests):
        if (test.library_id, test.simulated) == of_library:
            given = f"the library {test.library_id}, which run {test.run_id} has tested: {test.result}"
            raise SettingsError.one(_NAME, given, "a library that was not tested yet: each is, once")
    for path in plan.paths.root.glob("runs/*/manifest.json"):
        with suppress(OSError, CorruptFile), expected_shape(path.parent):
            begun = ManifestFile(path).read()
            if begun.get("opens_sealed") and (begun["in_force"]["library_id"], begun["simulated"]) == of_library:
                run_id = path.parent.name
                given = f"the library {of_library[0]}, whose test has begun as run {run_id}"
                raise SettingsError.one(_NAME, given, f"`tfgrpo run --resume {run_id}`, which ends it")


def open_sealed(session: Session) -> str:
    """Run the library in force and no lessons on the sealed items, and return the result.

    Nothing is decided. A resumed run keeps the result on record.
    """
    swept = swept_sides(session, session.serving.entries)
    differences = swept.differences(session.plan.score_range)
    interval = paired_confidence_sequence(differences, CONFIDENCE) if differences else None
    test = SealedTest(
        run_id=session.run_id,
        tested_at=session.clock(),
        library_id=session.serving.library_id,
        experience_ids=tuple(entry.experience_id for entry in session.serving.entries),
        model=session.plan.models.name,
        simulated=session.plan.simulated,
        estimate=None if interval is None else 100 * interval.estimate,
        low=None if interval is None else 100 * interval.low,
        high=None if interval is None else 100 * interval.high,
        confidence=CONFIDENCE,
        pairs=len(differences),
        lost=swept.items - len(differences),
        group_size=session.plan.sweep_size,
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
