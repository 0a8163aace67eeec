"""How does experience arrive over time? A window over the latest groups, with everything else on disk if wanted.

A window forgets the oldest group for each new one beyond its size. It is a view: what must last is appended to a file
of groups as it comes (``stores.experience_batch_lines``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from stores.errors import ShapeError
from stores.experience_batch import ExperienceBatch, RolloutGroup
from stores.experience_batch_checks import check_groups, is_count
from stores.experience_batch_lines import append_groups, read_groups
from stores.experience_batch_texts import TextFolder


class ExperienceWindow:
    """The latest ``size`` groups, oldest first. Safe for threads.

    ``path``: every group is appended to this file before it is in the window. ``texts``: where its long texts go.
    Raises ``ShapeError`` for a size below 1.
    """

    def __init__(self, size: int, *, path: Path | None = None, texts: TextFolder | None = None) -> None:
        _check_size("size", size)
        self._path = path
        self._texts = texts
        # Guards the groups: a writer adds while readers copy.
        self._lock = threading.Lock()
        self._size = size
        self._groups: OrderedDict[str, RolloutGroup] = OrderedDict()

    def append(self, group: RolloutGroup) -> None:
        """Add a group; a group of the same id that is in the window gives way. Raises ``ShapeError`` and ``StoreError``."""
        self.extend([group])

    def extend(self, groups: Iterable[RolloutGroup]) -> None:
        """Add groups in order, all of them or none."""
        fresh = list(groups)
        check_groups(fresh)
        with self._lock:
            if self._path is not None:
                append_groups(self._path, fresh, texts=self._texts)
            for group in fresh:
                self._groups[group.id] = group
                self._groups.move_to_end(group.id)
            while len(self._groups) > self._size:
                self._groups.popitem(last=False)

    def window(self, count: int | None = None) -> ExperienceBatch:
        """The latest ``count`` groups as a batch, or all there are. Raises ``ShapeError`` for a count below 1."""
        if count is not None:
            _check_size("count", count)
        groups = tuple(self)
        return ExperienceBatch(groups if count is None else groups[-count:])

    def clear(self) -> None:
        """Forget every group; the file stays."""
        with self._lock:
            self._groups.clear()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[RolloutGroup]:
        with self._lock:
            return iter(tuple(self._groups.values()))


def latest_groups(path: Path, count: int, *, texts: TextFolder | None = None) -> ExperienceBatch:
    """The latest ``count`` groups of a file, as a batch; a group that was appended again counts once, as it is now.

    Reads the file once, in the memory of ``count`` groups. Raises ``ShapeError`` for a count below 1, and what
    ``read_groups`` raises.
    """
    _check_size("count", count)
    window = ExperienceWindow(count)
    for group in read_groups(path, texts=texts):
        window.append(group)
    return window.window()


def batches(groups: Iterable[RolloutGroup], size: int) -> Iterator[ExperienceBatch]:
    """A stream of groups as batches of ``size``, the last one with what is left. Raises ``ShapeError``."""
    _check_size("size", size)
    stream = iter(groups)
    while chunk := tuple(islice(stream, size)):
        yield ExperienceBatch(chunk)


def _check_size(name: str, size: int) -> None:
    if not is_count(size) or size < 1:
        raise ShapeError.one(name, "a whole number of at least 1", repr(size))
