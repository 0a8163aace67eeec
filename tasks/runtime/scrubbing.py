"""Remove the API key, and what no file can store, from texts of the user's agents, tools and rewarders.

Applied where such texts come in, before they are journalled, recorded or shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.endpoint import ApiKey

Scrub: TypeAlias = Callable[[str], str]
T = TypeVar("T")


def scrubber(key: ApiKey | None) -> Scrub:
    """Return the function that removes this key and lone surrogates from a text."""
    return replace_surrogates if key is None else lambda text: replace_surrogates(key.scrub(text))


def scrubbed(value: T, scrub: Scrub) -> T:
    """Return a trajectory, scores or any other frozen data with every text in them scrubbed, as they may be recorded."""
    kept: Any = value
    if isinstance(value, str):
        kept = scrub(value)
    elif isinstance(value, tuple):
        kept = tuple(scrubbed(each, scrub) for each in value)
    elif isinstance(value, FrozenDict):
        kept = FrozenDict({scrub(key): scrubbed(each, scrub) for key, each in value.items()})
    elif isinstance(value, Mapping):  # by ids of the run's own
        kept = {key: scrubbed(each, scrub) for key, each in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        kept = replace(value, **{each.name: scrubbed(getattr(value, each.name), scrub) for each in fields(value)})
    return kept  # type: ignore[no-any-return]
