"""The library in force, from the store and the promotions, and the prompt with its lessons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tfgrpo.flows.run.resume import settings_of
from tfgrpo.pipelines.settings.learning import RetrievalSettings
from tfgrpo.prompt_packs.inject import merge_each
from tfgrpo.prompt_packs.loader import stamps_in_force
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.experiences.library import (
    IN_FORCE,
    Library,
    Promotion,
    chain_problems,
    in_force,
    promotions,
    read_state,
    write_state,
)
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.store import ExperienceStore, best_of
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.text import count_words, pluralize
from tfgrpo.tasks.shapes import PackText

if TYPE_CHECKING:
    from tfgrpo.pipelines.plan.plan import Plan

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def champion_library(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> Library:
    """Return the library in force, from the store's records; empty before any promotion.

    ``simulated`` selects the promotions of simulated or of real models; None: of real ones, else of simulated ones.
    """
    return promoted_library(store, in_force(promotions(paths.promotions), simulated=simulated))


def promoted_library(store: ExperienceStore, promoted: Promotion | None) -> Library:
    """Return the library that a promotion names; empty for None."""
    return Library(()) if promoted is None else library_of(store, promoted.experience_ids, promoted.signatures)


def library_of(store: ExperienceStore, ids: Sequence[str], signatures: Mapping[str, str] = _NONE) -> Library:
    """Return the library of these experiences, in their order, without those that the task's store lacks.

    Of several records with one id, the one with the given signature counts; without a given one, the first whose stamp
    verifies, so that a line added by hand replaces no lesson; else the first.
    """
    found = filter(store.owns, store.find(ids))
    fitting = [one for one in found if signatures.get(one.experience_id, one.stamp_signature) == one.stamp_signature]
    return Library.of_ids(sorted(fitting, key=lambda record: not store.verify_stamp(record)), ids)


def signatures_in(store: ExperienceStore, library: Library) -> dict[str, str]:
    """Return the signatures of a library's records as stored: a resumed run has signed them again, at another time."""
    stored = library_of(store, [entry.experience_id for entry in library.entries])
    return {entry.experience_id: entry.stamp_signature for entry in (*library.entries, *stored.entries)}


def champion_problems(
    store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None, every: bool = False
) -> list[str]:
    """Return a warning for each reason why less is in force than was promoted.

    With ``every``, the records of all promotions are checked, else those of the one in force.
    """
    decisions = [one for one in promotions(paths.promotions) if one.decision in IN_FORCE]
    latest = in_force(decisions, simulated=simulated)
    looked_at = decisions if every else [latest] if latest is not None else []
    named = [pair for one in looked_at for pair in ((name, one.signatures.get(name)) for name in one.experience_ids)]
    return [*chain_problems(paths.promotions), *missing(store, named), *_view_problems(paths)]


def missing(store: ExperienceStore, named: Collection[tuple[str, str | None]]) -> list[str]:
    """Return a warning that names the records (id and signature, if known) that the task's store lacks."""
    found = [record for record in store.find(name for name, _ in named) if store.owns(record)]
    held = {pair for one in found for pair in ((one.experience_id, one.stamp_signature), (one.experience_id, None))}
    lost = list(dict.fromkeys(name for name, signature in named if (name, signature) not in held))
    what = f"{pluralize(len(lost), 'promoted lesson')} left out, not among the task's records as promoted"
    return [f"{what}: {', '.join(lost)}"] if lost else []


def _view_problems(paths: TaskPaths) -> list[str]:
    """Warn of a champion in ``state.json`` that no promotion names: the promotion was lost, or removed by hand."""
    shown = ((read_state(paths.state) or {}).get("champion") or {}).get("experiences") or ()
    ids = {lesson["experience_id"] for lesson in shown}
    if not ids or any(ids <= set(one.experience_ids) for one in promotions(paths.promotions)):
        return []
    lessons = pluralize(len(ids), "lesson")
    return [f"{paths.state.name} shows {lessons} in force that no line of {paths.promotions.name} promotes"]


def store_of(plan: Plan, task: TaskPaths | None = None, *, clock: Clock = utc_now) -> ExperienceStore:
    """Return the store of a plan's task; of another ``task``, such as that of a replay, where one is given."""
    return ExperienceStore(
        (task or plan.paths).experiences,
        approved=approved_stamps([plan.pack]),
        task_id=plan.settings.task_id,
        max_words=plan.pack.max_words,
        epochs=plan.settings.tfgrpo.epochs,
        clock=clock,
    )


def starting_library(plan: Plan, ids: Sequence[str] | None = None) -> tuple[Library, list[str]]:
    """Return the library that a run starts from, and warnings for its lost and retired lessons.

    ``ids`` are those that a run to be continued began with; None: the library in force.
    """
    store = store_of(plan)
    if ids is None:
        return library_in_force(store, plan.paths, simulated=plan.simulated)
    # What the run itself appends repairs the file of promotions, so that no later run could tell.
    lost = [*chain_problems(plan.paths.promotions), *missing(store, [(name, None) for name in ids])]
    return _verifying(store, library_of(store, ids), lost)


def library_in_force(store: ExperienceStore, paths: TaskPaths, *, simulated: bool) -> tuple[Library, list[str]]:
    """Return the lessons in force that verify, and warnings for the others."""
    lost = champion_problems(store, paths, simulated=simulated)
    return _verifying(store, champion_library(store, paths, simulated=simulated), lost)


def _verifying(store: ExperienceStore, library: Library, warnings: list[str]) -> tuple[Library, list[str]]:
    sound = verified(library, store)
    if retired := [entry.experience_id for entry in library.entries if entry not in sound.entries]:
        what = f"{pluralize(len(retired), 'lesson')} kept out, not stamped for the pack in force"
        again = "restore the files of the pack and stamp it to have them back, else the nights learn anew"
        warnings = [*warnings, f"{what}: {again}: {', '.join(retired)}"]
    return sound, warnings


def write_view(
    store: ExperienceStore, paths: TaskPaths, task_id: str, last_run: str | None = None, *, clock: Clock = utc_now
) -> None:
    """Write the library in force into ``state.json``, whichever run promoted it. Raises ``StoreError``.

    ``last_run`` None: as it was.
    """
    promoted = in_force(promotions(paths.promotions))
    library, simulated = promoted_library(store, promoted), promoted is not None and promoted.simulated
    last_run = last_run or (read_state(paths.state) or {}).get("last_run")
    write_state(paths.state, task_id, library, last_run=last_run, simulated=simulated, clock=clock)


def verified(library: Library, store: ExperienceStore) -> Library:
    """Return the library without lessons that are not stamped for an approved pack."""
    return Library(tuple(entry for entry in library.entries if store.verify_stamp(entry)))


def screened(library: Library) -> tuple[Library, list[str]]:
    """Return the library without lessons that the screening refuses by now, and a warning for each of those.

    No prompt carries them; the screening may have been less strict when they were stored.
    """
    kept: list[ExperienceRecord] = []
    warnings: list[str] = []
    for entry in library.entries:
        if isinstance(result := screen_lesson(entry.summary32), Rejection):
            warnings.append(f"lesson {entry.experience_id} kept out by the screening: {result.reason}")
        else:
            kept.append(entry)
    return Library(tuple(kept)), warnings


def lessons_for(
    pack: LoadedPack, library: Library, retrieval: RetrievalSettings, asked: str | None
) -> list[ExperienceRecord]:
    """Return the lessons of one prompt in their order, those for the text ``asked`` among them, as ``carried`` has them."""
    return carried(short_enough(library, pack), pack.manifest.experience_slots, retrieval, asked)


class RenderedPrompt(NamedTuple):
    """A pack's text with lessons."""

    text: PackText
    skipped: Sequence[tuple[str, str]]
    """Ids of lessons that do not verify, with the reason."""


def rendered(pack: LoadedPack, chosen: Sequence[Sequence[ExperienceRecord]]) -> list[RenderedPrompt]:
    """Return a prompt for each choice of lessons. The pack is verified once for all."""
    prompts = []
    for lessons, merged in zip(chosen, merge_each(pack, chosen), strict=True):
        entries = {entry.experience_id: entry for entry in lessons}
        text = PackText(
            system=merged.text,
            digest=sha256_hex(merged.text),
            pack_id=pack.manifest.id,
            stamp=pack.manifest.stamp,
            experience_ids=merged.experience_ids,
            experiences=tuple(entries[name] for name in merged.experience_ids),
        )
        prompts.append(RenderedPrompt(text, merged.skipped))
    return prompts


def retrieval_of(task: TaskPaths, warn: Callable[[str], object]) -> RetrievalSettings:
    """Return how the newest run of a task chose the lessons of a prompt; the default without runs.

    ``warn`` gets a sentence for each run that cannot be read; then the run before it counts.
    """
    # By the file's time: reading the manifests of all nights to serve one call would take seconds.
    for path in sorted(task.root.glob("runs/*/manifest.json"), key=lambda path: -path.stat().st_mtime):
        try:
            return settings_of(RunPaths(path.parent)).tfgrpo.retrieval
        except (StoreError, OSError) as error:
            warn(f"lessons are chosen for prompts as in an older run: {error}")
    return RetrievalSettings()


def carried(
    library: Library, slots: int, retrieval: RetrievalSettings, asked: str | None = None
) -> list[ExperienceRecord]:
    """Return the lessons that a prompt with so many slots carries.

    They are those that ``ExperienceStore.fetch_top`` would choose from the same records. It cannot be used here: the store
    also contains rejected candidates, and lessons of concurrent runs. Of a library with more lessons than slots the last
    slots go to those most like the text ``asked`` with, at equal likeness to the more valuable ones. Both parts are in the
    library's order, so that prompts have one beginning.
    """
    many = len(library.entries)
    ranked = best_of(library.entries, many, min_reward=retrieval.min_reward, max_per_group=retrieval.max_per_group)
    found = min(retrieval.per_item, slots) if asked is not None and len(ranked) > slots else 0
    settled, rest = ranked[: slots - found], ranked[slots - found :]
    retrieved: list[ExperienceRecord] = []
    if found and asked is not None:
        from tfgrpo.stores.experiences.retrieval import by_likeness  # noqa: PLC0415 - few libraries outgrow the slots

        retrieved = by_likeness(rest, asked)[:found]
    parts = ({entry.experience_id for entry in part} for part in (settled, retrieved))
    return [entry for part in parts for entry in library.entries if entry.experience_id in part]


def short_enough(library: Library, pack: LoadedPack) -> Library:
    """Return the library without lessons longer than pack and run allow, so that these take no slot."""
    return Library(
        tuple(
            entry
            for entry in library.entries
            if count_words(entry.summary32) <= pack.max_words and len(entry.summary32) <= pack.max_chars
        )
    )


def pack_of_lessons(task: TaskPaths | None, *, simulated: bool) -> str | None:
    """Return the id of the pack of a task's promoted lessons; None without any."""
    if task is None:
        return None
    store = ExperienceStore(task.experiences, approved={})
    library = champion_library(store, task, simulated=simulated)
    return library.entries[0].pack_id if library.entries else None


def promoted_elsewhere(paths: TaskPaths, packs_root: Path | None, *, simulated: bool) -> list[str]:
    """Return the lessons in force of the other tasks beside this one, for other domains than its own, as task/id."""
    approved, stores = stamps_in_force(packs_root), {}
    for file in sorted(paths.root.parent.glob(f"*/{paths.promotions.name}")):
        task = TaskPaths(file.parent)
        store = ExperienceStore(task.experiences, approved=approved, task_id=task.root.name)
        stores[task.root.name] = verified(champion_library(store, task, simulated=simulated), store).entries
    own = {entry.domain for entry in stores.pop(paths.root.name, ())}
    return [f"{name}/{entry.experience_id}" for name, of in stores.items() for entry in of if entry.domain not in own]


def lessons_elsewhere(out: Path, names: Sequence[str], packs_root: Path | None) -> list[ExperienceRecord]:
    """Return the lessons that ``promoted_elsewhere`` named, without those that do not verify any more."""
    approved = stamps_in_force(packs_root)
    found: list[ExperienceRecord] = []
    for task, ids in groupby(names, key=lambda name: name.partition("/")[0]):
        store = ExperienceStore(TaskPaths(out / task).experiences, approved=approved, task_id=task)
        library = library_of(store, [name.partition("/")[2] for name in ids])
        found += verified(library, store).entries
    return found


def lessons_of(
    task: TaskPaths | None, pack: LoadedPack, asked: str | None, *, simulated: bool
) -> tuple[PackText, tuple[str, ...]]:
    """Return the pack's text with the promoted lessons of its task, and a warning for each that may not be used.

    Of more lessons than the pack has slots it has the ones that fit the text ``asked`` with, as the task's runs choose them.
    Lessons promoted on the SIMULATED model are for that model only, and those of real models for these.
    """
    if task is None:
        return rendered(pack, [()])[0].text, ()
    store = ExperienceStore(task.experiences, approved=approved_stamps([pack]), task_id=task.root.name)
    library, warnings = library_in_force(store, task, simulated=simulated)
    lessons = lessons_for(pack, library, retrieval_of(task, warnings.append), asked)
    return rendered(pack, [lessons])[0].text, tuple(warnings)
