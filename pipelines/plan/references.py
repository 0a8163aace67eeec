"""Count the references that ``number_match`` cannot compare with, before anything is served or spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.rewarders import graders_of
from tfgrpo.rewarders.base import Rewarder
from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.builtin.number_match import NumberMatch, reference_value


def reference_warnings(references: Iterable[tuple[str, object]]) -> Iterator[str]:
    """A sentence if any of the references, each with the place of its item, is no single number."""
    total, bad, first = 0, 0, ""
    for total, (place, reference) in enumerate(references, start=1):  # noqa: B007 - the last one is the count
        if reference_value(reference) is None:
            bad, first = bad + 1, first or f"{place}: {reference!r:.60}"
    if bad:
        yield (
            f"{bad:,} of {total:,} references are no single number, and number_match leaves their items ungraded; "
            f"the first: {first}"
        )


def matches_numbers(grader: Grader | None) -> bool:
    """Whether a grader needs references that are single numbers."""
    return isinstance(grader, NumberMatch)


def item_warnings(rewarders: Iterable[Rewarder], items: Iterable[Item]) -> Iterator[str]:
    """The same for the items of a run, those without a reference left out. Reads them only where a rewarder needs it."""
    if any(matches_numbers(grader) for rewarder in rewarders for grader in graders_of(rewarder)):
        yield from reference_warnings((item.id, item.answer) for item in items if item.answer.strip())
