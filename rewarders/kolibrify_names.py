"""Stand in for ``kolibrify.rl_dataserver.graders`` while a grader file written for that package is loaded without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PACKAGE: Final = "kolibrify"
_GRADERS: Final = f"{PACKAGE}.rl_dataserver.graders"
_PARENTS: Final = frozenset({PACKAGE, f"{PACKAGE}.rl_dataserver"})


@dataclass
class GradeResult:
    """The reward of one item; mutable, as it is there."""

    sample_id: str
    reward: float
    completion_index: int | None = None


class _StandIn(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname == _GRADERS or fullname in _PARENTS:
            return ModuleSpec(fullname, self, is_package=fullname in _PARENTS)
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _GRADERS:
            from tfgrpo.rewarders.graders.base import Grader, GraderInput  # noqa: PLC0415 - few files ask for them

            module.__dict__.update(Grader=Grader, GradeResult=GradeResult, GraderInput=GraderInput)


@contextmanager
def kolibrify_names() -> Iterator[None]:
    """For the length of a block, ``Grader``, ``GradeResult`` and ``GraderInput`` can be imported from there."""
    finder = _StandIn()
    sys.meta_path.append(finder)  # last: the package itself is found before, where it is installed
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in (_GRADERS, *_PARENTS):
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None) is finder:
                del sys.modules[name]
