"""What a run keeps while it goes: the journal of its answered calls, read by key, and its manifest.

A reply is on disk before its caller sees it, so a killed and resumed run pays for no call twice. The journal is append-only;
of entries with one key the latest counts. A damaged line is moved to ``<name>.torn``, and its call counts as unanswered. The
manifest is replaced atomically at every change. Secrets are never among the settings, so never in there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, get_args

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile, RecordRejected, TfgrpoError, error_named
from tfgrpo.stores.files.atomic import read_json, replace_signed
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.outcomes import GroupKey

_AnswerT = TypeVar("_AnswerT")
GATEWAY = "gateway"
"""Role of an answer to an agent of the user's own that called a model through the gateway."""
IDEMPOTENCY_KEY = "idempotency-key"
"""Header by which an endpoint may know a call that it has answered."""
UNFINISHED = "unfinished"
"""Role of the entry with what a failed attempt of an agent of the user's own did, next to its ``agent`` entry."""
EntryKind: TypeAlias = Literal["reply", "failure"]


@dataclass(frozen=True, slots=True)
class CallKey:
    """Which call of a run this is. Arms and roles contain no slash, so the text form is unambiguous."""

    group: GroupKey
    rollout: int
    turn: int
    role: str
    """``rollout``, ``reflect``, ``curate``, ``tool``, ``agent``, ``judge`` and the like."""
    attempt: int = 0
    """Counts repairs of a structured answer, not retries of one request."""

    def text(self, digest: str) -> str:
        """Return the key as text, with 16 digits of the request's digest: another request is another call."""
        return f"{attempt_name(self.group, self.rollout)}/{self.turn}/{self.role}/{self.attempt}#{digest[:16]}"


def attempt_name(group: GroupKey, rollout: int) -> str:
    """Return the prefix of the key texts of an attempt; ``rollout`` is its index in the group."""
    return f"{group.epoch}/{group.arm}/{group.batch}/{group.draw_id}/{rollout}"


def attempt_and_role(key_text: str) -> tuple[str, str]:
    """Return the attempt and the role in a key text; item ids may contain slashes and hashes.

    Raises ``ValueError`` for a text that is no key.
    """
    name, _, role, _ = key_text.rpartition("#")[0].rsplit("/", 3)
    return name, role


def idempotency_key(run: str, key_text: str) -> str:
    """Return the ``Idempotency-Key`` of a call: the same for its retries, also after a kill, and for no other call.

    ``run``: a name that no other run has.
    """
    return blake2b(f"{run}\n{key_text}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Journal:
    """The answered calls of one run. Safe for any number of threads and processes at once.

    An entry is ``{"schema": 1, "key": …, "kind": "reply" | "failure", "at": …, "payload": {…}}``. In memory: a digest and an
    offset per key, some 40 bytes. A killed process loses no entry, a loss of power those since the last ``sync``.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now, repair: bool = True) -> None:
        """Open or create. Damaged lines and a torn last one go to ``<name>.torn``; without ``repair`` they stay."""
        self.path = path
        self.added = 0
        """Entries that this object has appended, less those that it has removed."""
        self._clock = clock
        self._file = LineFile(path, "key")
        with self._file:
            (self._file.repair if repair else self._file.catch_up)()

    def __len__(self) -> int:
        return self._file.count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key_text: str) -> dict[str, Any] | None:
        """Return the latest entry of this key, by any process, or None. Raises ``CorruptFile``."""
        return self._file.get(key_text)

    def answer(
        self, key_text: str, decode: Callable[[Mapping[str, Any]], _AnswerT], *, final: bool
    ) -> _AnswerT | TfgrpoError | None:
        """Return the decoded payload of this key, the error of a recorded failure, or None.

        An entry that ``decode`` refuses is a damaged line; with ``final`` (the call cannot be repeated) it raises
        ``CorruptFile``.
        """
        entry = self.get(key_text)
        if entry is None:
            return None
        try:
            payload = entry["payload"]
            if entry["kind"] == "failure":
                return error_named(str(payload["error_type"]), str(payload["reason"]))
            return decode(payload)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if final:
                raise CorruptFile(f"{self.path}: the entry for call {key_text} is not a reply: {error!r}") from error
        self._file.remove(key_text)
        self.added -= 1
        return None

    def append(self, key_text: str, payload: Mapping[str, Any]) -> None:
        """Write the reply to a call.

        Raises ``RecordRejected`` when the payload is not JSON, ``StoreError`` when the disk refuses; the file stays intact.
        """
        self._append(key_text, "reply", payload)

    def append_failure(self, key_text: str, error_type: str, reason: str) -> None:
        """Write that a call failed for good, so that a resumed run does not repeat it."""
        self._append(key_text, "failure", {"error_type": error_type, "reason": reason})

    def sync(self) -> None:
        """Sync the entries so far to the disk. Raises ``StoreError``."""
        self._file.sync()

    @property
    def warning(self) -> str | None:
        """Warning about damaged lines, or None."""
        moved = self._file.warning
        return moved and f"{moved}; those calls are asked again"

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        self._file.close()

    def _append(self, key_text: str, kind: EntryKind, payload: Mapping[str, Any]) -> None:
        # The key comes before the payload, so that opening reads keys without parsing replies.
        entry = {"schema": 1, "key": key_text, "kind": kind, "at": self._clock().isoformat(), "payload": payload}
        self._file.append([entry])
        self.added += 1


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
