"""What is the answer to a request? A function of the server's seed and the request, and, lacking a seed, of its count.

Knows nothing of HTTP. Its only state is how often each request was seen, and it keeps that only where it matters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.seeds import derive_seed
from tfgrpo.tasks.models.simulated.roles.actor import act
from tfgrpo.tasks.models.simulated.roles.roles import learned_answer, structured_answer
from tfgrpo.tasks.models.simulated.service.completion import encode_completion
from tfgrpo.tasks.models.simulated.service.faults import FaultKind, any_faults, choose_fault
from tfgrpo.tasks.models.simulated.service.options import SimulatedOptions
from tfgrpo.tasks.models.simulated.service.protocol import ChatBody
from tfgrpo.tasks.models.simulated.worlds.puzzle import Speech
from tfgrpo.tasks.models.simulated.worlds.worlds import open_world

_REMEMBERED = 100_000
"""Requests whose count is kept; the oldest are forgotten first."""
_LIMIT = 1024


def digest_of(value: Mapping[str, Any]) -> str:
    """Names the content of a request, however its JSON was spaced and ordered, and whatever limit it sets.

    A limit cuts a reply; it does not change what the model would say. The constant keeps seeded figures as they were.
    """
    if "max_tokens" in value:
        value = {**value, "max_tokens": _LIMIT}
    return sha256_hex(canonical_json(value).encode("utf-8", "surrogatepass"))


class Engine:
    """The simulated model without its service."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._world = open_world(options.world)
        self._faulty = any_faults(options.faults)
        self._seen: dict[str, int] = {}

    def arrive(self, body: ChatBody, digest: str) -> int:
        """Note that a request came in, and say how often it came before; 0 where that changes nothing."""
        if body.seed is not None and not self._faulty:
            return 0
        before = self._seen.pop(digest, 0)
        self._seen[digest] = before + 1
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return before

    def fault(self, digest: str, seen: int) -> FaultKind | None:
        """How this call breaks, if it does."""
        return choose_fault(self._options.faults, self._options.seed, digest, seen) if self._faulty else None

    def answer(self, body: ChatBody, digest: str, seen: int, *, broken_off: bool = False) -> dict[str, Any]:
        """The completion. ``broken_off``: its text ends halfway."""
        count = seen if body.seed is None else 0
        rng = random.Random(derive_seed(self._options.seed, "reply", digest, count))
        learned = learned_answer(self._world, body, rng)
        if learned is not None:
            speech = Speech(json.dumps(learned, ensure_ascii=False))
        else:
            spoken = act(self._world, body, self._options.seed, rng)
            speech = Speech(structured_answer(body, spoken.text), spoken.calls)
        return encode_completion(body, digest, speech, broken_off=broken_off)
