"""Which approved instructions are there for a domain? Collects its packs; what is not approved stays out, loudly."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, domains
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import inspect_pack
from tfgrpo.stores.errors import PackError, Problem

_log = logging.getLogger("tfgrpo.packs")


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """The packs of one domain."""

    domain: str
    packs: tuple[LoadedPack, ...]
    """Those that verified, by id. Never empty."""
    rejected: tuple[Problem, ...]
    """Why others of the domain were left out; the source of each problem is a path."""


def load_instruction_set(root: Path | None, domain: str) -> InstructionSet:
    """Collect the verified packs of a domain; each rejected file is logged with its path.

    Raises ``PackError`` when the domain is unknown (the known ones are listed) or when none of its packs verifies.
    """
    base = SHIPPED_ROOT if root is None else root
    by_domain = domains(base)
    if domain not in by_domain:
        raise PackError.one("domain", repr(domain[:100]), f"one of {', '.join(by_domain) or 'none'} under {base}")
    inspections = [inspect_pack(base / pack_id) for pack_id in by_domain[domain]]
    rejected = tuple(problem for inspection in inspections for problem in inspection.problems)
    for problem in rejected:
        _log.error("instructions rejected: %s", problem)
    packs = tuple(inspection.pack for inspection in inspections if inspection.pack is not None)
    if not packs:
        raise PackError(rejected)
    return InstructionSet(domain, packs, rejected)
