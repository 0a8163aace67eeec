"""Make a task with a library in force, without a run: lessons taken in from files, rows and decisions written by hand."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.records.promotions import decision, record_decision
from tests.support.records.records import NOW
from tfgrpo.flows import cli
from tfgrpo.stores.experiences.credit import CreditFile, Row, Word
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.files.layout import TaskPaths

UNITS = "Name the unit of every figure."
CENTS = "Dropping the cents."
TWICE = "Check the sum twice before the answer."


class Task:
    """A task directory, and commands on it."""

    def __init__(self, out: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.paths = TaskPaths.of(out, name)
        self._out, self._capsys, self._numbers = out, capsys, count()

    def tell(self, *arguments: object, code: int = 0) -> Any:
        """Run a command and return what it printed."""
        where = ("--out", str(self._out), "--task-id", self.paths.root.name)
        self._capsys.readouterr()
        assert cli.main([*map(str, arguments), *where]) == code
        return self._capsys.readouterr()

    def ask(self, *arguments: object) -> Any:
        """Run a command with ``--json`` and return its answer."""
        return json.loads(self.tell(*arguments, "--json").out)

    def learn(self, *lessons: tuple[str, str], in_force: bool = True, simulated: bool = True) -> None:
        """Take lessons in, polarity and text each; they are on trial, or in force at once."""
        file = self._out / "lessons.json"
        file.parent.mkdir(exist_ok=True)
        written = [{"says": polarity, "text": text} for polarity, text in lessons]
        file.write_text(json.dumps({"lessons": written, "simulated": simulated, "pack_id": "arithmetic"}))
        self.tell("experiences", "import", file, "--reviewed-by", "Ann", *(["--in-force"] if in_force else []))

    def measure(self, *one: str, difference: float, rows: int = 20, night: int = 0, **fields: Any) -> None:
        """Record rows: groups of four whose side with these lessons was better by a difference, as a share of the range."""
        given: dict[str, Any] = {"run_id": f"n{night}", "source": "learning", "other": (), "simulated": True, **fields}
        CreditFile(self.paths.credit).append(
            [
                Row(
                    line_id=f"{night}/{next(self._numbers)}",
                    night=night,
                    item_id=f"q{number}",
                    one=one,
                    rewards_one=(0.5 + difference, 0.5 + difference),
                    rewards_other=(0.5, 0.5),
                    conditions="m",
                    created_at=NOW,
                    **given,
                )
                for number in range(rows)
            ]
        )

    def say(self, name: str, said: Any, amount: float, night: int = 0, **fields: Any) -> None:
        """Record a word about a lesson."""
        given: dict[str, Any] = {"run_id": f"n{night}", "epoch": 1, "simulated": True, "created_at": NOW, **fields}
        word = Word(night=night, experience_id=name, said=said, amount=amount, **given)
        CreditFile(self.paths.credit).append([word.named()])

    def decide(self, verdict: Any, ids: Sequence[str] = (), **fields: Any) -> None:
        """Record the decision of a night."""
        record_decision(self.paths.promotions, decision(verdict, ids, **fields))

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
        return [one.decision for one in read_decisions(self.paths.promotions)]
