"""Prefect is kept quiet unless the environment asks for noise."""

from __future__ import annotations

from tfgrpo.flows.console.environment import PREFECT_DEFAULTS, quiet_prefect


def test_the_environment_wins_over_our_defaults():
    environment = {"PREFECT_LOGGING_LEVEL": "DEBUG"}
    quiet_prefect(environment)
    assert environment == {**PREFECT_DEFAULTS, "PREFECT_LOGGING_LEVEL": "DEBUG"}
