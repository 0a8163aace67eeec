"""Requests of the flows and commands, with the settings by dotted key, and the summary with which a run answers."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings, same_value, setting_fields
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.stores.errors import ConfigError, Problem, SettingsError
from tfgrpo.stores.files.layout import display_path

Scalar: TypeAlias = str | int | float | bool
Control: TypeAlias = Literal["no-lessons", "neutral", "same"]
"""What the lessons in force are compared with: no lessons, neutral text of equal length in their place, or themselves."""
Status: TypeAlias = Literal["finished", "stopped", "failed", "refused"]
EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "refused": 2, "stopped": 3}
"""``stopped``: budget, a first batch with nothing right, or interrupt; resumable. ``refused``: bad input, without any call."""
# Options of a run that a selection has, too.
_SHARED: Final = (
    *("model", "base_url", "out", "task_id", "actor", "pack", "packs_root", "world"),
    *("max_usd", "max_tokens", "max_calls", "seed", "dry_run"),
)


class FlowRequest(BaseModel):
    """Base of the requests: settings by dotted key, or by the names of their options as keywords."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    KEYS: ClassVar[Mapping[str, str]] = {
        leaf.flag.removeprefix("--").replace("-", "_"): leaf.key
        for leaf in setting_fields()
        if leaf.flag and not leaf.key.startswith("selection.")
    }
    """Dotted key of the setting behind each option."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings by dotted key, such as ``{"tfgrpo.min_spread": 0.1}``; text is read as on the command line."""
    pipeline: str | None = None
    """Name of a shipped pipeline, or path of a pipeline file. None: the defaults."""
    caps: dict[str, int | float] = Field(default_factory=dict)
    """The most that each setting of the budget may be, wherever its value is from: the caps of a deployment."""

    @model_validator(mode="before")
    @classmethod
    def _with_options(cls, values: Any) -> Any:
        """Read keywords named like options as settings. Raise ``SettingsError`` for a setting with two values."""
        if not isinstance(values, Mapping) or not isinstance(values.get("settings") or {}, Mapping):
            return values
        named = {name: value for name, value in values.items() if name in cls.KEYS and value is not None}
        by_key = dict(values.get("settings") or {})
        if problems := [
            Problem(f"settings {cls.KEYS[name]}", f"{by_key[cls.KEYS[name]]} beside {name} {value}", "one value")
            for name, value in named.items()
            if not same_value(cls.KEYS[name], by_key.get(cls.KEYS[name], value), value)
        ]:
            raise SettingsError(problems)
        own = {name: value for name, value in values.items() if name not in cls.KEYS}
        return {**own, "settings": by_key | {cls.KEYS[name]: value for name, value in named.items()}}

    def resolved(self, env: Mapping[str, str]) -> Resolved:
        """The settings: as asked for, else of the environment, the pipeline file or the defaults. Raises ``ConfigError``."""
        path = None if self.pipeline is None else find_pipeline(self.pipeline)
        return self.capped(resolve_settings(cli=self.settings, env=env, pipeline_path=path))

    def capped(self, resolved: Resolved) -> Resolved:
        """Return the settings with the caps of the request in the place of what exceeds them."""
        budget = resolved.settings.budget
        over = {name: cap for name, cap in self.caps.items() if (getattr(budget, name) or math.inf) > cap}
        settings = resolved.settings.model_copy(update={"budget": budget.model_copy(update=over)})
        return Resolved(settings, {**resolved.sources, **{f"budget.{name}": "deployment" for name in over}})

    def laid_over(self, below: Self) -> Self:
        """Return this request over another, setting by setting: what this one leaves out stays."""
        # Without what is unset: a default must not hide what the deployment says.
        lower, upper = (each.model_dump(exclude_unset=True, exclude_none=True) for each in (below, self))
        return type(self).model_validate({**lower, **upper, "settings": {**below.settings, **self.settings}})


class Measuring(BaseModel):
    """Attempts that measure lessons, in place of learning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int
    lessons: tuple[str, ...] = ()
    """Ids of the lessons to be measured; empty: those on trial and in force."""
    control: Control | None = None
    """Compares the lessons in force with this control, in place of measuring single lessons."""


class RunRequest(FlowRequest):
    """A learning run as asked for. Absent settings keep what environment, pipeline file and defaults say."""

    pipeline: str = "tfgrpo-learning"
    run_id: str | None = None
    """Name of the run; made from the time when absent."""
    resume: str | None = None
    """Run id to continue where it ended, or ``latest``."""
    as_begun: bool = False
    """With ``resume``: nobody has asked to go on with just this run, which keeps its own settings and budget under the caps."""
    pay_again: bool = False
    """With ``resume``: also ask the calls again whose answers are lost."""
    replay: str | None = None
    """Run id to run again from its journal, without an endpoint, into a separate store, or ``latest``."""
    measures: Measuring | None = None
    """Measure with the settings of the task's newest run, and learn nothing."""
    test: bool = False
    """Learn nothing: compare the lessons in force with none on the sealed items."""
    flow_run_id: str | None = None
    """Prefect's id of the deployed flow run that asks; the run that it began before is continued."""

    @property
    def earlier(self) -> str | None:
        """Id of the run that is resumed or replayed; None for a new one."""
        return self.replay if self.resume is None else self.resume


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of a run at its end; also the object that ``--json`` prints."""

    status: Status
    run_id: str | None
    message: str
    """One sentence for people; for a refusal, one line per problem."""
    details: dict[str, Any]
    """JSON values: decision, lessons, ledger, paths."""
    error: str | None = None
    """Class of the error that ended it, such as ``BudgetRefused`` or ``KeyboardInterrupt``."""
    signal: BaseException | None = None
    """Signal by which Prefect cancelled or terminated the run, to be raised again once the books are closed."""

    @classmethod
    def refused(cls, run_id: str | None, error: ConfigError) -> Self:
        """Return the summary of a run that was refused, with all problems as data."""
        return cls("refused", run_id, str(error), {"problems": [asdict(problem) for problem in error.problems]})

    def ended_by(self, error: BaseException) -> Self:
        """Return the summary of a run that this error ended; a signal of Prefect's is to be raised again."""
        signal = None if isinstance(error, Exception | KeyboardInterrupt) else error
        return replace(self, error=type(error).__name__, signal=signal)

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        return EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """Return the summary as one JSON object."""
        return {"status": self.status, "run_id": self.run_id, "message": self.message, **self.details}


def resume_command(details: Mapping[str, Any]) -> str | None:
    """Return the command that resumes a run, from the details of its summary; None for a run that cannot be resumed."""
    if not details.get("resume with"):
        return None
    out = display_path(Path(details["run"]).parent.parent.parent)
    where = "" if out == "out" else f" --out {shlex.quote(out)}"
    return f"tfgrpo run {details['resume with']}{where}"


class SelectRequest(FlowRequest):
    """Request of one selection. Absent settings keep the values of environment, pipeline file and defaults."""

    KEYS: ClassVar[Mapping[str, str]] = {
        leaf.key.removeprefix("selection."): leaf.key
        for leaf in setting_fields()
        if leaf.flag and leaf.key.startswith("selection.")
    } | {name: FlowRequest.KEYS[name] for name in _SHARED}

    prompt: str | None = None
    """The prompt. Either this or ``item``; a dry run without either takes the first item of its world."""
    item: str | None = None
    """An item of a dataset instead, as ``FILE#id``."""
    answer: str | None = None
    """Reference to compare with, as text, whatever it starts with."""
    reference: str | None = None
    """The same, or ``@FILE`` with it: text, JSON, and in format ``powl`` a model or a footprint."""
    rewarders: list[str] = Field(default_factory=list)
    """NAME or NAME=WEIGHT. Empty: the rewarders of the pipeline file, or of the stage."""
