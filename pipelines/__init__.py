"""A run declared: settings and guard rails, datasets and mixes, splits and cohorts, the plan and its forecast, the guard.

Names are imported when they are asked for: most commands need the settings alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.curriculum import Difficulty
    from pipelines.datasets import load_dataset, read_dataset
    from pipelines.forecast import Forecast
    from pipelines.guardrails import validate_tfgrpo_config
    from pipelines.items import Item
    from pipelines.layers import Resolved, describe, resolve_settings
    from pipelines.leaves import LeafOption, leaf_options
    from pipelines.mix_config import load_mix_config
    from pipelines.mix_graders import grader_sets
    from pipelines.mix_sampling import MixSample, MixSampler
    from pipelines.mix_shapes import MixConfig
    from pipelines.model_choice import ModelChoice, choose_models
    from pipelines.pipeline_file import find_pipeline, load_pipeline
    from pipelines.plan import Plan, build_plan
    from pipelines.sampling import Cohort, draw_cohort
    from pipelines.settings import Settings
    from pipelines.spec_guard import GuardReport, guard_run
    from pipelines.split import Split, split_items

__all__ = [
    "Cohort",
    "Difficulty",
    "Forecast",
    "GuardReport",
    "Item",
    "LeafOption",
    "MixConfig",
    "MixSample",
    "MixSampler",
    "ModelChoice",
    "Plan",
    "Resolved",
    "Settings",
    "Split",
    "build_plan",
    "choose_models",
    "describe",
    "draw_cohort",
    "find_pipeline",
    "grader_sets",
    "guard_run",
    "leaf_options",
    "load_dataset",
    "load_mix_config",
    "load_pipeline",
    "read_dataset",
    "resolve_settings",
    "split_items",
    "validate_tfgrpo_config",
]

_HOMES = {
    "Cohort": "sampling",
    "Difficulty": "curriculum",
    "Forecast": "forecast",
    "GuardReport": "spec_guard",
    "Item": "items",
    "LeafOption": "leaves",
    "MixConfig": "mix_shapes",
    "MixSample": "mix_sampling",
    "MixSampler": "mix_sampling",
    "ModelChoice": "model_choice",
    "Plan": "plan",
    "Resolved": "layers",
    "Settings": "settings",
    "Split": "split",
    "build_plan": "plan",
    "choose_models": "model_choice",
    "describe": "layers",
    "draw_cohort": "sampling",
    "find_pipeline": "pipeline_file",
    "grader_sets": "mix_graders",
    "guard_run": "spec_guard",
    "leaf_options": "leaves",
    "load_dataset": "datasets",
    "load_mix_config": "mix_config",
    "load_pipeline": "pipeline_file",
    "read_dataset": "datasets",
    "resolve_settings": "layers",
    "split_items": "split",
    "validate_tfgrpo_config": "guardrails",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
