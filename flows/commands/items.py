"""``tfgrpo items``: turn conversations and traces into a dataset."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file
from tfgrpo.pipelines.datasets.imports import import_items
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.text import pluralize


def execute(options: argparse.Namespace, console: Console) -> None:
    """Write the items of a file."""
    if options.to is None:
        raise SettingsError.one("--to", "nothing", "the .jsonl file to write")
    target, force = Path(options.to), bool(options.force)
    check_output_file(target, lambda _: force, "an existing one with --force", option="--to", endings=(".jsonl",))
    rows, skipped = import_items(Path(options.file))
    replace_text(target, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    answered = sum("answer" in row for row in rows)
    if not console.as_json:
        more = f"; {skipped} skipped: no question in text alone, or asked before" if skipped else ""
        console.say(f"{pluralize(len(rows), 'item')}, {answered} with an answer{more}", wrap=False)
    console.answer({"file": str(target), "items": len(rows), "answered": answered, "skipped": skipped}, str(target))
