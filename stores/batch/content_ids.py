"""Default ids of groups from their content, and comparison of groups without latencies.

A position alone would name the first group of every collection alike; a digest of prompt, replies and rewards is equal
in every process for equal replies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.frozen_json import to_builtins

_ID_DIGITS: Final = 12
"""A million groups at one index collide with a probability below 1 in 500."""


def default_id(position: int, content: object) -> str:
    """Return ``g0-`` and hex digits: index ``position`` in its collection, and a digest of the content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_as_json)
    return f"g{position}-{sha256_hex(text)[:_ID_DIGITS]}"


def with_content_id(group: RolloutGroup, position: int) -> RolloutGroup:
    """Return the group and its rollouts with their default ids."""
    value = to_builtins(_without_latency(group))
    del value["id"]
    for rollout in value["rollouts"]:
        del rollout["id"], rollout["group_id"]
    name = default_id(position, value)
    rollouts = (replace(rollout, id=f"{name}/{rollout.index}", group_id=name) for rollout in group.rollouts)
    return replace(group, id=name, rollouts=tuple(rollouts))


def same_content(one: RolloutGroup, other: RolloutGroup) -> bool:
    """Return whether two groups are equal but for latencies."""
    return one == other or _without_latency(one) == _without_latency(other)


def _without_latency(group: RolloutGroup) -> RolloutGroup:
    return replace(group, rollouts=tuple(replace(rollout, latency_s=None) for rollout in group.rollouts))


def _as_json(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)
