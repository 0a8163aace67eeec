"""What does a selection take from its task, and what runs it? Promoted lessons, the memory of structures, the context.

It reads the task's files and writes none.
"""

from __future__ import annotations

from pathlib import Path

from tfgrpo.flows.console.version import installed_version
from tfgrpo.flows.orchestration.secrets import read_api_key
from tfgrpo.flows.run.champion import champion_library, champion_problems, prompt_of
from tfgrpo.pipelines.settings.learning import RetrievalSettings
from tfgrpo.pipelines.settings.model_choice import ModelChoice
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.patterns.memory import MemoryLimits, MemoryScope, PatternMemory
from tfgrpo.stores.telemetry.setup import TelemetryOptions
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.shapes import PackText


def pack_of_lessons(task: TaskPaths | None, *, simulated: bool) -> str | None:
    """Id of the pack that a task's promoted lessons belong to; None without any."""
    if task is None:
        return None
    store = ExperienceStore(task.experiences, approved={})
    library = champion_library(store, task, simulated=simulated)
    return library.entries[0].pack_id if library.entries else None


def lessons_of(
    task: TaskPaths | None, pack: LoadedPack, retrieval: RetrievalSettings, *, simulated: bool
) -> tuple[PackText, tuple[str, ...]]:
    """The pack's text with the lessons that its task promoted, and a warning for each that may not be used.

    Lessons that were promoted on the SIMULATED model reach no other one, nor the other way round.
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
    """The memory of a task; None when it is off. ``scope`` is the field of knowledge and what rewards mean in it."""
    asked = settings.selection.memory
    if asked.mode == "off" or task is None:
        return None
    domain, measure = scope
    place = MemoryScope(domain=domain, measure=measure, simulated=simulated, pack=pack_stamp(pack))
    return PatternMemory(task.patterns, place, MemoryLimits(asked.max_patterns, asked.half_life), clock=clock)


def context_of(
    settings: Settings, pack: LoadedPack, models: ModelChoice, selection_id: str, task_id: str | None
) -> RunContext:
    """The selection as the runtime sees it: a run that keeps no journal and writes nothing."""
    return RunContext(
        settings=settings,
        run_dir=Path(settings.out) / selection_id,
        run_id=selection_id,
        pack_id=pack.manifest.id,
        packs_root=pack.root.parent,
        read_secret=read_api_key,
        rollout_model=models.name,
        learning_model=models.reflection_name,
        base_url=models.base_url,
        telemetry=TelemetryOptions(
            service_version=installed_version(),
            run_id=selection_id,
            task_id=task_id,
            genai_metrics=settings.telemetry.genai_metrics,
            content=settings.telemetry.content,
            shutdown_s=settings.telemetry.shutdown_s,
        ),
    )
