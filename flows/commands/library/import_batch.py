"""``tfgrpo import FILE --file OUT.jsonl``: groups that somebody else collected, checked, as a file that can be exported."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from tfgrpo.flows.commands.library.output_files import check_output_file
from tfgrpo.flows.console.console import Console
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.exports.importing import FORMS, ImportForm, import_groups

_LONGEST: Final = 1 << 26
"""Bytes of the first line of a file of groups."""


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("source", metavar="FILE", help="JSON lines of groups, or one JSON object of four lists")
    parser.add_argument(
        "--from", dest="form", choices=FORMS, help="form of the file [jsonl for a .jsonl file, lists for any other]"
    )
    parser.add_argument(
        "--file", required=True, metavar="OUT", help="the .jsonl file to write; `tfgrpo export` takes it"
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Check everything, then write at one stroke; a file with any fault is refused whole."""
    source, target = Path(options.source), Path(options.file)
    if target.suffix != ".jsonl" or target.resolve() == source.resolve():
        raise SettingsError.one("--file", options.file, "a .jsonl file other than the one that is read")
    check_output_file(target, _holds_groups, "one of rollout groups; or remove that one first")
    form: ImportForm = options.form or ("jsonl" if source.suffix == ".jsonl" else "lists")
    groups, rollouts = import_groups(source, form, target)
    if console.as_json:
        console.result({"file": str(target), "groups": groups, "rollouts": rollouts})
    else:
        console.say(f"{pluralize(rollouts, 'rollout')} in {pluralize(groups, 'group')}", wrap=False)
        console.text(str(target))
    return 0


def _holds_groups(path: Path) -> bool:
    """Whether a file begins as we write groups."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.get("kind") == "group"
