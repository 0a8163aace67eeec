"""How can a run end? Four statuses, each with its exit code and its Prefect state name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from tfgrpo.stores.errors import ConfigError

Status: TypeAlias = Literal["finished", "stopped", "failed", "refused"]
EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "refused": 2, "stopped": 3}
"""``stopped``: budget or interrupt, resumable. ``refused``: bad input, nothing was spent."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run has to say at its end; also the object that ``--json`` prints."""

    status: Status
    run_id: str | None
    message: str
    """One sentence for people; for a refusal, every problem on a line of its own."""
    details: dict[str, Any]
    """JSON values: gate, lessons, ledger, paths."""
    signal: BaseException | None = None
    """What Prefect cancelled or terminated the run by, and has to see once the books are closed."""

    @classmethod
    def refused(cls, run_id: str | None, error: ConfigError) -> Self:
        """The end of a run that never began, with every problem as data too."""
        return cls("refused", run_id, str(error), {"problems": [asdict(problem) for problem in error.problems]})

    @property
    def exit_code(self) -> int:
        """The process's exit code."""
        return EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """The summary as one JSON object."""
        return {"status": self.status, "run_id": self.run_id, "message": self.message, **self.details}


def resume_command(details: Mapping[str, Any]) -> str | None:
    """The command that goes on with a run, from the details of its summary; None where there is nothing to go on with."""
    if not details.get("resume with"):
        return None
    out = Path(details["run"]).parent.parent.parent
    where = "" if str(out) == "out" else f" --out {shlex.quote(str(out))}"
    return f"tfgrpo run {details['resume with']}{where}"
