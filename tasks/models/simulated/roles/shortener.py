"""How is a text made short enough? By leaving sentences off its end, and words only when one sentence is too long."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.stores.text import count_words


class ShortenAsk(BaseModel):
    """What the shortening role is asked."""

    model_config = ConfigDict(frozen=True)

    text: str
    max_words: int = Field(default=32, ge=1)
    max_chars: int = Field(default=280, ge=1)


def shorten(ask: ShortenAsk) -> dict[str, Any]:
    """The same advice within both limits."""
    sentences = re.split(r"(?<=[.;!?])\s+", ask.text.strip())
    words = ask.text.split()
    tries = [" ".join(sentences[:count]) for count in range(len(sentences), 0, -1)]
    tries += [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    for text in tries:
        if count_words(text) <= ask.max_words and len(text) <= ask.max_chars:
            return {"text": text.rstrip(" ,;")}
    return {"text": ask.text.strip()[: ask.max_chars]}
