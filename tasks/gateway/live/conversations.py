"""Which conversation a request belongs to, and how it began, for every protocol."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.gateway.dialects import rows, texts_of, texts_within

_SYSTEM: Final = ("system", "developer")
_REMEMBERED: Final = 100_000
"""Names of conversations and answers whose beginning is remembered."""
_CHARACTERS: Final = 256 << 20
"""Most characters of these beginnings; what several names share counts for each."""
_NAMING: Final = [
    re.compile(rf"(?:^|.*[-_])(?:{word})[-_]?id", re.IGNORECASE) for word in ("session", "thread", "conversation")
]
"""Headers and members of ``metadata`` by which agents name their conversations, the best first."""
_CONTEXT: Final = re.compile(r"\s*<([\w.-]+)[^<>]*>.*</\1>\s*", re.DOTALL)
"""A text that agents put next to the question: one element, such as ``<environment_context>``."""


class Opening(NamedTuple):
    """The beginning of a conversation, as a request shows it."""

    system: str
    """The agent's own system text."""
    prompt: str
    """The last text of the user before the answer, without what the agent put next to it; empty when there is none."""
    media: str = ""
    """Digest of what the user shows next to text, an image for example; empty for nothing."""
    begun: tuple[str, ...] = ()
    """Digests of the first user message, of the first two and so on."""


def opening_of(body: Mapping[str, Any]) -> Opening:
    """Return the opening: of ``messages`` or ``input``, with the text of ``system`` or ``instructions``."""
    given = body.get("messages", body.get("input"))
    system = [texts_of(body.get(name)) for name in ("system", "instructions")]
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else list(rows(given))
    system += [texts_of(turn.get("content")) for turn in turns if turn.get("role") in _SYSTEM]
    said = [turn.get("content") for turn in turns if turn.get("role") == "user"]
    digest, begun = hashlib.sha256(), list[str]()
    for content in said:
        text = f"{_question(content) or texts_of(content)}\x1f{_shown(content)}\x1e"
        digest.update(replace_surrogates(text).encode())
        begun.append(digest.hexdigest())
    questions = [question for content in said if (question := _question(content))]
    prompt = (questions or [texts_of(content) for content in said] or [""])[-1]
    media = next(filter(None, map(_shown, said)), "")
    return Opening("\n\n".join(filter(None, system)), prompt, media, tuple(begun))


def _question(content: object) -> str:
    """Return what the user said in a message; empty for one of context alone."""
    texts = [texts_of([block]) for block in content] if isinstance(content, list) else [texts_of(content)]
    return "".join(text for text in texts if not _CONTEXT.fullmatch(text))


def _shown(content: object) -> str:
    """Return the digest of what a message shows next to its text: no results of tools, which come later."""
    beside = [block for block in rows(content) if "text" not in block and block.get("type") != "tool_result"]
    # The longest is the image itself, not a mark beside it that comes and goes.
    media = max((text for _, text, _ in texts_within(beside)), key=len, default="")
    return media and sha256_hex(replace_surrogates(media))


def name_by_agent(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the name that an agent gives the conversation, in headers or the labels of the request; empty for none."""
    labels = mapping_of(body.get("metadata"))
    keyed = {name: value for name, value in labels.items() if isinstance(value, str) and value}
    named = [each[name] for each in (headers, keyed) for like in _NAMING for name in each if like.fullmatch(name)]
    return next(filter(None, [*named, _text(body.get("prompt_cache_key")), keyed.get("user_id", "")]), "")


class Conversation(NamedTuple):
    """What all requests of a conversation have in common."""

    name: str
    """By which its arm is drawn."""
    prompt: str
    """The question with which it began."""
    media: str = ""
    """Digest of what was shown with it."""
    begun_here: bool = True
    """False when it continues an answer that is not remembered: ``prompt`` is then a later message."""


class Conversations:
    """The conversations that began here, by the names of their answers and by their first messages."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._characters = 0
        self._agents: OrderedDict[str, None] = OrderedDict()

    def of(self, body: Mapping[str, Any], opening: Opening, named: str | None) -> Conversation:
        """Return the conversation of a request that starts so.

        ``named``: its name, if the client gives it one.
        """
        given, earlier = body.get("conversation"), body.get("previous_response_id")
        own = _text(mapping_of(given).get("id") if isinstance(given, dict) else given)
        at = next((key for key in (_text(earlier), own, *opening.begun) if key in self._known), None)
        if at is None:
            at = own or (opening.begun[-1] if opening.begun and earlier is None else "")
            name = named or own or (opening.begun or ("",))[-1]
            found = Conversation(name, opening.prompt, opening.media, begun_here=earlier is None)
        else:
            known = self._known[at]
            found = known._replace(name=named or own or known.name)
        self.remember(found, at)
        return found

    def is_auxiliary(self, conversation: Conversation, *, tools: bool) -> bool:
        """Return whether a request is none of an agent's own: it has no tools where others of the conversation have."""
        if tools:
            self._agents[conversation.name] = None
            self._agents.move_to_end(conversation.name)
            if len(self._agents) > _REMEMBERED:
                self._agents.popitem(last=False)
        return not tools and conversation.name in self._agents

    def remember(self, conversation: Conversation, name: str | None) -> None:
        """Remember a conversation by its own name, or by that of an answer."""
        if not name:
            return
        before = self._known.pop(name, None)
        self._known[name] = conversation
        self._characters += len(conversation.prompt) - (len(before.prompt) if before is not None else 0)
        while len(self._known) > _REMEMBERED or self._characters > _CHARACTERS:
            self._characters -= len(self._known.popitem(last=False)[1].prompt)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
