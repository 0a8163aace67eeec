"""``tfgrpo packs``: stamp a pack after editing it, verify packs, render what an actor would be told."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfgrpo.flows.commands.library.task_experiences import (
    add_packs_root,
    open_experiences,
    packs_root_of,
    shown_champion,
)
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import refuse_idle
from tfgrpo.flows.run.champion import most_valuable
from tfgrpo.prompt_packs.inject import render_pack
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs, load_prompt_pack
from tfgrpo.prompt_packs.stamping import stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import PackError, Problem, SettingsError
from tfgrpo.stores.experiences.record import ExperienceRecord

ACTIONS = ("stamp", "verify", "render")


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.usage = f"{parser.prog} {{{','.join(ACTIONS)}}} [PACK] [options]"
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "pack",
        nargs="?",
        metavar="PACK",
        help="verify, render: id or domain, verify without it takes all; stamp: id or directory",
    )
    add_packs_root(parser, shipped="instead of")
    parser.add_argument("--task-id", metavar="TASK", help="render: with the lessons promoted in this task")
    parser.add_argument("--out", metavar="DIR", help="render: where that task is kept [out] (TFGRPO_OUT)")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Do what was asked; ``verify`` exits with 2 when a pack does not verify."""
    refuse_idle(options, options.action, {"out": ("render",), "task_id": ("render",)})
    root = packs_root_of(options) or SHIPPED_ROOT
    if options.action == "verify":
        return _verify(root, options.pack, console)
    if options.pack is None:
        raise SettingsError.one(
            f"tfgrpo packs {options.action}", "no PACK", f"one of {', '.join(known_packs(root)) or 'none'}"
        )
    return _stamp(root, options.pack, console) if options.action == "stamp" else _render(root, options, console)


def _stamp(root: Path, name: str, console: Console) -> int:
    directory = Path(name) if Path(name).is_dir() else root / name
    if not directory.is_dir():
        raise PackError.one("PACK", repr(name), f"a directory, or one of {', '.join(known_packs(root))}")
    manifest = stamp_pack(directory, utc_now)
    _answer(console, {"pack": manifest.id, "stamp": manifest.stamp}, f"{manifest.id}: stamped {manifest.stamp}")
    return 0


def _verify(root: Path, name: str | None, console: Console) -> int:
    stamps: dict[str, str] = {}
    problems: list[Problem] = []
    for each in [name] if name else known_packs(root):
        try:
            pack = load_prompt_pack(each, root)
            stamps[pack.manifest.id] = pack.manifest.stamp
        except PackError as error:
            problems.extend(error.problems)
    if stamps and not console.as_json:
        console.text("\n".join(f"{pack}: verifies, stamp {stamp[:12]}" for pack, stamp in stamps.items()))
    if problems:
        raise PackError(problems)
    if not stamps:
        raise PackError.one("--packs-root", str(root), "a directory with packs in it")
    if console.as_json:
        console.result({"ok": True, "packs": stamps})
    return 0


def _render(root: Path, options: argparse.Namespace, console: Console) -> int:
    """The text as an actor gets it; with a task, that includes the lessons promoted there."""
    if options.out is not None and options.task_id is None:
        raise SettingsError.one("--out", "no --task-id", "--out only with --task-id TASK")
    pack = load_prompt_pack(options.pack, root)
    lessons: list[ExperienceRecord] = []
    if options.task_id is not None:
        lessons = most_valuable(shown_champion(open_experiences(options), console), pack.manifest.experience_slots)
    text = render_pack(pack, lessons)
    _answer(console, {"pack": pack.manifest.id, "text": text}, text)
    return 0


def _answer(console: Console, value: dict[str, object], text: str) -> None:
    if console.as_json:
        console.result(value)
    else:
        console.text(text)
