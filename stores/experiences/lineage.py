"""Record which run's manifest each stored batch belongs to, in ``batches.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.record import Strict
from tfgrpo.stores.files.atomic import KeyedJsonl, read_lines

_ID_DIGITS = 16


class StoredBatch(Strict):
    """One batch as passed to the store."""

    schema_version: int = 1
    batch_id: str
    """Digest of the ids, by which a repeated batch is recognised."""
    experience_ids: tuple[str, ...]
    count: int
    manifest_path: str
    at: datetime


class Lineage:
    """Batches of one store, each written once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = KeyedJsonl(path, lambda row: str(row["batch_id"]))

    def record(self, experience_ids: Sequence[str], manifest_path: Path, at: datetime) -> None:
        """Append the batch unless it exists. Raises ``StoreError`` when the disk refuses."""
        batch = StoredBatch(
            batch_id=sha256_hex(canonical_json(list(experience_ids)))[:_ID_DIGITS],
            experience_ids=tuple(experience_ids),
            count=len(experience_ids),
            manifest_path=str(manifest_path),
            at=at,
        )
        self._file.append([batch.model_dump(mode="json")])

    def batches(self) -> Iterator[StoredBatch]:
        """Yield all batches, oldest first. Raises ``CorruptFile`` for any other line."""
        for number, line in enumerate(read_lines(self._path), start=1):
            try:
                yield StoredBatch.model_validate_json(line)
            except ValueError as error:
                raise CorruptFile(f"{self._path}: line {number} is not a batch") from error
