"""Canonical form of JSON values and texts, and their SHA-256. Nothing else serialises for a digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_BOM = "\ufeff"
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Sorted keys, no white space, characters as they are. Raises ``ValueError`` for NaN and infinity."""
    return _ENCODER.encode(value)


def canonical_text(data: bytes) -> str:
    """A text file without byte order mark and with LF line ends. Raises ``UnicodeDecodeError`` when it is not UTF-8."""
    return data.decode("utf-8").removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")


def sha256_hex(data: str | bytes) -> str:
    """SHA-256 in lower-case hex; text is encoded as UTF-8."""
    return hashlib.sha256(data.encode("utf-8") if isinstance(data, str) else data).hexdigest()


def key_digest(key: bytes) -> int:
    """A key in 128 bits, for an index in memory: a third of the text's size, and no two keys of a file will ever share one."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big")
