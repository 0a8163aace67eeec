"""Which conversation a request belongs to, and how it began, whatever the protocol."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.gateway.dialect import rows, texts_of, texts_within

_SYSTEM: Final = ("system", "developer")
_REMEMBERED: Final = 100_000
"""Names of conversations and answers whose beginning is remembered."""
_CHARACTERS: Final = 256 << 20
"""Most characters of these beginnings; what several names share counts for each."""


class Opening(NamedTuple):
    """The beginning of a conversation; it stays the same in all of its requests."""

    system: str
    """The agent's own system text."""
    prompt: str
    """The first message of the user; empty when the request does not hold it."""
    media: str = ""
    """Digest of what the first message shows beside its text, an image for example; empty for nothing."""


def opening_of(body: Mapping[str, Any]) -> Opening:
    """Return the opening: of ``messages`` or ``input``, with the text of ``system`` or ``instructions``."""
    given = body.get("messages", body.get("input"))
    system = [texts_of(body.get(name)) for name in ("system", "instructions")]
    if isinstance(given, str):
        return Opening("\n\n".join(filter(None, system)), given)
    turns = list(rows(given))
    system += [texts_of(turn.get("content")) for turn in turns if turn.get("role") in _SYSTEM]
    first = next((turn.get("content") for turn in turns if turn.get("role") == "user"), None)
    shown = texts_within([block for block in rows(first) if "text" not in block])
    # The longest is the image itself, not a mark beside it that comes and goes.
    media = max((text for _, text, _ in shown), key=len, default="")
    return Opening("\n\n".join(filter(None, system)), texts_of(first), media and sha256_hex(replace_surrogates(media)))


class Conversation(NamedTuple):
    """What all requests of a conversation have in common."""

    name: str
    """By which its arm is drawn."""
    prompt: str
    """The first message of the user."""
    begun_here: bool = True
    """False when it continues an answer that is not remembered: ``prompt`` is then a later message."""


class Conversations:
    """The conversations that the endpoint keeps (responses protocol), whose later requests do not repeat the first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._characters = 0

    def of(self, body: Mapping[str, Any], opening: Opening, header: str | None) -> Conversation:
        """Return the conversation of a request that begins so.

        ``header``: its name, if the client gives it one.
        """
        given, earlier = body.get("conversation"), body.get("previous_response_id")
        own = _text(mapping_of(given).get("id") if isinstance(given, dict) else given)
        known = self._known.get(_text(earlier)) or self._known.get(own)
        if known is None:
            name = header or own or opening.prompt or opening.media
            found = Conversation(name, opening.prompt, begun_here=earlier is None)
        else:
            found = known._replace(name=header or own or known.name)
        self.remember(found, own)
        return found

    def remember(self, conversation: Conversation, name: str | None) -> None:
        """Remember a conversation by its own name, or by that of an answer."""
        if not name:
            return
        self._forgotten(self._known.pop(name, None))
        self._known[name] = conversation
        self._characters += len(conversation.prompt)
        while len(self._known) > _REMEMBERED or self._characters > _CHARACTERS:
            self._forgotten(self._known.popitem(last=False)[1])

    def _forgotten(self, conversation: Conversation | None) -> None:
        self._characters -= len(conversation.prompt) if conversation is not None else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
