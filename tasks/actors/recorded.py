"""Was this done before? Work outside the model seam (tools, whole agents) is journalled, and then not done again.

It also knows which calls are under way, so that a rollout that runs out of time can name the call that it waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import ActorError, RecordRejected, ReplayMiss, TfgrpoError
from tfgrpo.stores.runs.journal import CallKey, Journal
from tfgrpo.tasks.models.base import ChatRequest
from tfgrpo.tasks.models.wire import request_digest

ResultT = TypeVar("ResultT")


def model_key(key: CallKey, request: ChatRequest) -> str:
    """Text under which the model seam journals a request."""
    return key.text(request_digest(request))


class Recorder:
    """The journal as one attempt sees it. Not shared between attempts."""

    def __init__(self, journal: Journal | None, *, replay: bool = False) -> None:
        self._journal = journal
        self._replay = replay
        self.made = False
        """Whether anything was done anew instead of being taken from the journal."""
        self._pending: dict[CallKey, Callable[[], str]] = {}

    @property
    def waiting_for(self) -> str | None:
        """Key text of the outermost call under way, or of the last one that broke."""
        return next((key_text() for key_text in self._pending.values()), None)

    def begun(self, key: CallKey, key_text: Callable[[], str]) -> None:
        """Mark a call as under way; it stays marked when it breaks. Few calls are ever asked for their text."""
        self._pending[key] = key_text

    def ended(self, key: CallKey) -> None:
        """Forget a call that succeeded."""
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
        """The journalled result, or that of ``work``, journalled before anyone sees it.

        Raises the recorded failure again if one was accepted, and ``ReplayMiss`` when replaying what is not there.
        """
        key_text = key.text(sha256_hex(canonical_json(request).encode("utf-8", "surrogatepass")))
        self.begun(key, lambda: key_text)
        found = None if self._journal is None else self._journal.answer(key_text, decode, final=self._replay)
        if isinstance(found, TfgrpoError):
            raise found
        if found is None:
            if self._replay:
                raise ReplayMiss(f"the journal holds no {key.role} call {key_text}")
            self.made = True
            found = await work()
            self._keep(key_text, encode(found))
        self.ended(key)
        return found

    def _keep(self, key_text: str, payload: dict[str, Any]) -> None:
        try:
            if self._journal is not None:
                self._journal.append(key_text, payload)
        except RecordRejected as error:
            # The disk is well: an agent or a tool brought what no JSON can hold.
            raise ActorError(f"what it brought cannot be recorded: {error}") from error
