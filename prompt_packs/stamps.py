"""Stamp packs, load only those that verify, and build prompts of a pack's text and the lessons that are signed under it.

A stamp shows that the pack is unchanged since it was stamped; it is a digest, not a signature, so it does not show by
whom. Only canonical text is hashed, without byte order marks, line end styles and blank lines at the edges of a file.
An unapproved pack raises, and the path of each offending file is logged.

Only this module adds lessons to a prompt. It skips unsigned, outdated, too long and suspicious ones, with the reason.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tfgrpo.prompt_packs.models import (
    LEADS,
    MANIFEST,
    TEMPLATE_FIELDS,
    LoadedPack,
    PromptPackManifest,
    read_manifest,
    read_pack,
    template_problems,
)
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import PackError, Problem, StoreError
from tfgrpo.stores.experiences.store import ExperienceRecord, PackStamp, signature_holds
from tfgrpo.stores.files.atomic import replacing
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.text import MAX_WORDS

_HEADER = re.compile(r"<!--\s*tfgrpo-stamp:\s*sha256:([0-9A-Fa-f]{64})\s+pack:(\S+)\s+domain:(\S+)\s*-->\s*")
_STAMP_LIKE = re.compile(r"tfgrpo-stamp", re.IGNORECASE)
_LESSONS_TAG = re.compile(r"<\s*/?\s*lessons\b", re.IGNORECASE)
_HIDDEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f]"
)
_RUN_STAMP = "stamp the pack again after reviewing it: tfgrpo packs stamp"
SHIPPED_ROOT = Path(__file__).parent
_log = logging.getLogger("tfgrpo.packs")
STALE_STAMP = "stamp of another pack version"
OTHER_PACK = "record of another pack"
UNSTAMPED = "no stamp"
REPEATED = "already in the prompt"
NO_SLOT = "no slot left"
_OPENING, _CLOSING = "<lessons>\n", "</lessons>"
# JSON writers escape the end of a line, and may escape the brackets.
_TAG = re.compile(rb"lessons(?:>|\\u003[eE])")
_LINE = re.compile(rf"(?:\n|\\n)(?:{'|'.join(LEADS.values())})".encode())
_FILLER = "Read the task as it stands and answer it in the form that it asks for. "


class PromptSource(NamedTuple):
    """Parts of a source. ``header`` is (hex, pack id, domain), or None without a stamp header."""

    body: str
    header: tuple[str, str, str] | None


def parse_source(text: str) -> PromptSource:
    """Split canonical text into its stamp header and its body."""
    first, _, rest = text.lstrip("\n").partition("\n")
    match = _HEADER.fullmatch(first)
    if match is None:
        return PromptSource(text.strip("\n"), None)
    digest, pack_id, domain = match.groups()
    return PromptSource(rest.strip("\n"), (digest.lower(), pack_id, domain))


def source_digest(name: str, body: str, manifest: PromptPackManifest) -> str:
    """Return the hex SHA-256 of one source: its text and name, and its pack and domain."""
    content = {"body": body, "domain": manifest.domain, "name": name, "pack": manifest.id, "scheme": "tfgrpo-source-1"}
    return sha256_hex(canonical_json(content))


def compute_stamp(manifest: PromptPackManifest, bodies: Mapping[str, str]) -> str:
    """Return the hex SHA-256 of a pack: id, domain, and every source with its role."""
    content = {
        "domain": manifest.domain,
        "id": manifest.id,
        "inject": list(manifest.inject),
        "scheme": "tfgrpo-pack-1",
        "sources": {name: sha256_hex(bodies[name]) for name in manifest.source_names},
        "system": manifest.system,
        "templates": {str(role): name for role, name in manifest.template_names.items()},
    }
    return sha256_hex(canonical_json(content))


def header_line(name: str, body: str, manifest: PromptPackManifest) -> str:
    """Return the first line of an approved source."""
    digest = source_digest(name, body, manifest)
    return f"<!-- tfgrpo-stamp: sha256:{digest} pack:{manifest.id} domain:{manifest.domain} -->"


def content_problems(path: Path, body: str) -> tuple[Problem, ...]:
    """Return the problems of a text that no stamp can approve: empty, hidden characters, tags, further headers."""
    hidden = _HIDDEN.search(body)
    character = f"the hidden character U+{ord(hidden.group()):04X}" if hidden else ""
    checks = (
        (not body.strip(), "no text", "some text below the header"),
        (hidden, character, "visible text"),
        (_STAMP_LIKE.search(body), "a further stamp header", "one header, in the first line"),
        (_LESSONS_TAG.search(body), "a lessons tag", "text without it: the tag marks where lessons are injected"),
    )
    return tuple(Problem(str(path), fault, accepted) for wrong, fault, accepted in checks if wrong)


@dataclass(frozen=True, slots=True)
class StampVerifier:
    """Verifies the sources of one pack by their headers and the manifest's stamp."""

    directory: Path
    manifest: PromptPackManifest

    def source_problems(self, name: str, source: PromptSource) -> tuple[Problem, ...]:
        """Return why a file is not an approved source of this pack."""
        path = self.directory / name
        if source.header is None:
            return (Problem(str(path), "no stamp header", _RUN_STAMP), *content_problems(path, source.body))
        digest, pack_id, domain = source.header
        faults = content_problems(path, source.body)
        if (pack_id, domain) != (self.manifest.id, self.manifest.domain):
            accepted = f"the header of pack {self.manifest.id}, domain {self.manifest.domain}"
            return (*faults, Problem(str(path), f"the header of pack {pack_id}, domain {domain}", accepted))
        if digest != source_digest(name, source.body, self.manifest):
            return (*faults, Problem(str(path), "text that its header does not match", _RUN_STAMP))
        return faults

    def stamp_problems(self, bodies: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return why the manifest's stamp is invalid for these texts."""
        path = self.directory / MANIFEST
        if not self.manifest.stamp or not self.manifest.stamped_at:
            return (Problem(f"{path}: stamp", "none", _RUN_STAMP),)
        if self.manifest.stamp != compute_stamp(self.manifest, bodies):
            return (Problem(f"{path}: stamp", "a stamp that the sources do not match", _RUN_STAMP),)
        return ()

    def template_problems(self, bodies: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return the templates with other placeholders than those of their role, or with a lesson in the introduction."""
        problems: list[Problem] = []
        for role, name in self.manifest.template_names.items():
            problems += template_problems(bodies[name], TEMPLATE_FIELDS[role], str(self.directory / name))
        name = self.manifest.templates.lessons
        if any(line.startswith(tuple(LEADS.values())) for line in bodies[name].split("\n")):
            accepted = "what introduces the lessons, without any of them"
            problems.append(Problem(str(self.directory / name), "a line that reads as a lesson", accepted))
        return tuple(problems)


def verified_pack(directory: Path) -> LoadedPack:
    """Read and verify one pack. Raise ``PackError`` with every problem."""
    manifest, texts = read_pack(directory)
    verifier, sources = StampVerifier(directory, manifest), {name: parse_source(text) for name, text in texts.items()}
    bodies = {name: source.body for name, source in sources.items()}
    faults = [problem for name, source in sources.items() for problem in verifier.source_problems(name, source)]
    if faults := [*faults, *verifier.stamp_problems(bodies), *verifier.template_problems(bodies)]:
        raise PackError(faults)
    return LoadedPack(manifest, directory, bodies)


def pack_stamp(pack: LoadedPack) -> PackStamp:
    """Return the stamp that signs the records of this pack. Raise ``PackError`` if it has none."""
    manifest = pack.manifest
    if not manifest.stamp or not manifest.stamped_at:
        raise PackError.one(f"{pack.root / MANIFEST}: stamp", "none", _RUN_STAMP)
    return PackStamp(pack_id=manifest.id, stamp=manifest.stamp, stamped_at=manifest.stamped_at)


def approved_stamps(packs: Iterable[LoadedPack]) -> dict[str, PackStamp]:
    """Return the stamps in force by pack id, for the store to verify records."""
    return {pack.manifest.id: pack_stamp(pack) for pack in packs}


def is_approved(pack: LoadedPack) -> bool:
    """Verify a loaded pack again: its texts by its stamp, and its directory by the pack.

    Raise ``PackError`` if the texts in memory do not match the stamp: such a pack must not reach a model. Return False
    if the directory has another version by now, or none that verifies.
    """
    if problems := StampVerifier(pack.root, pack.manifest).stamp_problems(pack.bodies):
        raise PackError(problems)
    try:
        return pack_stamp(verified_pack(pack.root)) == pack_stamp(pack)
    except PackError:
        return False


def stamp_pack(directory: Path, clock: Clock) -> PromptPackManifest:
    """Approve the sources as they are: write each header and the manifest's stamp and time, and return the manifest.

    A pack with a valid stamp keeps its time and therefore its lessons. The manifest is written last, so an interruption
    leaves a pack that does not verify. Raise ``PackError`` with every problem before writing.
    """
    manifest, texts = read_pack(directory)
    bodies = {name: parse_source(text).body for name, text in texts.items()}
    problems = [problem for name, body in bodies.items() for problem in content_problems(directory / name, body)]
    problems += StampVerifier(directory, manifest).template_problems(bodies)
    if problems:
        raise PackError(problems)
    stamp = compute_stamp(manifest, bodies)
    if stamp != manifest.stamp or not manifest.stamped_at:
        manifest = manifest.model_copy(update={"stamp": stamp, "stamped_at": clock().isoformat(timespec="seconds")})
    files = {name: f"{header_line(name, body, manifest)}\n{body}\n" for name, body in bodies.items()}
    files[MANIFEST] = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    for name, text in files.items():
        path, data = directory / name, text.encode()
        try:
            if path.read_bytes() == data:
                continue
            with replacing(path) as temporary, temporary.open("wb") as stream:
                # Packs are shared, unlike the files of a run.
                shutil.copymode(path, temporary)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except (OSError, StoreError) as error:
            raise PackError.one(str(path), str(error).removeprefix(f"{path}: "), "a file that can be replaced") from None
    return manifest


def known_packs(root: Path | None = None) -> tuple[str, ...]:
    """Return the ids of all packs under a root, sorted, without verifying them. Raise ``PackError`` without a root."""
    base = SHIPPED_ROOT if root is None else root
    try:
        return tuple(sorted(entry.name for entry in base.iterdir() if (entry / MANIFEST).is_file()))
    except OSError as error:
        received = error.strerror or type(error).__name__
        raise PackError.one(str(base), received, "a readable directory of prompt packs") from None


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


def load_prompt_pack(domain_or_id: str, root: Path | None = None, words_allowed: int = MAX_WORDS) -> LoadedPack:
    """Load the pack with this id, or else the only pack of this domain; ``words_allowed``: those of a lesson in the run.

    Raise ``PackError`` for an unknown name, for a domain with several packs, and for a pack that does not verify.
    """
    base = SHIPPED_ROOT if root is None else root
    pack_ids = known_packs(base)
    by_domain = {} if domain_or_id in pack_ids else domains(base)
    of_domain = by_domain.get(domain_or_id, (domain_or_id,) if domain_or_id in pack_ids else ())
    if len(of_domain) == 1:
        return replace(load_pack(base / of_domain[0]), words_allowed=words_allowed)
    if of_domain:
        raise PackError.one("pack", f"domain {domain_or_id!r}, which has several", f"one of {', '.join(of_domain)}")
    names = f"ids: {', '.join(pack_ids) or 'none'}; domains: {', '.join(by_domain) or 'none'}"
    raise PackError.one("pack", repr(domain_or_id[:100]), f"a pack under {base} ({names})")


def stamps_in_force(root: Path | None) -> dict[str, PackStamp]:
    """Return the stamps of the packs that verify. Lessons for any other pack count as unverified."""
    approved: dict[str, PackStamp] = {}
    for each in (SHIPPED_ROOT, *([root] if root else [])):
        for name in known_packs(each):
            with suppress(PackError):
                approved |= approved_stamps([load_prompt_pack(name, each)])
    return approved


class MergedPrompt(NamedTuple):
    """The system text of one prompt, its lessons in order, and those left out, each with the reason."""

    text: str
    experience_ids: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def merge_experiences(pack: LoadedPack, experiences: Sequence[ExperienceRecord] = ()) -> MergedPrompt:
    """Add the first ``experience_slots`` usable lessons, in the given order, below the pack's text.

    Every call verifies the pack again: raise ``PackError`` if its loaded texts do not match its stamp; use no lesson if
    its directory has another version by now. Every record's signature is checked against the pack in force. The same
    arguments give the same text, and each further lesson only adds a line before the closing tag.
    """
    return merge_each(pack, [experiences])[0]


def merge_each(pack: LoadedPack, prompts: Sequence[Sequence[ExperienceRecord]]) -> list[MergedPrompt]:
    """Merge the lessons of each prompt as ``merge_experiences`` does; pack and lessons are verified once for all."""
    stamp = pack_stamp(pack) if is_approved(pack) else None
    # By identity: what two records have in common says nothing of the signature of the other.
    records = {id(record): record for experiences in prompts for record in experiences}
    checked = {key: _lesson_line(record, pack, stamp) if stamp else ("", STALE_STAMP) for key, record in records.items()}
    merged = []
    for experiences in prompts:
        # The id of each lesson by its line.
        used: dict[str, str] = {}
        skipped: list[tuple[str, str]] = []
        for record in experiences:
            line, reason = checked[id(record)]
            if not reason and line in used:
                reason = REPEATED
            if not reason and len(used) >= pack.manifest.experience_slots:
                reason = NO_SLOT
            if reason:
                skipped.append((record.experience_id, reason))
            else:
                used[line] = record.experience_id
        block = "\n".join([pack.templates["lessons"], *used, _CLOSING])
        text = f"{pack.text}\n\n{_OPENING}{block}" if used else pack.text
        merged.append(MergedPrompt(text, tuple(used.values()), tuple(skipped)))
    return merged


def lessons_block(text: str) -> str:
    """Return the lessons of a system text of ``merge_experiences``, tags included; empty without any."""
    start = text.rfind(_OPENING)
    return text[start : text.rfind(_CLOSING) + len(_CLOSING)] if start >= 0 else ""


def lessons_in(text: str) -> list[str]:
    """Return the lessons of a system text of ``merge_experiences``, each as ``Do: …`` or ``Avoid: …``, in order."""
    leads = tuple(LEADS.values())
    return [line.removeprefix("- ") for line in lessons_block(text).split("\n") if line.startswith(leads)]


def holds_lessons(text: str | bytes) -> bool:
    """Return whether a text, or the JSON of a request, has a block of lessons, whatever introduces them."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    opening = _TAG.search(data)
    return opening is not None and _LINE.search(data, opening.end()) is not None


def with_sample_lesson(text: str) -> str:
    """Return a pack's text with one lesson about nothing, to see where lessons arrive."""
    return f"{text}\n\n{_OPENING}{LEADS['do']}{_FILLER.strip()}\n{_CLOSING}"


def without_meaning(text: str) -> str:
    """Return a system text with neutral words of equal length in place of each lesson: a placebo."""
    block, lead = lessons_block(text), LEADS["do"]
    lines = block.split("\n")
    for number, line in enumerate(lines):
        if line.startswith(tuple(LEADS.values())):
            lines[number] = lead + (_FILLER * len(line))[: max(1, len(line) - len(lead))].rstrip()
    return text.removesuffix(block) + "\n".join(lines)


def _lesson_line(record: ExperienceRecord, pack: LoadedPack, stamp: PackStamp) -> tuple[str, str]:
    # One of the two is empty: the line of the lesson, and the reason to skip it.
    if (record.pack_id, record.domain) != (pack.manifest.id, pack.manifest.domain):
        return "", OTHER_PACK
    if not record.stamp_signature:
        return "", UNSTAMPED
    if not signature_holds(record, stamp):
        return "", STALE_STAMP
    screened = screen_lesson(record.summary32, max_words=pack.max_words)
    if isinstance(screened, Rejection):
        return "", screened.reason
    return LEADS[record.polarity] + screened, ""
