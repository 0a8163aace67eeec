"""Keep the lessons in force of a task at hand in a process that outlives nights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.run.champion import lessons_for, library_in_force, pack_of_lessons, retrieval_of, screened
from tfgrpo.pipelines.settings.learning import RetrievalSettings
from tfgrpo.prompt_packs import merge_experiences
from tfgrpo.prompt_packs.inject import lessons_block
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.errors import StoreError, TfgrpoError
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths

_BLOCKS: Final = 1000
"""Choices of lessons whose block is kept in memory."""


class PromotedLessons:
    """The lessons in force of a task, read again when its promotions change."""

    def __init__(
        self, task: TaskPaths, packs_root: Path | None, say: Callable[[str], None], *, simulated: bool
    ) -> None:
        """``simulated``: whether the promotions of simulated models count, or those of real ones. ``say`` gets warnings."""
        self._task = task
        self._packs_root = packs_root
        self._say = say
        self._simulated = simulated
        self._read_at: object = ()
        self._pack: LoadedPack | None = None
        self._library = Library(())
        self._retrieval = RetrievalSettings()
        self._blocks: dict[tuple[str, ...], str] = {}

    def block(self, asked: str) -> str:
        """Return the block of lessons for a text; empty without any.

        What cannot be read is reported, and the lessons before it stay in force.
        """
        try:
            self._refresh()
            if self._pack is None:
                return ""
            chosen = lessons_for(self._pack, self._library, self._retrieval, asked)
            ids = tuple(entry.experience_id for entry in chosen)
            if ids not in self._blocks:
                if len(self._blocks) >= _BLOCKS:
                    self._blocks.clear()
                self._blocks[ids] = lessons_block(merge_experiences(self._pack, chosen).text)
            return self._blocks[ids]
        except (TfgrpoError, OSError, ValueError) as error:
            self._say(f"no lessons for a call: {error}")
            return ""

    def facts(self) -> dict[str, Any]:
        """Return what is in force, as JSON."""
        self.block("")
        ids = [entry.experience_id for entry in self._library.entries]
        pack = None if self._pack is None else self._pack.manifest.id
        return {"pack": pack, "library": self._library.library_id if ids else None, "lessons": ids}

    def why_none(self) -> str:
        """Return why no lessons are in force."""
        with suppress(TfgrpoError, OSError, ValueError):  # reported when they were read
            if not self._simulated and pack_of_lessons(self._task, simulated=True) is not None:
                return f"those of {self._task.root} were promoted on the simulated model, for --model simulated alone"
        return f"none was promoted in {self._task.root} yet"

    def _refresh(self) -> None:
        state = self._state()
        if state == self._read_at:
            return
        self._read_at = state  # first: what cannot be read is tried again only when it has changed
        try:
            self._read()
        except (TfgrpoError, OSError, ValueError) as error:
            self._say(f"the lessons of {self._task.root} cannot be read; those before stay in force: {error}")
        self._read_at = self._state()  # of the pack that was found

    def _state(self) -> tuple[tuple[int, ...], ...]:
        """Return what changes with the promotions, and with the pack, whose new version retires its lessons."""
        files = [self._task.promotions, *([] if self._pack is None else [self._pack.root / "manifest.json"])]
        found = (file.stat() if file.exists() else None for file in files)
        return tuple(() if one is None else (one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def _read(self) -> None:
        if self._pack is not None and not self._task.promotions.exists():
            raise StoreError(f"{self._task.promotions} is no longer there")
        name = pack_of_lessons(self._task, simulated=self._simulated)
        pack, library, retrieval = None, Library(()), RetrievalSettings()
        if name is not None:
            pack = load_prompt_pack(name, self._packs_root)
            store = ExperienceStore(
                self._task.experiences, approved=approved_stamps([pack]), task_id=self._task.root.name
            )
            library, warnings = library_in_force(store, self._task, simulated=self._simulated)
            library, refused = screened(library)
            retrieval = retrieval_of(self._task, warnings.append)
            for warning in (*warnings, *refused):
                self._say(f"warning: {warning}")
        self._pack, self._library, self._retrieval, self._blocks = pack, library, retrieval, {}
