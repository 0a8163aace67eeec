"""``tfgrpo packs``: stamp a pack after editing it, verify packs, or render the prompt of an actor."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfgrpo.flows.commands.lessons.experiences import open_experiences, shown_library
from tfgrpo.flows.commands.options import packs_root_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.lessons import short_enough
from tfgrpo.prompt_packs.inject import render_pack
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs, load_prompt_pack
from tfgrpo.prompt_packs.stamps import stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import PackError, Problem, SettingsError
from tfgrpo.stores.experiences.record import ExperienceRecord


def stamp(options: argparse.Namespace, console: Console) -> None:
    """Stamp a pack after editing it."""
    root, name = _root(options), _pack_of(options)
    directory = Path(name) if Path(name).is_dir() else root / name
    if not directory.is_dir():
        raise PackError.one("PACK", repr(name), f"a directory, or one of {', '.join(known_packs(root))}")
    manifest = stamp_pack(directory, utc_now)
    console.answer({"pack": manifest.id, "stamp": manifest.stamp}, f"{manifest.id}: stamped {manifest.stamp}")


def verify(options: argparse.Namespace, console: Console) -> None:
    """Check one pack, or all. Raise ``PackError`` when one does not verify."""
    root = _root(options)
    stamps: dict[str, str] = {}
    problems: list[Problem] = []
    for each in [options.pack] if options.pack else known_packs(root):
        try:
            pack = load_prompt_pack(each, root)
            stamps[pack.manifest.id] = pack.manifest.stamp
        except PackError as error:
            problems.extend(error.problems)
    if stamps and not (problems and console.as_json):
        lines = (f"{pack}: verifies, stamp {stamp[:12]}" for pack, stamp in stamps.items())
        console.answer({"ok": True, "packs": stamps}, "\n".join(lines))
    if problems:
        raise PackError(problems)
    if not stamps:
        raise PackError.one("--packs-root", str(root), "a directory with packs in it")


def render(options: argparse.Namespace, console: Console) -> None:
    """Print the text as an actor gets it; with a task, that includes its lessons in force."""
    root, name = _root(options), _pack_of(options)
    if options.out is not None and options.task_id is None:
        raise SettingsError.one("--out", "no --task-id", "--out only with --task-id TASK")
    pack = load_prompt_pack(name, root)
    lessons: list[ExperienceRecord] = []
    if options.task_id is not None:
        library = shown_library(open_experiences(options, console), console)
        lessons = short_enough(library.entries, pack)
    text = render_pack(pack, lessons)
    console.answer({"pack": pack.manifest.id, "text": text}, text)


def _root(options: argparse.Namespace) -> Path:
    return packs_root_of(options) or SHIPPED_ROOT


def _pack_of(options: argparse.Namespace) -> str:
    if options.pack is None:
        accepted = f"one of {', '.join(known_packs(_root(options))) or 'none'}"
        raise SettingsError.one(f"tfgrpo packs {options.action}", "no PACK", accepted)
    name: str = options.pack
    return name
