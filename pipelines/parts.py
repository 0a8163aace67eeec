"""How are all problems of several checks told at once? Each check runs, whatever the others refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tfgrpo.pipelines.problems import raise_together
from tfgrpo.stores.errors import ConfigError

_T = TypeVar("_T")


class Parts:
    """Runs one part after another and keeps what each refuses."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    def run(self, part: Callable[[], _T]) -> list[_T]:
        """The part's result as the only element, or nothing when it refused."""
        try:
            return [part()]
        except ConfigError as error:
            self._errors.append(error)
            return []

    def raise_found(self) -> None:
        """Raise everything refused so far as one error, if anything was."""
        raise_together(self._errors)
