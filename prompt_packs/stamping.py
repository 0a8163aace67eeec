"""How does an author approve a pack? Writes the headers and the manifest's stamp; decides nothing about content."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfgrpo.prompt_packs.models import PromptPackManifest
from tfgrpo.prompt_packs.sources import MANIFEST, read_manifest, read_sources
from tfgrpo.prompt_packs.stamps import StampVerifier, compute_stamp, content_problems, header_line, parse_source
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import PackError, Problem


def stamp_pack(directory: Path, clock: Clock) -> PromptPackManifest:
    """Approve the sources as they stand: give each its header, the manifest its stamp and time; return the manifest.

    A pack whose stamp is already right keeps its time and therefore its lessons. The manifest is written last, so a
    break in between leaves a pack that does not verify. Raises ``PackError`` with every problem before anything is
    written.
    """
    manifest = read_manifest(directory)
    texts, unread = read_sources(directory, manifest)
    if unread:
        raise PackError(unread)
    bodies = {name: parse_source(text).body for name, text in texts.items()}
    if problems := _content_problems(directory, manifest, bodies):
        raise PackError(problems)
    stamp = compute_stamp(manifest, bodies)
    if stamp != manifest.stamp or not manifest.stamped_at:
        manifest = manifest.model_copy(update={"stamp": stamp, "stamped_at": clock().isoformat(timespec="seconds")})
    files = {name: f"{header_line(name, body, manifest)}\n{body}\n" for name, body in bodies.items()}
    files[MANIFEST] = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    for name, text in files.items():
        try:
            _write(directory / name, text)
        except OSError as error:
            raise PackError.one(
                str(directory / name), f"{error.strerror or error}", "a file that can be replaced"
            ) from None
    return manifest


def _content_problems(directory: Path, manifest: PromptPackManifest, bodies: Mapping[str, str]) -> list[Problem]:
    found = [problem for name, body in bodies.items() for problem in content_problems(directory / name, body)]
    return [*found, *StampVerifier(directory, manifest).template_problems(bodies)]


def _write(path: Path, text: str) -> None:
    """Replace a file whole, keeping its permissions: packs are shared with other people, unlike what a run writes."""
    data = text.encode()
    if path.read_bytes() == data:
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
