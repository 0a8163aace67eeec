"""Embeddings of the simulated model: each word of a text is hashed into one direction of a unit vector."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from tfgrpo.stores.canonical import key_digest
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, error_body

_DIRECTIONS: Final = 64


def embedding(text: str) -> list[float]:
    """Return the vector of a text, of length 1; texts without a word in common are mostly orthogonal."""
    counts = Counter(key_digest(word) % _DIRECTIONS for word in text.casefold().split() or [""])
    length = math.sqrt(sum(count**2 for count in counts.values()))
    return [counts[at] / length for at in range(_DIRECTIONS)]


async def embedded(request: Request) -> JSONResponse:
    """Answer ``POST /embeddings``."""
    try:
        asked: Any = json.loads(await request.body())
        texts = [asked["input"]] if isinstance(asked["input"], str) else [str(text) for text in asked["input"]]
    except (ValueError, LookupError, TypeError):
        return JSONResponse(error_body("The request has no input.", param="input"), 400)
    data = [{"object": "embedding", "index": at, "embedding": embedding(text)} for at, text in enumerate(texts)]
    tokens = sum(1 + len(text) // 4 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})
