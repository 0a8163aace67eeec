"""``tfgrpo deploy``: set a Prefect server up for nightly runs."""

from __future__ import annotations

import os
from typing import Final

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration import deploying

_TIMEOUT_S: Final = 60.0
"""Time for a server to answer; one that starts for the first time needs a dozen seconds."""


def deploy(console: Console, notify: str | None) -> None:
    """Set the server up, and print each finding as it is made."""
    findings = []
    for finding in deploying.deploy(os.environ, _TIMEOUT_S, notify):
        findings.append({"check": finding.name, "found": finding.text})
        console.say(f"{finding.name:>12}  {finding.text}", wrap=False)
    if console.as_json:
        console.result({"ok": True, "findings": findings})
