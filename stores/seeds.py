"""Split one run seed into independent random streams by purpose."""

from __future__ import annotations

import hashlib
import random

_SEED_BITS = 53


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed for one purpose: a function of its arguments alone, in ``[0, 2**53)``, so that JSON keeps it exact.

    ``derive_seed(0, "rollout", 1, "q-17", 0)`` and any other purpose are statistically independent.
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def stream(seed: int, *purpose: str | int) -> random.Random:
    """Return a separate random generator for one purpose."""
    return random.Random(derive_seed(seed, *purpose))
