"""``tfgrpo packs``: stamp a pack after editing it, verify packs, or render the prompt of an actor."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.flows.commands.lessons.experiences import open_experiences, shown_library
from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.lessons import short_enough
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, known_packs, load_prompt_pack, merge_experiences, stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import PackError, Problem, SettingsError
from tfgrpo.stores.experiences.store import ExperienceRecord


def stamp(pack: str, packs_root: Path | None, console: Console) -> None:
    """Stamp a pack after editing it."""
    root = packs_root or SHIPPED_ROOT
    directory = Path(pack) if Path(pack).is_dir() else root / pack
    if not directory.is_dir():
        raise PackError.one("PACK", repr(pack), f"a directory, or one of {', '.join(known_packs(root))}")
    manifest = stamp_pack(directory, utc_now)
    console.answer({"pack": manifest.id, "stamp": manifest.stamp}, f"{manifest.id}: stamped {manifest.stamp}")


def verify(pack: str | None, packs_root: Path | None, console: Console) -> None:
    """Check one pack, or all. Raise ``PackError`` when one does not verify."""
    root = packs_root or SHIPPED_ROOT
    stamps, problems = dict[str, str](), list[Problem]()
    for each in [pack] if pack else known_packs(root):
        try:
            manifest = load_prompt_pack(each, root).manifest
            stamps[manifest.id] = manifest.stamp
        except PackError as error:
            problems.extend(error.problems)
    if stamps and not (problems and console.as_json):
        lines = (f"{name}: verifies, stamp {stamp[:12]}" for name, stamp in stamps.items())
        console.answer({"ok": True, "packs": stamps}, "\n".join(lines))
    if problems:
        raise PackError(problems)
    if not stamps:
        raise PackError.one("--packs-root", str(root), "a directory with packs in it")


def render(pack: str, choice: TaskChoice, console: Console) -> None:
    """Print the text as an actor gets it; with a task, that includes its lessons in force."""
    if choice.out is not None and choice.task_id is None:
        raise SettingsError.one("--out", "no --task-id", "--out only with --task-id TASK")
    loaded = load_prompt_pack(pack, choice.packs_root or SHIPPED_ROOT)
    lessons: list[ExperienceRecord] = []
    if choice.task_id is not None:
        library = shown_library(open_experiences(choice, console), console)
        lessons = short_enough(library.entries, loaded)
    text = merge_experiences(loaded, lessons).text
    console.answer({"pack": loaded.manifest.id, "text": text}, text)
