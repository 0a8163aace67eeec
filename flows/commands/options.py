"""Options that several commands share: the settings, the task, and the directory of packs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.flows.console.parsing import Option
from tfgrpo.flows.run.index import find_run, known_runs, known_tasks, refuse_pruned, task_named, without_pipeline
from tfgrpo.pipelines.settings.layers import fields_by_key
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.text import clean_text

if TYPE_CHECKING:
    from tfgrpo.flows.console.console import Console
    from tfgrpo.pipelines.settings.layers import Resolved
    from tfgrpo.pipelines.settings.tree import Settings

_MAX_CHARS = 200
# Parts of the help by the section of the settings; the others are under ``Task``.
_SECTIONS: Final = {"tfgrpo": "Learning", "dataset": "Data", "selection": "Selection", "model": "Model", "budget": "Budget"}
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """Which task is meant: that of the options, else of the environment, else the one used last."""

    out: str | None = None
    task_id: str | None = None
    packs_root: Path | None = None
    """Directory of the packs, where a command has that option, too."""

    @property
    def is_named(self) -> bool:
        """Whether the options or the environment name the task."""
        return self.task_id is not None or bool(os.environ.get("TFGRPO_TASK_ID"))

    @property
    def task(self) -> TaskPaths:
        """The task, which need not exist. Raises ``SettingsError``."""
        return task_named(self.task_id, self.out)

    def chosen(self, console: Console) -> TaskPaths:
        """Return the task; say which it is if none is named and there are several. Raise ``SettingsError``."""
        task = self.task
        if not self.is_named and task.root.is_dir() and len(known_tasks(task.root.parent)) > 1:
            console.say(f"task {task.root.name}, the one used last; --task-id names another")
        return task

    def existing(self, console: Console) -> TaskPaths:
        """Return ``chosen``. Raise ``SettingsError`` for one that was not run."""
        task = self.chosen(console)
        if task.root.is_dir():
            return task
        out, first = task.root.parent, "`tfgrpo run --dry-run` makes the first"
        tasks = ", ".join(known_tasks(out)) or f"there are no runs in {out} yet, {first}"
        if self.is_named:
            raise SettingsError.one("--task-id", repr(task.root.name), f"a task that was run: {tasks}")
        raise SettingsError.one(str(out), "no runs yet", f"a directory with runs; {first}")

    def run(self, name: str, console: Console) -> RunPaths:
        """Return the run in a directory, or of a name. Raise ``SettingsError``, also for a pruned one.

        It is of the task that is named, else of the one used last, else of the only one that has it.
        """
        run = find_run(self.task, name, everywhere=not self.is_named)
        if run is None:
            task = self.existing(console)
            raise SettingsError.one("RUN", repr(name), f"a run of {task.root}: {known_runs(task)}")
        return refuse_pruned(run)


def options_of_settings(keys: Mapping[str, str], only: Sequence[str] | None) -> Iterator[Option]:
    """Yield the options of settings, and ``--set`` for all. ``keys``: dotted keys by the names of the options."""
    for name in keys if only is None else only:
        field = fields_by_key()[keys[name]]
        metavar = f"[{'|'.join(field.choices)}]" if field.choices else {int: "N", float: "X"}.get(field.type, "TEXT")
        how: dict[str, Any] = {"metavar": metavar}
        if field.type is bool:
            # Values stay text until all layers of the settings are resolved; None is an option that was not given.
            how = {"is_flag": True, "flag_value": "true", "default": None, "type": str}
        section = _SECTIONS.get(field.key.partition(".")[0], "Task")
        # The texts are Python's: on a command line None is an option that is not there.
        text = field.help.replace("``", "").replace(". None", ". Absent").replace("None", "absent").rstrip(".")
        text += f" [{field.default}]" if field.default is not None and field.type is not bool else ""
        text += f" ({field.env})" if field.env else ""
        yield Option(f"--{name.replace('_', '-')}", text, key=field.key, section=section, **how)
    text = "any other setting by its dotted key; `tfgrpo config` lists them"
    yield Option("--set", text, name="assignments", multiple=True, metavar="KEY=VALUE")


def grouped(values: Mapping[str, Any], options: Sequence[Option]) -> dict[str, Any]:
    """Return the values of a command line for a function: those of settings, and those of a task, as one each.

    Raise ``SettingsError`` for a malformed ``--set``, and for one that differs from the option of the same setting.
    """
    arguments = dict(values)
    if options:
        flagged = {each.key: arguments.pop(str(each.name)) for each in options if each.key is not None}
        flagged = {key: value for key, value in flagged.items() if value is not None}
        by_key = assigned(arguments.pop("assignments"))
        if twice := [key for key, value in flagged.items() if by_key.get(key, value) != value]:
            raise SettingsError([Problem(f"--set {key}", "another than its option", "one value") for key in twice])
        arguments["settings"] = by_key | flagged
    # The pipeline of a run, which has another default for data that are named.
    if "planned" in arguments:
        settings, pipeline = arguments["settings"], arguments.pop("planned")
        data = settings.get("dataset.path") or settings.get("dataset.mix") or os.environ.get("TFGRPO_DATASET")
        if pipeline is None and data and not arguments.get("resume") and not arguments.get("replay"):
            own = without_pipeline(data, settings)
            pipeline = own.pop("pipeline")
            arguments["settings"] = own | settings
        arguments["pipeline"] = pipeline or "tfgrpo-learning"
    if "packs_root" in arguments:
        root = arguments["packs_root"] or os.environ.get("TFGRPO_PACKS_ROOT")
        arguments["packs_root"] = Path(root) if root else None
    if "task_id" in arguments:
        choice = TaskChoice(arguments.pop("out"), arguments.pop("task_id"), arguments.pop("packs_root", None))
        arguments["choice"] = choice
    return arguments


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``--set``, of one assigned twice the last. Raise ``SettingsError`` for malformed ones."""
    pairs = [each.partition("=") for each in assignments]
    if any(not separator or not key.strip() for key, separator, _ in pairs):
        raise SettingsError.one("--set", "no KEY=VALUE", "KEY=VALUE, such as tfgrpo.min_spread=0.1")
    return {key.strip(): value for key, _, value in pairs}


def with_used_task(resolved: Resolved) -> Settings:
    """Return the settings, with the task that was used last where nothing names one. Raise ``SettingsError`` for a bad name."""
    settings = resolved.settings
    named = None if resolved.sources["task_id"] == "default" else settings.task_id
    return settings.model_copy(update={"task_id": task_named(named, settings.out).root.name})


def checked_remark(name: str, text: str | None) -> str:
    """Return what a person says for the record, cleaned. Raise ``SettingsError`` for none and for more than 200 characters."""
    cleaned = clean_text(text or "")
    if not 0 < len(cleaned) <= _MAX_CHARS:
        raise SettingsError.one(name, "nothing" if text is None else repr(text[:60]), f"a text of 1 to {_MAX_CHARS} characters")
    return cleaned


def token_of(variable: str | None, env: Mapping[str, str]) -> str | None:
    """Return the token that ``--token-env`` names, if any. Raise ``SettingsError`` for one that no header can carry."""
    if variable is None:
        return None
    token = env.get(variable, "")
    if _TOKEN.fullmatch(token) is None:
        # The name is not repeated: it may be the token itself, in the wrong place.
        value = "a variable with other text" if token else "a variable that is empty or not set"
        raise SettingsError.one("--token-env", value, "the name of one with printable ASCII without spaces")
    return token
