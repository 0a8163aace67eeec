"""Which models do the judges of a pipeline ask for? Read from the rewarders' options, before anything is built of them.

Options that are malformed are passed over here: building the rewarders refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfgrpo.pipelines.settings.rewarding import RewarderSettings


def judge_models(rewarders: Iterable[RewarderSettings]) -> tuple[str, ...]:
    """Each model that a judge names, once, in order. A judge that names none asks the model that reflects."""
    return tuple(dict.fromkeys(name for entry in rewarders for name in _named(entry.name, entry.options)))


def _named(rewarder: object, options: object) -> Iterator[str]:
    if not isinstance(options, Mapping):
        return
    if rewarder == "relative":
        rewarder, options = "judge", options.get("judge") or {}
    if rewarder == "judge" and isinstance(options, Mapping):
        model = options.get("model")
        if isinstance(model, str):
            yield model
    elif rewarder == "composite":
        yield from (name for kind in ("gates", "parts") for name in _of_members(options.get(kind)))


def _of_members(members: object) -> Iterator[str]:
    for member in members if isinstance(members, list) else ():
        if isinstance(member, Mapping) and member.get("weight") != 0:
            yield from _named(member.get("name"), member.get("options", {}))
