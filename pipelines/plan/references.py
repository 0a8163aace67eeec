"""Count the references that ``number_match`` cannot compare with, before anything is served or spent."""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.rewarders import graders_of
from tfgrpo.rewarders.base import Rewarder
from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.builtin.number_match import NumberMatch, reference_value


class ReferenceCount:
    """Counts references, and those of them that are no single number."""

    def __init__(self) -> None:
        self._total, self._bad, self._first = 0, 0, ""

    def add(self, where: str, reference: object) -> None:
        """Count the reference of the item at ``where``."""
        self._total += 1
        if reference_value(reference) is None:
            self._bad += 1
            self._first = self._first or f"{where}: {reference!r:.60}"

    def add_record(self, where: str, record: object) -> None:
        """Count the ``answer`` of a record of a data mix."""
        self.add(where, record.get("answer") if isinstance(record, dict) else None)

    def warnings(self) -> tuple[str, ...]:
        """Return one sentence if any reference is no single number."""
        if not self._bad:
            return ()
        counts = f"{self._bad:,} of {self._total:,} references"
        return (
            f"{counts} are no single number, and number_match leaves their items ungraded; the first: {self._first}",
        )


def matches_numbers(grader: Grader | None) -> bool:
    """Whether a grader needs references that are single numbers."""
    return isinstance(grader, NumberMatch)


def item_warnings(rewarders: Iterable[Rewarder], items: Iterable[Item]) -> tuple[str, ...]:
    """Return the same for the items of a run with a reference. Reads them only where a rewarder needs it."""
    count = ReferenceCount()
    if any(matches_numbers(grader) for rewarder in rewarders for grader in graders_of(rewarder)):
        for item in items:
            if item.answer.strip():
                count.add(item.id, item.answer)
    return count.warnings()
