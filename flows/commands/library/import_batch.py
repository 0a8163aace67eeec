"""``tfgrpo import FILE --file OUT.jsonl``: check groups of another program and write them as a file for ``export``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from tfgrpo.flows.commands.library.output_files import check_output_file
from tfgrpo.flows.console.console import Console
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.importing import ImportForm, import_groups

_MAX_LINE_BYTES: Final = 1 << 26


def execute(options: argparse.Namespace, console: Console) -> int:
    """Check everything, then write in one step; a file with any fault is refused whole."""
    if options.file is None:
        raise SettingsError.one("--file", "nothing", "the .jsonl file to write")
    source, target = Path(options.source), Path(options.file)
    if target.suffix != ".jsonl" or target.resolve() == source.resolve():
        raise SettingsError.one("--file", options.file, "a .jsonl file other than the one that is read")
    check_output_file(target, _is_groups_file, "one of rollout groups; or remove that one first")
    form: ImportForm = options.form or ("jsonl" if source.suffix == ".jsonl" else "lists")
    groups, rollouts = import_groups(source, form, target)
    if console.as_json:
        console.result({"file": str(target), "groups": groups, "rollouts": rollouts})
    else:
        console.say(f"{pluralize(rollouts, 'rollout')} in {pluralize(groups, 'group')}", wrap=False)
        console.text(str(target))
    return 0


def _is_groups_file(path: Path) -> bool:
    """Return whether the first line of a file is a group as we write it."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(_MAX_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.get("kind") == "group"
