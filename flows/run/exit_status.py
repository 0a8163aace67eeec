"""The four statuses of a run's end, their exit codes, and the summary of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from tfgrpo.stores.errors import ConfigError
from tfgrpo.stores.files.layout import display_path

Status: TypeAlias = Literal["finished", "stopped", "failed", "refused"]
EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "refused": 2, "stopped": 3}
"""``stopped``: budget, a first batch with nothing right, or interrupt; resumable. ``refused``: bad input, without any call."""


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
