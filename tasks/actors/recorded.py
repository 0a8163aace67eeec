"""Journal work outside the model client (tools, whole agents), so that a resumed run does not repeat it.

The recorder also keeps the calls in progress, so that a rollout that times out can name the call that it waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import ActorError, RecordRejected, ReplayMiss, TfgrpoError
from tfgrpo.stores.runs.journal import CallKey, Journal
from tfgrpo.tasks.models.base import ChatRequest
from tfgrpo.tasks.models.wire import request_digest

ResultT = TypeVar("ResultT")


def model_key(key: CallKey, request: ChatRequest) -> str:
    """Return the text under which the model client journals a request."""
    return key.text(request_digest(request))


class Recorder:
    """Journal of one attempt; not shared between attempts."""

    def __init__(self, journal: Journal | None, *, replay: bool = False) -> None:
        self._journal = journal
        self._replay = replay
        self.made = False
        """Whether any work was done that the journal did not have."""
        self._pending: dict[CallKey, Callable[[], str]] = {}

    @property
    def waiting_for(self) -> str | None:
        """Key text of the outermost call in progress, or of the last that failed."""
        return next((key_text() for key_text in self._pending.values()), None)

    @contextmanager
    def waiting(self, key: CallKey, key_text: Callable[[], str]) -> Iterator[None]:
        """Mark a call as in progress; it stays marked if it fails. Few texts are ever needed, so they are made late."""
        self._pending[key] = key_text
        yield
        del self._pending[key]

    async def once(
        self,
        key: CallKey,
        request: Mapping[str, Any],
        work: Callable[[], Awaitable[ResultT]],
        *,
        encode: Callable[[ResultT], dict[str, Any]],
        decode: Callable[[Mapping[str, Any]], ResultT],
    ) -> ResultT:
        """Return the journalled result, or that of ``work``, journalled before it is returned.

        Raises the recorded failure again if one was accepted, and ``ReplayMiss`` when replaying what is not there.
        """
        key_text = key.text(sha256_hex(canonical_json(request).encode("utf-8", "surrogatepass")))
        with self.waiting(key, lambda: key_text):
            found = None if self._journal is None else self._journal.answer(key_text, decode, final=self._replay)
            if isinstance(found, TfgrpoError):
                raise found
            if found is None:
                if self._replay:
                    raise ReplayMiss(f"the journal holds no {key.role} call {key_text}")
                self.made = True
                found = await work()
                self._keep(key_text, encode(found))
        return found

    def _keep(self, key_text: str, payload: dict[str, Any]) -> None:
        try:
            if self._journal is not None:
                self._journal.append(key_text, payload)
        except RecordRejected as error:
            # Not a fault of the disk: the agent or tool returned what JSON cannot represent.
            raise ActorError(f"its result cannot be recorded: {error}") from error
