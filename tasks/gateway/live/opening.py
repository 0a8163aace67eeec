"""Read from a request, whatever its protocol, how the conversation began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfgrpo.tasks.gateway.dialect import rows, texts_of
from tfgrpo.tasks.models.wire import mapping_of

_SYSTEM = frozenset({"system", "developer"})


class Opening(NamedTuple):
    """The beginning of a conversation; it stays the same in all of its requests."""

    system: str
    """The agent's own system text."""
    prompt: str
    """The first message of the user; empty when the request does not hold it."""


def opening_of(body: Mapping[str, Any]) -> Opening:
    """Return the opening: of ``messages`` or ``input``, with the text of ``system`` or ``instructions``."""
    given = body.get("messages", body.get("input"))
    system = [texts_of(body.get(name)) for name in ("system", "instructions")]
    if isinstance(given, str):
        return Opening("\n\n".join(filter(None, system)), given)
    turns = list(rows(given))
    system += [texts_of(turn.get("content")) for turn in turns if turn.get("role") in _SYSTEM]
    prompts = (texts_of(turn.get("content")) for turn in turns if turn.get("role") == "user")
    return Opening("\n\n".join(filter(None, system)), next(prompts, ""))


def named_conversation(body: Mapping[str, Any]) -> str | None:
    """Return the id of a conversation that the endpoint keeps (responses protocol); None without one."""
    given = body.get("conversation")
    name = mapping_of(given).get("id") if isinstance(given, dict) else given
    return name if isinstance(name, str) else None
