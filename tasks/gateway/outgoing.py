"""Turn an agent's request into the one that is forwarded, and read from it what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tfgrpo.prompt_packs.inject import holds_lessons
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.gateway.dialect import Dialect, ToolResultText, texts_within, tool_names
from tfgrpo.tasks.gateway.splice import Document

IMAGE_TOKENS = 1 << 16
"""More than any model makes of one image, however many bytes it has."""
_IMAGE_FIELDS = frozenset({"url", "image_url", "data"})


@dataclass(frozen=True, slots=True)
class Additions:
    """What the gateway writes into requests; nothing else of them changes."""

    lessons: str = ""
    """Block of lessons; empty for none."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Names for the endpoint by patterns of the names that agents ask for; the first that matches."""
    auxiliary: tuple[str, ...] = ()
    """Patterns of models whose calls get no lessons."""
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    """Temperature and seed to write in; what is absent stays the agent's own."""
    digest: str = field(init=False)
    """Of the lessons."""

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
    """Of one completion; None if the request does not say."""
    completions: int
    temperature: float | None
    added: str | None
    """Digest of the lessons that were added; None without any."""
    results: tuple[ToolResultText, ...]
    tools: frozenset[str]
    """Names of the tools that the request offers."""
    content: bytes
    """The request without its labels, by which equal ones are known."""

    @property
    def digest(self) -> str:
        """SHA-256 of protocol and content."""
        return sha256_hex(self.dialect.path.encode() + b"\n" + self.content)


def outgoing(dialect: Dialect, request: Document, additions: Additions, *, lessons: bool = True) -> Outgoing:
    """Return the request to forward."""
    body = request.value
    asked = body.get("model")
    asked = asked if isinstance(asked, str) else ""
    model = next((name for pattern, name in additions.models.items() if fnmatchcase(asked, pattern)), asked)
    if model != asked:
        request.set("model", model)
    added = None
    auxiliary = any(fnmatchcase(asked, pattern) for pattern in additions.auxiliary)
    if (
        additions.lessons
        and lessons
        and not auxiliary
        and not holds_lessons(request.raw)
        and dialect.add_lessons(request, additions.lessons)
    ):
        added = additions.digest
    hides_usage = body.get("stream") is True and dialect.ask_for_usage(request)
    for name in dialect.sampling:
        if name in additions.sampling:
            request.set(name, additions.sampling[name])
    raw = request.encode()
    dialect.remove_labels(request)
    return Outgoing(
        dialect,
        raw,
        len(raw) - _spared(body) if len(raw) > IMAGE_TOKENS else len(raw),
        model,
        hides_usage,
        dialect.max_tokens(body),
        count_or_none(body.get("n")) or 1,
        temperature if isinstance(temperature := body.get("temperature"), int | float) else None,
        added,
        tuple(dialect.results(body)),
        frozenset(tool_names(body)),
        request.encode(),
    )


def _spared(body: Mapping[str, Any]) -> int:
    """Return by how many bytes the images within a request exceed their tokens."""
    return sum(
        max(0, len(text) - IMAGE_TOKENS)
        for name, text, media in texts_within(body)
        if name in _IMAGE_FIELDS
        and (text.startswith("data:image/") or (name == "data" and str(media).startswith("image/")))
    )
