"""Turn an agent's request into the one that is forwarded, and read from it what is measured."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from tfgrpo.prompt_packs.stamps import holds_lessons
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.gateway.dialects import Dialect, ToolResultText, texts_within, tool_names
from tfgrpo.tasks.gateway.splice import Document

IMAGE_TOKENS = 1 << 16
"""More than any model makes of one image, however many bytes it has."""
_NAMES = {
    "stream_options": re.compile("stream.options|include_usage", re.IGNORECASE),
    "system": re.compile(r"system|instruction|\broles?\b", re.IGNORECASE),
}
"""How refusals name what the gateway added."""
_IMAGE_FIELDS = frozenset({"url", "image_url", "data"})


@dataclass(frozen=True, slots=True)
class Additions:
    """What the gateway writes into requests; nothing else of them changes."""

    lessons: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    """Names for the endpoint by patterns of the names that agents ask for; the first that matches."""
    lessons_in: Literal["system", "user"] = "system"
    auxiliary: bool = False
    """Whether the request is about the conversation, not a part of it, and gets no lessons."""
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    """Temperature and seed to write in; what is absent stays the agent's own."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256_hex(self.lessons)[:16])


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it is forwarded."""

    dialect: Dialect
    raw: bytes
    size: int
    """Most tokens of the prompt: its bytes, with images at theirs."""
    model: str
    hides_usage: bool
    """Whether the client must not see the chunk of usage."""
    max_tokens: int | None
    """Most tokens of one completion; None if the request does not say."""
    completions: int
    temperature: float | None
    added: str | None
    """Digest of the lessons that were added; None without any."""
    inserted: bool
    """Whether they are the only system text."""
    results: tuple[ToolResultText, ...]
    tools: frozenset[str]
    content: bytes
    """The lessons of the attempt, and the request without them and its labels, by which equal ones are known."""

    @property
    def digest(self) -> str:
        """SHA-256 of protocol and content."""
        return sha256_hex(self.dialect.path.encode() + b"\n" + self.content)

    def refused_in(self, words: str) -> str | None:
        """Return which of the gateway's additions a refusal is about, a key of ``_NAMES``; None for none."""
        added = {"stream_options": self.hides_usage, "system": self.inserted}
        return next((name for name, pattern in _NAMES.items() if added[name] and pattern.search(words)), None)


def outgoing(
    dialect: Dialect, request: Document, additions: Additions, *, lessons: bool = True, refused: Collection[str] = ()
) -> Outgoing:
    """Return the request to forward. ``refused``: additions that the endpoint does not take."""
    body = request.value
    wanted = body.get("model")
    wanted = wanted if isinstance(wanted, str) else ""
    model = next((name for pattern, name in additions.models.items() if fnmatchcase(wanted, pattern)), wanted)
    if model != wanted:
        request.set("model", model)
    for name in dialect.sampling:
        if name in additions.sampling:
            request.set(name, additions.sampling[name])
    unlabelled = request.copy()
    dialect.remove_labels(unlabelled)
    there: bool | None = None
    if additions.lessons and lessons and not additions.auxiliary and not holds_lessons(request.raw):
        in_user = additions.lessons_in == "user" or "system" in refused
        there = (dialect.add_to_user if in_user else dialect.add_lessons)(request, additions.lessons)
    asks = body.get("stream") is True and "stream_options" not in refused
    hides_usage = asks and dialect.ask_for_usage(request)
    raw = request.encode()
    kept = additions.digest.encode() if lessons else b""
    return Outgoing(
        dialect,
        raw,
        len(raw) - _spared(body) if len(raw) > IMAGE_TOKENS else len(raw),
        model,
        hides_usage,
        dialect.max_tokens(body),
        count_or_none(body.get("n")) or 1,
        temperature if isinstance(temperature := body.get("temperature"), int | float) else None,
        None if there is None else additions.digest,
        there is False,
        tuple(dialect.results(body)),
        frozenset(tool_names(body)),
        kept + unlabelled.encode(),
    )


def _spared(body: Mapping[str, Any]) -> int:
    """Return by how many bytes the images within a request exceed their tokens."""
    return sum(
        max(0, len(text) - IMAGE_TOKENS)
        for name, text, media in texts_within(body)
        if name in _IMAGE_FIELDS and (text.startswith("data:image/") or (name == "data" and str(media).startswith("image/")))
    )
