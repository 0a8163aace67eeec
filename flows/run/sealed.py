"""Refuse a second look at the sealed items: each library is tested once."""

from __future__ import annotations

from contextlib import suppress

from tfgrpo.flows.run.champion import starting_library
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.experiences.tests import sealed_tests
from tfgrpo.stores.runs.manifest import ManifestFile

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
        with suppress(OSError, CorruptFile, LookupError, TypeError):
            begun = ManifestFile(path).read()
            if begun.get("opens_sealed") and (begun["champion"]["library_id"], begun["simulated"]) == of_library:
                run_id = path.parent.name
                given = f"the library {of_library[0]}, whose test has begun as run {run_id}"
                raise SettingsError.one(_NAME, given, f"`tfgrpo run --resume {run_id}`, which ends it")
