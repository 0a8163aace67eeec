"""What is an item? One task of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One task. ``answer`` is shown to rewarders and to the reflecting model, never to an actor."""

    id: str
    prompt: str
    answer: str
    """Empty when there is no reference answer."""
    system_prompt: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    source: str = ""
    """``path:line`` it was read from."""
