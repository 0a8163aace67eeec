"""Which library is in force? The one that was promoted last; before any promotion, the empty one."""

from __future__ import annotations

from stores.experience_store import ExperienceStore
from stores.layout import TaskPaths
from stores.library import Library
from stores.promotions import champion_ids


def champion_library(store: ExperienceStore, paths: TaskPaths) -> Library:
    """The promoted library of a task, rebuilt from the store's records."""
    return Library.of_ids(store.records(), champion_ids(paths.promotions))
