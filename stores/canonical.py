"""Canonical form of JSON values and texts, their SHA-256, and seeds that are digests of their purpose."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

_BOM = "\ufeff"
_SEED_BITS = 53
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no white space and unescaped characters. Raises ``ValueError`` for NaN and infinity."""
    return _ENCODER.encode(value)


def canonical_text(data: bytes) -> str:
    """Return a text file without byte order mark and with LF line ends. Raises ``UnicodeDecodeError`` when it is not UTF-8."""
    return data.decode("utf-8").removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def sha256_hex(data: str | bytes) -> str:
    """Return the SHA-256 in lower-case hex; text is encoded as UTF-8."""
    return hashlib.sha256(data.encode("utf-8") if isinstance(data, str) else data).hexdigest()


def key_digest(key: str | bytes) -> int:
    """Return a key in 128 bits, for an index in memory: a third of the text's size, collisions are negligible."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed for one purpose: a function of its arguments alone, in ``[0, 2**53)``, so that JSON keeps it exact.

    ``derive_seed(0, "rollout", 1, "q-17", 0)`` and any other purpose are statistically independent.
    """
    # With the type, so that 1 and "1" are two purposes.
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in purpose)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def stream(seed: int, *purpose: str | int) -> random.Random:
    """Return a separate random generator for one purpose."""
    return random.Random(derive_seed(seed, *purpose))
