"""Store long texts of a batch once, in files named by digest, with references in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.atomic import replace_text

REFERENCE: Final = "$text"
"""The one key of the object that stands for a text."""


@dataclass(frozen=True, slots=True)
class TextStore:
    """A folder of texts named by their SHA-256. Texts of more than ``limit`` characters are kept there."""

    path: Path
    limit: int = 20_000

    def away(self, value: Any) -> Any:
        """The value with every long text in it replaced by a reference, once the text is on disk.

        Raises ``RecordRejected`` for a value that holds such a reference of its own, ``StoreError`` when the disk refuses.
        """
        if isinstance(value, str):
            return self._kept(value) if len(value) > self.limit else value
        if isinstance(value, Mapping) and REFERENCE in value:
            raise RecordRejected(f"an object with the key {REFERENCE!r} cannot be told from a reference to a text")
        return _inside(value, self.away)

    def back(self, value: Any) -> Any:
        """The value with every reference replaced by its text. Raises ``CorruptFile`` for one that is lost or changed."""
        if isinstance(value, Mapping) and set(value) == {REFERENCE}:
            return self._read(value[REFERENCE])
        return _inside(value, self.back)

    def _kept(self, text: str) -> dict[str, str]:
        digest = sha256_hex(text.encode("utf-8", "surrogatepass"))
        place = self.path / f"{digest}.txt"
        if not place.exists():
            replace_text(place, text)
        return {REFERENCE: digest}

    def _read(self, digest: object) -> str:
        place = self.path / f"{digest}.txt"
        try:
            # Bytes, because reading as text would fold line ends.
            text = place.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptFile(f"{place}: the text that a rollout refers to cannot be read") from error
        if sha256_hex(text) != digest:
            raise CorruptFile(f"{place}: the text is not what it was when it was written")
        return text


def _inside(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: change(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [change(inner) for inner in value]
    return value
