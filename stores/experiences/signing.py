"""Bind a record to the pack it was learned for: a digest of pack stamp, manifest timestamp and content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.record import ExperienceRecord

_UNSIGNED = {1: {"stamp_signature", "created_at"}}
"""By schema version; later ones sign everything but the signature."""


@dataclass(frozen=True, slots=True)
class PackStamp:
    """Stamp of a pack in its manifest."""

    pack_id: str
    stamp: str
    """Hex SHA-256 of the sources, with id and domain."""
    stamped_at: str
    """The manifest's timestamp, as written."""


def sign_record(record_fields: Mapping[str, Any], pack: PackStamp) -> str:
    """Return the hex SHA-256 of the pack's stamp, the manifest's timestamp and the record without its signature."""
    unsigned = _UNSIGNED.get(record_fields.get("schema_version", 1), {"stamp_signature"})
    content = {key: value for key, value in record_fields.items() if key not in unsigned}
    return sha256_hex(canonical_json({"stamp": pack.stamp, "stamped_at": pack.stamped_at, "record": content}))


def stamp_record(record: ExperienceRecord, pack: PackStamp) -> ExperienceRecord:
    """Return the record with its signature under this pack."""
    return record.model_copy(update={"stamp_signature": sign_record(record.model_dump(mode="json"), pack)})


def signature_holds(record: ExperienceRecord, pack: PackStamp) -> bool:
    """Return whether the record was signed under exactly this version of this pack, and is unchanged."""
    return record.pack_id == pack.pack_id and record.stamp_signature == sign_record(
        record.model_dump(mode="json"), pack
    )
