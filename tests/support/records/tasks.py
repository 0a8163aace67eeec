"""Make a task with a library in force, without a run: lessons taken in from files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.flows import cli
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.files.layout import TaskPaths

UNITS = "Name the unit of every figure."
CENTS = "Dropping the cents."
TWICE = "Check the sum twice before the answer."


class Task:
    """A task directory, and commands on it."""

    def __init__(self, out: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.paths = TaskPaths.of(out, name)
        self._out, self._capsys = out, capsys

    def tell(self, *arguments: object, code: int = 0) -> Any:
        """Run a command and return what it printed."""
        where = ("--out", str(self._out), "--task-id", self.paths.root.name)
        self._capsys.readouterr()
        assert cli.main([*map(str, arguments), *where]) == code
        return self._capsys.readouterr()

    def ask(self, *arguments: object) -> Any:
        """Run a command with ``--json`` and return its answer."""
        return json.loads(self.tell(*arguments, "--json").out)

    def learn(self, *lessons: tuple[str, str], promote: bool = True, simulated: bool = True, how: str = "") -> None:
        """Take lessons in, polarity and text each."""
        file = self._out / "lessons.json"
        file.parent.mkdir(exist_ok=True)
        said = [{"says": polarity, "text": text} for polarity, text in lessons]
        file.write_text(json.dumps({"lessons": said, "simulated": simulated}))
        options = ["--pack", "arithmetic", "--reviewed-by", "Ann", *how.split(), *(["--promote"] if promote else [])]
        self.tell("experiences", "import", file, *options)

    @property
    def texts(self) -> list[str]:
        """The lessons in force."""
        return [row["summary32"] for row in self.ask("experiences", "list")["experiences"]]

    @property
    def ids(self) -> Sequence[str]:
        """Their ids."""
        return [row["experience_id"] for row in self.ask("experiences", "list")["experiences"]]

    @property
    def decisions(self) -> list[str]:
        """What happened to the library, oldest first."""
        return [one.decision for one in promotions(self.paths.promotions)]
