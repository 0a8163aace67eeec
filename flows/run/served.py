"""Keep the lessons in force of a task at hand in a process that outlives nights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfgrpo.flows.run.lessons import pack_of_lessons, screened, short_enough, sound_library
from tfgrpo.prompt_packs import merge_experiences
from tfgrpo.prompt_packs.inject import lessons_block
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.stores.errors import StoreError, TfgrpoError
from tfgrpo.stores.experiences.decisions import WAY_OUT, lost_decision
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths


class ServedLessons:
    """The lessons in force of a task, read again when a decision changes them."""

    def __init__(
        self, task: TaskPaths, packs_root: Path | None, say: Callable[[str], None], *, simulated: bool
    ) -> None:
        """``simulated``: whether the lessons of simulated models count, or those of real ones. ``say`` gets warnings."""
        self._task = task
        self._packs_root = packs_root
        self._say = say
        self._simulated = simulated
        self._read_at: object = ()
        self._pack: LoadedPack | None = None
        self._library = Library(())
        self._block = ""
        self.problem = ""
        """Why the newest lessons cannot be read; empty when they are."""

    def block(self) -> str:
        """Return the block of lessons; empty without any.

        What cannot be read is reported, and the lessons before it stay in force.
        """
        try:
            self._refresh()
            return self._block
        except (TfgrpoError, OSError, ValueError) as error:
            self._say(f"no lessons for a call: {error}")
            return ""

    def facts(self) -> dict[str, Any]:
        """Return what is in force, as JSON."""
        self.block()
        ids = [entry.experience_id for entry in self._library.entries]
        pack = None if self._pack is None else self._pack.manifest.id
        library = self._library.library_id if ids else None
        return {"pack": pack, "library": library, "lessons": ids, "problem": self.problem}

    def why_none(self) -> str:
        """Return why no lessons are in force."""
        with suppress(TfgrpoError, OSError, ValueError):  # reported when they were read
            if not self._simulated and pack_of_lessons(self._task, simulated=True) is not None:
                return f"those of {self._task.root} were learned on the simulated model, for --model simulated alone"
        return f"none is in force in {self._task.root} yet"

    def _refresh(self) -> None:
        state = self._state()
        if state == self._read_at:
            return
        self.problem = ""
        self._read_at = state  # first: what cannot be read is tried again only when it has changed
        try:
            self._read()
        except (TfgrpoError, OSError, ValueError) as error:
            self.problem = str(error)
            self._say(f"the lessons of {self._task.root} cannot be read; those before stay in force: {error}")
        self._read_at = self._state()  # of the pack that was found

    def _state(self) -> tuple[tuple[int, ...], ...]:
        """Return what changes with the decisions, and with the pack, whose new version ends its lessons."""
        files = [self._task.promotions, *([] if self._pack is None else [self._pack.root / "manifest.json"])]
        found = (file.stat() if file.exists() else None for file in files)
        return tuple(() if one is None else (one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def _read(self) -> None:
        if lost := lost_decision(self._task.promotions):
            self._say(f"warning: no lesson is in force: {lost}; accepted: {WAY_OUT}")
        elif self._pack is not None and not self._task.promotions.exists():
            raise StoreError(f"{self._task.promotions} is no longer there")
        name = pack_of_lessons(self._task, simulated=self._simulated)
        pack, library, block = None, Library(()), ""
        if name is not None:
            pack = load_prompt_pack(name, self._packs_root)
            store = ExperienceStore(
                self._task.experiences, approved=approved_stamps([pack]), task_id=self._task.root.name
            )
            library, warnings = sound_library(store, self._task, simulated=self._simulated)
            library, refused = screened(library)
            for warning in (*warnings, *refused):
                self._say(f"warning: {warning}")
            block = lessons_block(merge_experiences(pack, short_enough(library.entries, pack)).text)
        self._pack, self._library, self._block = pack, library, block
