"""As which Prefect state does a flow of ours end? By its own word for how it went, with its result as data."""

from __future__ import annotations

from typing import Protocol

from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed


class Ended(Protocol):
    """What a flow came to: how it went, in a word and in a sentence, and all of it for machines."""

    @property
    def status(self) -> str:
        """``finished``, ``stopped`` (before its end, by a limit) or anything else, which is a failure."""

    @property
    def message(self) -> str:
        """What a person is told."""

    def as_json(self) -> dict[str, object]:
        """Everything."""


def state_of(ended: Ended) -> State[dict[str, object]]:
    """``Completed``, named ``StoppedEarly`` when a limit ended it; else ``Failed``."""
    data = ended.as_json()
    if ended.status == "finished":
        return Completed(message=ended.message, data=data)
    if ended.status == "stopped":
        return Completed(name="StoppedEarly", message=ended.message, data=data)
    return Failed(message=ended.message, data=data)
