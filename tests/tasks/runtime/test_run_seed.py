"""Seeds of a run: other ones every night, so that the evidence of several nights does not repeat itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.agents.steps import context


def test_the_seeds_of_learning_and_sweep_change_from_night_to_night(tmp_path: Path) -> None:
    nights = [context(tmp_path, tfgrpo={"night": night}) for night in range(3)]
    assert len({one.run_seed("eval") for one in nights}) == 3
    assert all(one.run_seed("eval") == one.run_seed("train") for one in nights)


def test_a_run_of_older_rules_keeps_the_seeds_of_its_sweep(tmp_path: Path) -> None:
    nights = [replace(context(tmp_path, tfgrpo={"night": night}), rules=3) for night in range(3)]
    assert len({one.run_seed("eval") for one in nights}) == 1
    assert len({one.run_seed("train") for one in nights}) == 3
