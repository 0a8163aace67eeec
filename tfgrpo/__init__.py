"""Learn lessons for an LLM agent without changing weights, and prove on held-out items that they help.

Examples:
    >>> import tfgrpo
    >>> result = tfgrpo.learn("items.jsonl", agent=my_agent, model="my-model", base_url="http://localhost:8000/v1")
    >>> result.decision, tfgrpo.prompt(result.task_id)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgrpo.flows.api import Lesson, Result, Selected, Usage, alearn, learn, load_run, plan, prompt, select
    from tfgrpo.pipelines.plan.plan import Plan
    from tfgrpo.stores.errors import ConfigError
    from tfgrpo.tasks.models.base import Chat

__all__ = [
    "Chat", "ConfigError", "Lesson", "Plan", "Result", "Selected", "Usage",
    "alearn", "learn", "load_run", "plan", "prompt", "select",
]  # fmt: skip
_MODULES = {
    "stores.errors": ("ConfigError",), "tasks.models.base": ("Chat",), "pipelines.plan.plan": ("Plan",),
    "flows.api": ("Lesson", "Result", "Selected", "Usage", "alearn", "learn", "load_run", "plan", "prompt", "select"),
}  # fmt: skip

if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:  # every import of tfgrpo.x.y runs this file, so it loads nothing itself
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(f"tfgrpo.{module}"), name)
        raise AttributeError(f"module 'tfgrpo' has no attribute {name!r}")

    def __dir__() -> list[str]:  # what notebooks complete
        return [*globals(), *__all__]
