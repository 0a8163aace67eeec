"""Which options do commands share? Those of the settings, derived from the settings class, where tasks are kept, and RUN."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator

from tfgrpo.flows.run.index import LATEST, find_run, known_runs, known_tasks
from tfgrpo.pipelines.settings.layers import LeafOption, leaf_options
from tfgrpo.pipelines.settings.pipeline_file import shipped_pipelines
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.identifiers import ACCEPTED

_PREFIX = "setting:"
_NUMBERS = {int: "N", float: "X"}
_DEFAULTS = "Defaults hold where neither the pipeline file nor the variable in parentheses says otherwise."


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``--pipeline``, ``--set`` and an option for every setting that has a flag. Values stay text until resolved."""
    parser.usage = f"{parser.prog} [options]"
    parser.epilog = _DEFAULTS
    parser.add_argument(
        "--pipeline",
        default="tfgrpo-learning",
        metavar="P",
        help=f"a pipeline file, or by name: {', '.join(shipped_pipelines())} [tfgrpo-learning]",
    )
    add_setting_flags(parser, ((leaf.flag, leaf) for leaf in leaf_options() if leaf.flag is not None))


def add_setting_flags(parser: argparse.ArgumentParser, flags: Iterable[tuple[str, LeafOption]]) -> None:
    """Add a group of options, one for each setting, and ``--set`` for the others."""
    settings = parser.add_argument_group("settings")
    for flag, leaf in flags:
        if leaf.type is bool:
            settings.add_argument(flag, dest=_PREFIX + leaf.key, action="store_const", const="true", help=_help(leaf))
        else:
            settings.add_argument(flag, dest=_PREFIX + leaf.key, metavar=_metavar(leaf), help=_help(leaf))
    settings.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting by its dotted key; `tfgrpo config` lists them",
    )


def asked_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings given on the command line, as raw text by dotted key.

    Of one option given again the last counts, as usual. Raises ``SettingsError`` for a bad ``--set``, and for one that
    says something else than the option of the same setting.
    """
    assigned = dict(_assigned(options.assignments))
    flagged = {
        name.removeprefix(_PREFIX): value
        for name, value in vars(options).items()
        if name.startswith(_PREFIX) and value is not None
    }
    twice = [key for key, value in flagged.items() if assigned.get(key, value) != value]
    if twice:
        raise SettingsError([Problem(f"--set {key}", "another than its option", "one value") for key in twice])
    return assigned | flagged


def _assigned(assignments: Iterable[str]) -> Iterator[tuple[str, str]]:
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise SettingsError.one("--set", "no KEY=VALUE", "KEY=VALUE, such as tfgrpo.min_spread=0.1")
        yield key.strip(), value


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add ``--out`` and ``--task-id``, as the settings of the same names."""
    defaults = {leaf.flag: leaf.default for leaf in leaf_options()}
    parser.add_argument("--out", metavar="DIR", help=f"where tasks are kept [{defaults['--out']}] (TFGRPO_OUT)")
    parser.add_argument(
        "--task-id", metavar="TASK", help=f"name of the task [{defaults['--task-id']}] (TFGRPO_TASK_ID)"
    )


def place_of(options: argparse.Namespace) -> TaskPaths:
    """The task that the options, else the environment, else the defaults name. Raises ``SettingsError``."""
    paths = unchecked_place_of(options)
    if not paths.root.is_dir():
        out = paths.root.parent
        tasks = ", ".join(known_tasks(out)) or f"there is none in {out}"
        raise SettingsError.one("--task-id", repr(paths.root.name), f"a task that was run: {tasks}")
    return paths


def unchecked_place_of(options: argparse.Namespace) -> TaskPaths:
    """The same task, which need not be there yet. Raises ``SettingsError`` for a name that is none."""
    defaults = {leaf.flag: str(leaf.default) for leaf in leaf_options()}
    if options.out is not None and not options.out.strip():
        raise SettingsError.one("--out", repr(options.out), "a directory that tasks are kept in")
    out = options.out or os.environ.get("TFGRPO_OUT") or defaults["--out"]
    task = options.task_id
    if task is None:
        task = os.environ.get("TFGRPO_TASK_ID") or defaults["--task-id"]
    try:
        return TaskPaths.of(out, task)
    except ValueError as error:
        raise SettingsError.one("--task-id", repr(task), ACCEPTED) from error


def add_run(parser: argparse.ArgumentParser, says: str) -> None:
    """Add the positional RUN, and where its task is kept."""
    parser.add_argument("run", metavar="RUN", help=f"{says}, or {LATEST} for the newest of the task")
    add_place(parser)


def run_of(options: argparse.Namespace) -> RunPaths:
    """The run that RUN names: of the task that is named, else of the only task that has it. Raises ``SettingsError``."""
    try:
        run = find_run(unchecked_place_of(options), options.run, everywhere=not names_task(options))
    except ValueError as error:
        raise SettingsError.one("RUN", repr(options.run), ACCEPTED) from error
    if run is None:
        task = place_of(options)
        raise SettingsError.one("RUN", repr(options.run), f"a run of {task.root}: {known_runs(task)}")
    return run


def names_task(options: argparse.Namespace) -> bool:
    """Whether the options or the environment name a task."""
    return options.task_id is not None or bool(os.environ.get("TFGRPO_TASK_ID"))


def _metavar(leaf: LeafOption) -> str:
    if leaf.choices:
        return f"{{{','.join(leaf.choices)}}}"
    return _NUMBERS.get(leaf.type, "TEXT")


def _help(leaf: LeafOption) -> str:
    says = leaf.help.replace("``", "").replace(". None", ". Absent").replace("None", "absent")
    default = f" [{leaf.default}]" if leaf.default is not None and leaf.type is not bool else ""
    variable = f" ({leaf.env})" if leaf.env else ""
    return f"{says.rstrip('.')}{default}{variable}".replace("%", "%%")
