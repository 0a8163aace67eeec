"""Read the options that several commands share: the settings, the directory of a task, and RUN."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgrpo.flows.console.parsing import Parser
from tfgrpo.flows.run.index import find_run, known_runs, known_tasks, task_named
from tfgrpo.pipelines.settings.fields import SettingField, fields_by_key
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.text import clean_text

if TYPE_CHECKING:
    from tfgrpo.flows.console.console import Console
    from tfgrpo.flows.run.prepare import Prepared
    from tfgrpo.pipelines.settings.layers import Resolved
    from tfgrpo.pipelines.settings.tree import Settings

_PREFIX = "setting:"
_MAX_CHARS = 200
_TOKEN = re.compile(r"[\x21-\x7e]+")
_NUMBERS = {int: "N", float: "X"}


def add_settings(parser: Parser, keys: Mapping[str, str]) -> None:
    """Add an option for each setting, and ``--set`` for the others. Values stay text until resolved.

    ``keys``: dotted keys by the names of the options, with underscores.
    """
    group = parser.add_argument_group("settings")
    for name, key in keys.items():
        leaf = fields_by_key()[key]
        metavar = f"{{{','.join(leaf.choices)}}}" if leaf.choices else _NUMBERS.get(leaf.type, "TEXT")
        is_switch = leaf.type is bool
        value: dict[str, Any] = {"action": "store_const", "const": "true"} if is_switch else {"metavar": metavar}
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, group=group, dest=_PREFIX + key, help=_help(leaf), **value)
    parser.add_argument(
        "--set",
        group=group,
        dest="assignments",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting by its dotted key; `tfgrpo config` lists them",
    )


def asked_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the command line, as raw text by dotted key; of an option given twice the last counts.

    Raise ``SettingsError`` for a malformed ``--set``, and for one that differs from the option of the same setting.
    """
    assigned: dict[str, str] = {}
    for assignment in options.assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise SettingsError.one("--set", "no KEY=VALUE", "KEY=VALUE, such as tfgrpo.min_spread=0.1")
        assigned[key.strip()] = value
    flagged = {
        name.removeprefix(_PREFIX): value
        for name, value in vars(options).items()
        if name.startswith(_PREFIX) and value is not None
    }
    twice = [key for key, value in flagged.items() if assigned.get(key, value) != value]
    if twice:
        raise SettingsError([Problem(f"--set {key}", "another than its option", "one value") for key in twice])
    return assigned | flagged


def prepared_run(options: argparse.Namespace, *, preflight: bool = True, test: bool = False) -> Prepared:
    """Return the checked run that the options ask for. Raise ``ConfigError`` with every problem."""
    # Everything a run consists of takes most of a second to import; other commands do not need it.
    from tfgrpo.flows.orchestration.request import RunRequest  # noqa: PLC0415
    from tfgrpo.flows.run.prepare import prepare  # noqa: PLC0415

    named = {name: vars(options).get(name) for name in ("run_id", "resume", "replay")}
    request = RunRequest(pipeline=options.pipeline, settings=dict(asked_settings(options)), test=test, **named)
    return prepare(request, os.environ, preflight=preflight)


def existing_task(options: argparse.Namespace, console: Console) -> TaskPaths:
    """Return the task that the options, else the environment name; else say which one was used last, and return that.

    Raises ``SettingsError``.
    """
    task = task_named(options.task_id, options.out)
    out, name = task.root.parent, repr(task.root.name)
    if task.root.is_dir():
        say_which(task, options, console)
        return task
    if known := known_tasks(out):
        raise SettingsError.one("--task-id", name, f"a task that was run: {', '.join(known)}")
    first = "`tfgrpo run --dry-run` makes the first"
    if names_task(options):
        raise SettingsError.one("--task-id", name, f"a task that was run; there are no runs in {out} yet, {first}")
    raise SettingsError.one(str(out), "no runs yet", f"a directory with runs; {first}")


def say_which(task: TaskPaths, options: argparse.Namespace, console: Console) -> None:
    """Say to people which task is meant, if none is named and there are several."""
    if not names_task(options) and len(known_tasks(task.root.parent)) > 1:
        console.say(f"task {task.root.name}, the one used last; --task-id names another")


def with_used_task(resolved: Resolved) -> Settings:
    """Return the settings, with the task that was used last where nothing names one."""
    settings = resolved.settings
    if resolved.sources["task_id"] != "default":
        return settings
    return settings.model_copy(update={"task_id": task_named(None, settings.out).root.name})


def names_task(options: argparse.Namespace) -> bool:
    """Return whether the options or the environment name a task."""
    return options.task_id is not None or bool(os.environ.get("TFGRPO_TASK_ID"))


def run_of(options: argparse.Namespace, console: Console) -> RunPaths:
    """Return the run in the directory RUN, or of that name.

    It is of the task that is named, else of the one used last, else of the only one that has it. Raise ``SettingsError``.
    """
    if (here := RunPaths(Path(options.run).resolve())).manifest.is_file():
        return here
    task = task_named(options.task_id, options.out)
    run = find_run(task, options.run, everywhere=not names_task(options))
    if run is None:
        task = existing_task(options, console)
        raise SettingsError.one("RUN", repr(options.run), f"a run of {task.root}: {known_runs(task)}")
    return run


def packs_root_of(options: argparse.Namespace) -> Path | None:
    """Return the directory of packs that the option, else the environment, names."""
    root = options.packs_root or os.environ.get("TFGRPO_PACKS_ROOT")
    return Path(root) if root else None


def checked_text(option: str, text: str | None) -> str:
    """Return what a person says for the record, cleaned. Raise ``SettingsError`` for none and for more than 200 characters."""
    cleaned = clean_text(text or "")
    if not 0 < len(cleaned) <= _MAX_CHARS:
        given = "nothing" if text is None else repr(text[:60])
        raise SettingsError.one(option, given, f"a text of 1 to {_MAX_CHARS} characters")
    return cleaned


def token_of(options: argparse.Namespace, env: Mapping[str, str], problems: list[Problem]) -> str | None:
    """Return the token that ``--token-env`` names, if any; add a problem for one that no header can carry."""
    if options.token_env is None:
        return None
    token = env.get(options.token_env, "")
    if _TOKEN.fullmatch(token) is None:
        # The name is not repeated: it may be the token itself, in the wrong place.
        given = "a variable with other text" if token else "a variable that is empty or not set"
        problems.append(Problem("--token-env", given, "the name of one with printable ASCII without spaces"))
    return token


def _help(leaf: SettingField) -> str:
    # The texts are Python's: on a command line None is an option that is not there, and argparse formats by %.
    text = leaf.help.replace("``", "").replace(". None", ". Absent").replace("None", "absent")
    default = f" [{leaf.default}]" if leaf.default is not None and leaf.type is not bool else ""
    variable = f" ({leaf.env})" if leaf.env else ""
    return f"{text.rstrip('.')}{default}{variable}".replace("%", "%%")
