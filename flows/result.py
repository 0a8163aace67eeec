"""The result of a learning run, read from the files of the run; the same for a new run and an old one."""

from __future__ import annotations

import html
import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.console.console import visible
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.run.index import find_run, known_runs, refuse_pruned, task_named
from tfgrpo.flows.run.lessons import decided_library
from tfgrpo.rewarders.statistics.summary import Interval
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError, python_names
from tfgrpo.stores.experiences.decisions import in_force
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.runs import expected_shape
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import CONFIDENCE

_FIRST_COLUMNS: Final = ("item_id", "epoch", "arm", "index", "outcome", "reward", "reason", "output")
"""What a notebook shows of a wide frame are its first and last columns."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson that is in force after a run.

    Examples:
        >>> [lesson.text for lesson in result.lessons if lesson.polarity == "do"]
    """

    id: str
    polarity: str
    """``do`` or ``avoid``."""
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Model calls, tokens and US dollars of a run. None is unknown: an agent that calls models itself is not measured.

    Examples:
        >>> if result.usage.cost_usd is None:
        ...     print(result.usage)
    """

    calls: int | None
    tokens: int | None
    cost_usd: float | None
    description: str
    """The known part in words, and what lost calls may add."""

    def __str__(self) -> str:
        return self.description

    @classmethod
    def of_ledger(cls, ledger: Mapping[str, Any]) -> Usage:
        """Return the usage in the ``ledger`` block of a manifest."""
        if not ledger or ledger.get("unmeasured_attempts"):
            return cls(None, None, None, str(ledger.get("spent", "unknown")))
        # Calls without a reported usage may have used, and cost, anything up to what was reserved for them.
        is_partial = bool(ledger["lost_calls"] or ledger["implausible_usage"])
        return cls(
            calls=ledger["calls"],
            tokens=None if is_partial else ledger["tokens"],
            cost_usd=None if is_partial or ledger["unknown_price_calls"] else ledger["nano_usd"] / 1e9,
            description=ledger["spent"],
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A learning run: what was decided and why, the lessons in force, and where its files are.

    Examples:
        >>> result = tfgrpo.load_run("latest", task_id="my-task")
        >>> result.decision, result.likely, [lesson.text for lesson in result.lessons]
    """

    run_id: str
    task_id: str
    status: str
    """``finished``, or ``stopped`` at a budget cap or after a first batch with nothing right; an old run may also be
    ``failed`` or ``running``."""
    message: str
    """The reason for the decision, or for the end of a run that was stopped."""
    decision: str | None
    """``in force``, ``not yet`` or ``taken back``; None when the run ended before the decision."""
    gain: Interval | None
    """What the lessons gain over none, in points (hundredths of the reward's range), by all attempts so far; None without
    a lesson that is likely to help."""
    held_out: Interval | None
    """The same on held-out items alone; None before any was compared."""
    likely: float | None
    """Probability that the gain is above zero; None without a gain."""
    lessons: tuple[Lesson, ...]
    """What is in force after the run."""
    usage: Usage
    report: Path | None
    """Page for people; None when it was not written."""
    folder: Path
    """Files of the run: journal, rollouts, manifest."""
    simulated: bool
    """The rewards are those of the SIMULATED model."""
    warnings: tuple[str, ...]

    @classmethod
    def of_run(cls, run: RunPaths) -> Result:
        """Return the result of a run from its files. Raises ``CorruptFile`` for a manifest that cannot be read."""
        run = RunPaths(run.root.resolve())
        task = TaskPaths(run.root.parent.parent)
        night = Night.of(task, run)
        with expected_shape(run.root):
            manifest, decision = night.manifest, night.decision
            library = decided_library(ExperienceStore(task.original().experiences, approved={}), in_force(night.decisions))
            total, held_out = decision.get("total"), decision.get("held_out")
            return cls(
                run_id=night.run_id,
                task_id=manifest["task_id"],
                status=manifest["status"],
                message=manifest.get("message") or "",
                decision=decision.get("decision"),
                gain=total and _interval(total, decision["attempts"]),
                held_out=held_out and _interval(held_out, decision["pairs"]),
                likely=total and total["likely"],
                lessons=tuple(Lesson(each.experience_id, each.polarity, each.summary32) for each in library.entries),
                usage=Usage.of_ledger(night.block("ledger")),
                report=run.report if run.report.is_file() else None,
                folder=run.root,
                simulated=manifest["simulated"],
                warnings=tuple(manifest.get("warnings", ())),
            )

    def rows(self) -> list[dict[str, Any]]:
        """Return the rollouts as dicts: item, arm, ``outcome`` by name, ``reward`` (None unless scored), output and usage."""
        rows: list[dict[str, Any]] = []
        for row in read_objects(RunPaths(self.folder).rollouts):
            ended = row["outcome"]
            known = {**row, "outcome": ended["name"], "reward": ended.get("reward"), "reason": ended.get("reason")}
            rows.append({name: known.get(name) for name in _FIRST_COLUMNS} | known)
        return rows

    def frame(self) -> Any:
        """Return the rollouts as a pandas DataFrame, a row each. Raises ``ImportError`` without pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("frame() needs pandas: pip install 'tfgrpo[pandas]'; rows() works without it") from error
        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        return "\n".join(f"{label:>9}  {text}" for label, text in self._morning())

    def _repr_html_(self) -> str:
        lessons = "".join(f"\n{lesson.polarity}: {lesson.text}" for lesson in self.lessons)
        page = html.escape(visible(f"{self}\n{pluralize(len(self.lessons), 'lesson')} in force{lessons}"))
        link = f'<p><a href="{html.escape(self.report.resolve().as_uri())}">report</a></p>' if self.report else ""
        return f"<pre>{page}</pre>{link}"

    def _morning(self) -> Sequence[tuple[str, str]]:
        """Return the morning page of the run, as of now; without its files, how it ended and why there is no page."""
        run = RunPaths(self.folder)
        try:
            if not run.manifest.is_file():
                raise CorruptFile(f"{run.manifest}: there is no such file")
            lines: Sequence[tuple[str, str]] = Night.of(TaskPaths(run.root.parent.parent), run).lines
        except (StoreError, OSError) as error:
            simulated = "SIMULATED " if self.simulated else ""
            ended = f"{simulated}{self.run_id} of {self.task_id}, {self.status}: {self.message}"
            lines = (("run", ended), ("look at", str(error)))
        return [(label, visible(text)) for label, text in lines]


def _interval(gain: Mapping[str, float], compared: int) -> Interval:
    return Interval(gain["mean"], gain["low"], gain["high"], compared, CONFIDENCE)


@python_names()
def load_run(run: str | os.PathLike[str], *, task_id: str | None = None, out: str | os.PathLike[str] | None = None) -> Result:
    """Return the result of an earlier run by its folder, its id or ``latest``.

    An id is looked up in ``task_id``, by default in every task under ``out``. Raises ``SettingsError`` when there is no such
    run, ``CorruptFile`` when its files cannot be read.

    Examples:
        >>> tfgrpo.load_run("latest", task_id="my-task").frame().groupby("arm").reward.mean()
    """
    if not isinstance(run, str | os.PathLike):
        raise SettingsError.one("run", repr(run), "the folder of a run, its id or latest")
    folder = Path(run)
    if (folder / "manifest.json").is_file():
        return Result.of_run(refuse_pruned(RunPaths(folder)))
    task = task_named(task_id, out)
    found = find_run(task, os.fspath(run), everywhere=task_id is None)
    if found is None:
        accepted = f"the folder of a run, or a run of task {task.root.name}: {known_runs(task)}"
        raise SettingsError.one("run", repr(os.fspath(run)), accepted)
    return Result.of_run(refuse_pruned(found))
