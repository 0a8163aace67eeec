"""Give files that a test wrote by hand their checksums: it is the test of something else than damage."""

import json
from pathlib import Path
from typing import Any

from tfgrpo.flows.run.damage import record_file
from tfgrpo.stores.files.atomic import replace_signed
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import LineFile


def sign(path: Path, **fields: Any) -> None:
    """Set fields of a manifest as its run would, with the digest of all of it."""
    replace_signed(path, {**json.loads(path.read_text(encoding="utf-8")), **fields})


def seal(path: Path, *, vouched: bool = True) -> None:
    """Write every line of the file as a group with its checksum; ``vouched``: the manifest of its run says the same."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_bytes(b"")
    file = LineFile(path)
    for row in rows:
        file.append([{name: value for name, value in row.items() if name != "sum"}])
    if vouched and path.with_name("manifest.json").is_file():
        record_file(RunPaths(path.parent), path)
