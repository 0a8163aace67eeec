"""``tfgrpo packs``: stamp a pack after editing it, verify packs, render what an actor would be told."""

from __future__ import annotations

import argparse
from pathlib import Path

from flows.console import Console
from prompt_packs import approved_stamps, known_packs, load_prompt_pack, render_pack, stamp_pack, verify_pack
from prompt_packs.loader import SHIPPED_ROOT
from stores.clock import utc_now
from stores.errors import PackError
from stores.experience_store import ExperienceStore
from stores.layout import TaskPaths
from stores.models import ExperienceRecord


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("action", choices=("stamp", "verify", "render"))
    parser.add_argument(
        "pack", nargs="?", help="pack id or domain; `stamp` also takes a directory [default: all, to verify]"
    )
    parser.add_argument("--packs-root", metavar="DIR", help="directory of your own packs")
    parser.add_argument("--out", default="out", help="where tasks are kept, to render with lessons [default: out]")
    parser.add_argument("--task-id", help="render with the lessons promoted in this task")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Do what was asked; ``verify`` exits with 2 when a pack does not verify."""
    root = Path(options.packs_root) if options.packs_root else SHIPPED_ROOT
    if options.action == "verify":
        return _verify(root, options.pack, console)
    if options.pack is None:
        raise PackError.one(
            "tfgrpo packs", options.action, f"a pack to {options.action}: {', '.join(known_packs(root))}"
        )
    if options.action == "stamp":
        directory = Path(options.pack) if Path(options.pack).is_dir() else root / options.pack
        manifest = stamp_pack(directory, utc_now)
        _answer(console, {"pack": manifest.id, "stamp": manifest.stamp}, f"{manifest.id}: stamped {manifest.stamp}")
        return 0
    pack = load_prompt_pack(options.pack, root)
    text = render_pack(pack, _champion(options))
    _answer(console, {"pack": pack.manifest.id, "text": text}, text)
    return 0


def _verify(root: Path, name: str | None, console: Console) -> int:
    found = {pack: list(verify_pack(root / pack)) for pack in ([name] if name else known_packs(root))}
    bad = any(found.values())
    lines = [f"{pack}: {'verifies' if not problems else '; '.join(problems)}" for pack, problems in found.items()]
    _answer(console, {"ok": not bad, "packs": found}, "\n".join(lines))
    return 2 if bad else 0


def _champion(options: argparse.Namespace) -> list[ExperienceRecord]:
    if options.task_id is None:
        return []
    from flows.champion import champion_library  # noqa: PLC0415 - needed for lessons only

    paths = TaskPaths.of(options.out, options.task_id)
    root = Path(options.packs_root) if options.packs_root else SHIPPED_ROOT
    approved = approved_stamps([load_prompt_pack(pack, root) for pack in known_packs(root)])
    return list(champion_library(ExperienceStore(paths.experiences, approved=approved), paths).entries)


def _answer(console: Console, value: dict[str, object], text: str) -> None:
    if console.as_json:
        console.result(value)
    else:
        console.text(text)
