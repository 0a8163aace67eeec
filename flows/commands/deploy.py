"""``tfgrpo deploy``: set a Prefect server up for nightly runs, and print each finding."""

from __future__ import annotations

import argparse
import os

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration.environment import prefect_settings

_TIMEOUT_S = 60.0
"""Time for a server to answer; one that starts for the first time needs a dozen seconds."""


def execute(_options: argparse.Namespace, console: Console) -> None:
    """Print each finding as it is made."""
    with prefect_settings():  # of which Prefect refuses some when it is imported
        from tfgrpo.flows.orchestration.deploying import deploy  # noqa: PLC0415

    findings = []
    for finding in deploy(os.environ, _TIMEOUT_S):
        findings.append({"check": finding.name, "found": finding.text})
        console.say(f"{finding.name:>12}  {finding.text}", wrap=False)
    if console.as_json:
        console.result({"ok": True, "findings": findings})
