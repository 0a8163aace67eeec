"""Which library is in force, and which of its lessons does an actor get? Read from the store and the promotions."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.settings_learning import RetrievalSettings
from prompt_packs import LoadedPack
from stores.clock import Clock, utc_now
from stores.counted import counted
from stores.experience_store import ExperienceStore, best_of
from stores.layout import TaskPaths
from stores.library import Library
from stores.models import ExperienceRecord
from stores.promotions import champion_ids, in_force, promotions
from stores.task_state import write_state
from stores.words import count_words


def champion_library(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> Library:
    """The library in force, rebuilt from the store's records; before any promotion, the empty one.

    A run asks for that of its own kind of model, simulated or real; None asks for that of a real one, and where there is
    none for that of the simulated.
    """
    return library_of(store, champion_ids(paths.promotions, simulated=simulated))


def library_of(store: ExperienceStore, ids: Sequence[str]) -> Library:
    """The library of these experiences, in their order; what the store does not hold is left out.

    Of records with one id the first whose stamp holds counts, so that a line added by hand pushes no lesson out; without
    any, the first.
    """
    wanted = set(ids)
    named = [record for record in store.records() if record.experience_id in wanted]
    return Library.of_ids(sorted(named, key=lambda record: not store.verify_stamp(record)), ids)


def library_in_force(store: ExperienceStore, paths: TaskPaths) -> tuple[Library, bool]:
    """What a person is shown: the library in force, and whether it was learned with the simulated model."""
    promoted = in_force(promotions(paths.promotions))
    return (
        (Library(()), False) if promoted is None else (library_of(store, promoted.experience_ids), promoted.simulated)
    )


def write_view(
    store: ExperienceStore, paths: TaskPaths, task_id: str, last_run: str | None, *, clock: Clock = utc_now
) -> None:
    """Bring ``state.json`` up to date with what is in force, whoever promoted it. Raises ``StoreError``."""
    library, simulated = library_in_force(store, paths)
    write_state(paths.state, task_id, library, last_run=last_run, simulated=simulated, clock=clock)


def verified(library: Library, store: ExperienceStore) -> Library:
    """The library without what is not stamped for a pack that the store takes."""
    return Library(tuple(entry for entry in library.entries if store.verify_stamp(entry)))


def retirement(library: Library, store: ExperienceStore) -> list[str]:
    """A warning for the lessons of a library that an edited pack has put out of force; none when all are in force."""
    valid = verified(library, store).entries
    retired = [entry.experience_id for entry in library.entries if entry not in valid]
    if not retired:
        return []
    return [f"{counted(len(retired), 'lesson')} retired, stamped for another version of the pack: {', '.join(retired)}"]


_ANY = RetrievalSettings()


def most_valuable(library: Library, slots: int, retrieval: RetrievalSettings = _ANY) -> list[ExperienceRecord]:
    """As many lessons as a pack has slots, in the library's own order: a text that changes little stays cached."""
    chosen = best_of(library.entries, slots, min_reward=retrieval.min_reward, max_per_group=retrieval.max_per_group)
    best = {entry.experience_id for entry in chosen}
    return [entry for entry in library.entries if entry.experience_id in best]


def short_enough(library: Library, pack: LoadedPack) -> Library:
    """The library without lessons that are longer than pack and run let in, so that they take nobody's slot."""
    return Library(tuple(entry for entry in library.entries if _fits(entry, pack)))


def _fits(entry: ExperienceRecord, pack: LoadedPack) -> bool:
    return count_words(entry.summary32) <= pack.max_words and len(entry.summary32) <= pack.max_chars
