"""``manifest.json`` of a run: status, settings with sources, seeds, stamps, cohorts, results, warnings.

Replaced atomically at every change. Secrets are never among the settings, so never in here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.atomic import read_json, replace_signed

MANIFEST_SCHEMA: Final = 1
RunStatus: TypeAlias = Literal["running", "finished", "stopped", "failed", "refused"]
TFGRPO_KEYS: Final = ("epochs", "experiences_written", "reward_scores", "per_tool_metrics")


@contextmanager
def expected_shape(path: Path, other: type[Exception] = LookupError) -> Iterator[None]:
    """Raise ``CorruptFile`` for what reading values of another shape raises: files may be damaged, or of any version."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, other) as error:
        raise CorruptFile(f"{path}: not of the expected shape: {type(error).__name__}: {error}") from error


class ManifestFile:
    """The manifest of one run, for one writer. Fields are merged key by key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Return the manifest, empty before the first ``update``. Raises ``CorruptFile``."""
        content = read_json(self.path, "a manifest")
        if content is None:
            return {}
        if content.get("schema_version") != MANIFEST_SCHEMA:
            raise CorruptFile(f"{self.path}: is not a manifest of schema version {MANIFEST_SCHEMA}")
        return content

    def update(self, **fields: Any) -> dict[str, Any]:
        """Merge fields into the file and return the whole manifest.

        Raises ``RecordRejected`` for an unknown status, a ``tfgrpo`` block without one of its four parts, or values
        outside JSON; the file is then unchanged.
        """
        if (status := fields.get("status", "running")) not in get_args(RunStatus):
            raise RecordRejected(f"manifest: status {status!r}; accepted: {', '.join(get_args(RunStatus))}")
        if missing := [key for key in TFGRPO_KEYS if key not in fields.get("tfgrpo", TFGRPO_KEYS)]:
            raise RecordRejected(f"manifest: the tfgrpo block lacks {', '.join(missing)}")
        empty = {"epochs": [], "experiences_written": 0, "reward_scores": {}, "per_tool_metrics": []}
        blank = {"schema_version": MANIFEST_SCHEMA, "status": "running", "warnings": [], "tfgrpo": empty}
        content = {**blank, **self.read(), **fields}
        return replace_signed(self.path, content)

    def warn(self, text: str, *, lasting: bool = False) -> None:
        """Add a warning once. A lasting one records an event, and stays when the run is resumed."""
        content = self.read()
        keys = ["warnings", "lasting_warnings"] if lasting else ["warnings"]
        before = {key: content.get(key, []) for key in keys}
        added = {key: [*texts, text] for key, texts in before.items() if text not in texts}
        if added:
            self.update(**added)
