"""Run one selection in process with a scripted model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.agents.steps import ScriptedModel, item, runtime, weighted
from tfgrpo.pipelines.settings.selection import SelectionSettings
from tfgrpo.tasks.models.journaled import JournaledModel
from tfgrpo.tasks.selection.history import SelectionRound
from tfgrpo.tasks.selection.round import Selection, SelectionSpec, select_best
from tfgrpo.tasks.shapes import PackText

PACK = PackText("Be careful.", "d", "arithmetic", "ab" * 32, ())
GT = (weighted("gt"),)
FOOTPRINT = (weighted("powl_footprint"),)
GOOD = "SEQUENCE(ACTIVITY(a), ACTIVITY(b))"


def spec(**more: Any) -> SelectionSpec:
    """Return a specification of four candidates; ``more`` are its fields, and settings of selections."""
    names = {"k", "min_success", "max_validations", "none_valid", "temperatures"} & set(more)
    settings = SelectionSettings(**{name: more.pop(name) for name in names})
    values: dict[str, Any] = {"selection_id": "s", "item": item(), "pack": PACK, "settings": settings}
    return SelectionSpec(**{**values, **more})


def past_round(reward: float | None, answered: int, valid: int) -> SelectionRound:
    """Return a recorded round of which only these figures count."""
    figures: dict[str, Any] = {"reward": reward, "answered": answered, "valid": valid}
    return SelectionRound.model_construct(**figures)


def by_index(*answers: Any) -> ScriptedModel:
    """Return a model that answers each candidate by its index; exceptions are raised."""
    return ScriptedModel(lambda request, key: answers[key.rollout])


def run(
    tmp_path: Path, model: ScriptedModel, asked: SelectionSpec | None = None, *, journaled: bool = True, **more: Any
) -> Selection:
    """Run one selection; close its threads afterwards."""

    async def main() -> Selection:
        built = runtime(model, tmp_path, **{"rewarders": GT, **more})
        if not journaled:
            built = replace(built, journal=None, model=JournaledModel(model, None))
        try:
            return await select_best(asked or spec(), built)
        finally:
            built.threads.shutdown()

    return asyncio.run(main())
