"""Map the result of a run or selection to a Prefect state, with the result as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from tfgrpo.stores.errors import FlowFailed


class Ended(Protocol):
    """What a flow came to: how it went, in a word and in a sentence, and all of it for machines."""

    @property
    def status(self) -> str:
        """``finished``, ``stopped`` (before its end, by a limit) or anything else, which is a failure."""

    @property
    def message(self) -> str:
        """The message for people."""

    def as_json(self) -> dict[str, object]:
        """Everything."""


def state_of(ended: Ended) -> State[Any]:
    """``Completed`` with the result as data, ``StoppedEarly`` when a limit ended it; else ``Failed``, with a ``FlowFailed``."""
    data = ended.as_json()
    if ended.status == "finished":
        return Completed(message=ended.message, data=data)
    if ended.status == "stopped":
        return Completed(name="StoppedEarly", message=ended.message, data=data)
    return failure(ended.message, data)


def failure(message: str, data: Mapping[str, object]) -> State[Any]:
    """``Failed``. Prefect raises the data of such a state, and logs a long complaint if it is no exception."""
    return Failed(message=message, data=FlowFailed(message, data))
