"""Which library is in force, and which of its lessons does an actor get? Read from the store and the promotions."""

from __future__ import annotations

from stores.experience_store import ExperienceStore, value_order
from stores.layout import TaskPaths
from stores.library import Library
from stores.models import ExperienceRecord
from stores.promotions import champion_ids


def champion_library(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> Library:
    """The library that was promoted last, rebuilt from the store's records; before any promotion, the empty one.

    A run asks for that of its own kind of model, simulated or real; None asks for the last of either.
    """
    return Library.of_ids(store.records(), champion_ids(paths.promotions, simulated=simulated))


def most_valuable(library: Library, slots: int) -> list[ExperienceRecord]:
    """As many lessons as a pack has slots, in the library's own order: a text that changes little stays cached."""
    best = {entry.experience_id for entry in sorted(library.entries, key=value_order)[:slots]}
    return [entry for entry in library.entries if entry.experience_id in best]
