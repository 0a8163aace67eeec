"""Which pack is meant by this name? Finds packs by id or domain and loads only what verifies.

Nothing is repaired or guessed: an unapproved pack raises, and the path of each offending file is logged.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.sources import MANIFEST, read_manifest
from tfgrpo.prompt_packs.stamps import inspect_pack, pack_stamp
from tfgrpo.stores.errors import PackError

__all__ = ["SHIPPED_ROOT", "domains", "known_packs", "load_pack", "load_prompt_pack", "pack_stamp"]

SHIPPED_ROOT = Path(__file__).parent
"""Directory of the packs that ship."""

_log = logging.getLogger("tfgrpo.packs")


def known_packs(root: Path | None = None) -> tuple[str, ...]:
    """Ids of all packs under a root, sorted; whether they verify is not asked. Raises ``PackError`` without a root."""
    base = SHIPPED_ROOT if root is None else root
    try:
        return tuple(sorted(entry.name for entry in base.iterdir() if (entry / MANIFEST).is_file()))
    except OSError as error:
        raise PackError.one(
            str(base), error.strerror or type(error).__name__, "a readable directory of prompt packs"
        ) from None


def domains(root: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Pack ids by domain. A pack whose manifest cannot be read has no domain; it is logged and left out."""
    base = SHIPPED_ROOT if root is None else root
    found: dict[str, list[str]] = {}
    for pack_id in known_packs(base):
        try:
            found.setdefault(read_manifest(base / pack_id).domain, []).append(pack_id)
        except PackError as error:
            _log.warning("manifest rejected: %s", error)
    return {domain: tuple(ids) for domain, ids in sorted(found.items())}


def load_pack(directory: Path) -> LoadedPack:
    """Load one pack from its directory. Raises ``PackError`` with every problem; each is logged with its path."""
    pack, problems = inspect_pack(directory)
    if pack is None:
        for problem in problems:
            _log.error("prompt pack rejected: %s", problem)
        raise PackError(problems)
    return pack


def load_prompt_pack(domain_or_id: str, root: Path | None = None) -> LoadedPack:
    """Load the pack with this id, or else the only pack of this domain.

    Raises ``PackError`` when the name is unknown (the known ones are listed), when a domain has several packs, or when
    the pack does not verify.
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
            raise PackError.one("pack", repr(domain_or_id[:100]), _accepted(known, by_domain, base))
        case several:
            raise PackError.one("pack", f"domain {domain_or_id!r}, which has several", f"one of {', '.join(several)}")


def _accepted(known: tuple[str, ...], by_domain: dict[str, tuple[str, ...]], base: Path) -> str:
    ids = ", ".join(known) or "none"
    return f"a pack under {base} (ids: {ids}; domains: {', '.join(by_domain) or 'none'})"
