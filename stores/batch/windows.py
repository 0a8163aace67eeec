"""A sliding window over the latest groups, optionally with every group appended to a file.

The window drops the oldest group for each new one beyond its size; the file (``tfgrpo.stores.batch.lines``) keeps all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfgrpo.stores.batch.batch import ExperienceBatch, RolloutGroup
from tfgrpo.stores.batch.checks import check_groups, check_sizes
from tfgrpo.stores.batch.lines import TextStore, lines_of_group, read_groups
from tfgrpo.stores.batch.shapes import same_content
from tfgrpo.stores.errors import ShapeError, ShapeProblem
from tfgrpo.stores.files.atomic import append_lines


class ExperienceWindow:
    """The latest ``size`` groups, oldest first. Safe for threads.

    ``path``: every group is appended to this file before it enters the window. ``texts``: store of its long texts.
    Raises ``ShapeError`` for a size below 1.
    """

    def __init__(self, size: int, *, path: Path | None = None, texts: TextStore | None = None) -> None:
        check_sizes(size=size)
        self._path = path
        self._texts = texts
        self._lock = threading.Lock()
        self._size = size
        self._groups: OrderedDict[str, RolloutGroup] = OrderedDict()

    def append(self, group: RolloutGroup) -> None:
        """Add a group. Raises what ``extend`` raises."""
        self.extend([group])

    def extend(self, groups: Iterable[RolloutGroup]) -> None:
        """Add groups in order, all or none; skip those that are in the window.

        Raises ``ShapeError`` for groups whose values do not fit together, and for one with the id of a different group
        of the window; ``RecordRejected`` for values outside JSON, ``StoreError`` when the disk refuses.
        """
        offered = list(groups)
        check_groups(offered)
        with self._lock:
            fresh = self._fresh(offered)
            if self._path is not None:
                append_lines(self._path, [line for group in fresh for line in lines_of_group(group, self._texts)])
            self._groups.update((group.id, group) for group in fresh)
            while len(self._groups) > self._size:
                self._groups.popitem(last=False)

    def window(self, count: int | None = None) -> ExperienceBatch:
        """Return the latest ``count`` groups, or all, as a batch. Raises ``ShapeError`` for a count below 1."""
        check_sizes(count=count)
        groups = tuple(self)
        return ExperienceBatch(groups if count is None else groups[-count:])

    def _fresh(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        known = [(number, group) for number, group in enumerate(groups) if group.id in self._groups]
        problems = [
            ShapeProblem("group id", "one that no other group of the window has", repr(group.id), f"index {number}")
            for number, group in known
            if not same_content(self._groups[group.id], group)
        ]
        if problems:
            raise ShapeError(problems)
        return [group for group in groups if group.id not in self._groups]

    def clear(self) -> None:
        """Remove every group from the window; the file stays."""
        with self._lock:
            self._groups.clear()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[RolloutGroup]:
        with self._lock:
            return iter(tuple(self._groups.values()))


def latest_groups(path: Path, count: int, *, texts: TextStore | None = None) -> ExperienceBatch:
    """Return the latest ``count`` groups of a file as a batch; of a group that was appended again the latest counts.

    Reads the file once, in the memory of ``count`` groups. Raises ``ShapeError`` for a count below 1, and what
    ``read_groups`` raises.
    """
    check_sizes(count=count)
    latest: OrderedDict[str, RolloutGroup] = OrderedDict()
    for group in read_groups(path, texts=texts):
        latest[group.id] = group
        latest.move_to_end(group.id)
        if len(latest) > count:
            latest.popitem(last=False)
    return ExperienceBatch(tuple(latest.values()))
