"""Find prompt packs by id or domain, and load only those that verify.

An unapproved pack raises, and the path of each offending file is logged.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from tfgrpo.prompt_packs.models import MANIFEST, LoadedPack, read_manifest
from tfgrpo.prompt_packs.stamps import approved_stamps, verified_pack
from tfgrpo.stores.errors import PackError
from tfgrpo.stores.experiences.store import PackStamp

SHIPPED_ROOT = Path(__file__).parent
"""Directory of the shipped packs."""

_log = logging.getLogger("tfgrpo.packs")


def known_packs(root: Path | None = None) -> tuple[str, ...]:
    """Return the ids of all packs under a root, sorted, without verifying them. Raise ``PackError`` without a root."""
    base = SHIPPED_ROOT if root is None else root
    try:
        return tuple(sorted(entry.name for entry in base.iterdir() if (entry / MANIFEST).is_file()))
    except OSError as error:
        given = error.strerror or type(error).__name__
        raise PackError.one(str(base), given, "a readable directory of prompt packs") from None


def domains(root: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return pack ids by domain. A pack with an unreadable manifest is logged and omitted."""
    base = SHIPPED_ROOT if root is None else root
    ids: dict[str, list[str]] = {}
    for pack_id in known_packs(base):
        try:
            ids.setdefault(read_manifest(base / pack_id).domain, []).append(pack_id)
        except PackError as error:
            _log.warning("manifest rejected: %s", error)
    return {domain: tuple(each) for domain, each in sorted(ids.items())}


def load_pack(directory: Path) -> LoadedPack:
    """Load one pack from its directory. Raise ``PackError`` with every problem; each is logged with its path."""
    try:
        return verified_pack(directory)
    except PackError as error:
        for problem in error.problems:
            _log.error("prompt pack rejected: %s", problem)
        raise


def load_prompt_pack(domain_or_id: str, root: Path | None = None) -> LoadedPack:
    """Load the pack with this id, or else the only pack of this domain.

    Raise ``PackError`` for an unknown name, for a domain with several packs, and for a pack that does not verify.
    """
    base = SHIPPED_ROOT if root is None else root
    known = known_packs(base)
    if domain_or_id in known:
        return load_pack(base / domain_or_id)
    by_domain = domains(base)
    match by_domain.get(domain_or_id, ()):
        case (only,):
            return load_pack(base / only)
        case ():
            names = f"ids: {', '.join(known) or 'none'}; domains: {', '.join(by_domain) or 'none'}"
            raise PackError.one("pack", repr(domain_or_id[:100]), f"a pack under {base} ({names})")
        case several:
            raise PackError.one("pack", f"domain {domain_or_id!r}, which has several", f"one of {', '.join(several)}")


def stamps_in_force(root: Path | None) -> dict[str, PackStamp]:
    """Return the stamps of the packs that verify. Lessons for any other pack count as unverified."""
    approved: dict[str, PackStamp] = {}
    for each in (SHIPPED_ROOT, *([root] if root else [])):
        for name in known_packs(each):
            with suppress(PackError):
                approved |= approved_stamps([load_prompt_pack(name, each)])
    return approved
