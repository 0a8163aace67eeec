"""``tfgrpo deploy``: set a Prefect server up for nightly runs, and print each finding."""

from __future__ import annotations

import argparse
import os

from tfgrpo.flows.console.console import Console

_TIMEOUT_S = 60.0
"""Time for a server to answer; one that starts for the first time needs a dozen seconds."""


def execute(_options: argparse.Namespace, console: Console) -> None:
    """Print each finding as it is made."""
    from tfgrpo.flows.orchestration.environment import prefect_settings  # noqa: PLC0415 - not for `--help`

    with prefect_settings():
        from tfgrpo.flows.orchestration.deploying import deploy  # noqa: PLC0415 - Prefect takes most of a second to import

    findings = []
    for finding in deploy(os.environ, _TIMEOUT_S):
        findings.append({"check": finding.name, "found": finding.text})
        console.say(f"{finding.name:>12}  {finding.text}", wrap=False)
    if console.as_json:
        console.result({"ok": True, "findings": findings})
