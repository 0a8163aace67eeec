"""Stamp a pack: write the headers of its sources and the stamp of its manifest."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from tfgrpo.prompt_packs.models import PromptPackManifest
from tfgrpo.prompt_packs.sources import MANIFEST, read_manifest, read_sources
from tfgrpo.prompt_packs.stamps import StampVerifier, compute_stamp, content_problems, header_line, parse_source
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import PackError


def stamp_pack(directory: Path, clock: Clock) -> PromptPackManifest:
    """Approve the sources as they are: write each header and the manifest's stamp and time, and return the manifest.

    A pack with a valid stamp keeps its time and therefore its lessons. The manifest is written last, so an interruption
    leaves a pack that does not verify. Raise ``PackError`` with every problem before writing.
    """
    manifest = read_manifest(directory)
    texts, unread = read_sources(directory, manifest)
    if unread:
        raise PackError(unread)
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
        try:
            _write(directory / name, text)
        except OSError as error:
            given = f"{error.strerror or error}"
            raise PackError.one(str(directory / name), given, "a file that can be replaced") from None
    return manifest


def _write(path: Path, text: str) -> None:
    """Replace a file atomically and keep its permissions, because packs are shared, unlike the files of a run."""
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
