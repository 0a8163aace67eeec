"""Canonical form of JSON values and texts, and their SHA-256: every digest goes through it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_BOM = "\ufeff"
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


def key_digest(key: bytes) -> int:
    """Return a key in 128 bits, for an index in memory: a third of the text's size, collisions are negligible."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big")
