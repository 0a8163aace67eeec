"""Read what a selection takes from its task: promoted lessons and the memory of structures. It writes no file."""

from __future__ import annotations

from tfgrpo.flows.run.champion import champion_library, champion_problems, prompt_of
from tfgrpo.pipelines.settings.learning import RetrievalSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.patterns.memory import MemoryLimits, MemoryScope, PatternMemory
from tfgrpo.tasks.shapes import PackText


def pack_of_lessons(task: TaskPaths | None, *, simulated: bool) -> str | None:
    """Return the id of the pack of a task's promoted lessons; None without any."""
    if task is None:
        return None
    store = ExperienceStore(task.experiences, approved={})
    library = champion_library(store, task, simulated=simulated)
    return library.entries[0].pack_id if library.entries else None


def lessons_of(
    task: TaskPaths | None, pack: LoadedPack, retrieval: RetrievalSettings, *, simulated: bool
) -> tuple[PackText, tuple[str, ...]]:
    """Return the pack's text with the promoted lessons of its task, and a warning for each that may not be used.

    Lessons promoted on the SIMULATED model are for that model only, and those of real models for these.
    """
    library, warnings = Library(()), []
    if task is not None:
        store = ExperienceStore(task.experiences, approved={pack.manifest.id: pack_stamp(pack)}, task_id=task.root.name)
        library = champion_library(store, task, simulated=simulated)
        warnings = champion_problems(store, task, simulated=simulated)
    rendered = prompt_of(pack, library, retrieval)
    skipped = (f"lesson {name} was not injected: {reason}" for name, reason in rendered.skipped)
    return rendered.text, (*warnings, *skipped)


def memory_of(
    settings: Settings,
    task: TaskPaths | None,
    pack: LoadedPack,
    scope: tuple[str, str],
    clock: Clock,
    *,
    simulated: bool,
) -> PatternMemory | None:
    """Return the memory of a task; None when it is off. ``scope`` is the domain and the rewarders that count."""
    asked = settings.selection.memory
    if asked.mode == "off" or task is None:
        return None
    domain, measure = scope
    memory_scope = MemoryScope(domain=domain, measure=measure, simulated=simulated, pack=pack_stamp(pack))
    return PatternMemory(task.patterns, memory_scope, MemoryLimits(asked.max_patterns, asked.half_life), clock=clock)
