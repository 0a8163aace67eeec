"""Load the Python object that ``module:attr``, ``path/to/file.py:attr`` or a name of ``handed_over`` means; call nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tfgrpo.rewarders.calling import described, is_ctrl_c
from tfgrpo.rewarders.scorer import Grader, GradeResult, GraderInput
from tfgrpo.stores.errors import PipelineError, Problem

KOLIBRIFY: Final = "kolibrify"
_NAMES: Final = (KOLIBRIFY, f"{KOLIBRIFY}.rl_dataserver", f"{KOLIBRIFY}.rl_dataserver.graders")
_OUR_NAMES: Final = "from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput"
_FILES: Final = "tfgrpo_file_"
_HANDED_OVER: Final[list[dict[str, object]]] = []
_LOCK: Final = threading.Lock()
# Held while a file or module runs, which may load another: a second thread must not find half a module
_RUNNING: Final = threading.RLock()


def load_object(name: str, where: str, *, folder: Path | None = None, entry: str = "") -> object:
    """Return the object that a name means; dots in ``attr`` reach into it.

    A file is relative to ``folder``, the working directory by default, and may import its siblings. It is run once until it
    is changed, and once more for each ``entry``. Raises ``PipelineError``; ``where`` is the place of the name in messages.
    """
    if is_handed_over(name):
        return ChainMap(*_HANDED_OVER)[name]
    if _is_of_a_script(name):
        given = f"{name!r}, a function of a script or notebook"
        accepted = "that function, handed over again by the script: tfgrpo.learn(resume=…, agent=…)"
        raise PipelineError.one(where, given, accepted)
    module_name, _, attribute = name.rpartition(":")
    with _RUNNING, _kolibrify_names():
        if _is_file(module_name):
            module = _run(module_name, folder or Path.cwd(), entry, where)
        else:
            here = str(Path.cwd())
            if here not in sys.path and "" not in sys.path:
                sys.path.insert(0, here)  # as ``python -m`` does; an installed script does not
            try:
                module = importlib.import_module(module_name)
            except (Exception, SystemExit) as error:
                raise PipelineError([_problem(error, where, "module:attr that can be imported")]) from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        names = sorted(each for each in vars(module) if not each.startswith("_"))
        accepted = ", ".join(names[:20]) or "an attribute of it"
        raise PipelineError.one(where, f"{attribute!r}, which {module_name} does not have", accepted) from None
    except Exception as error:  # a module may look its names up itself
        raise PipelineError([_problem(error, where, "module:attr that can be imported")]) from error


def load_callable(name: str) -> Callable[..., Any]:
    """Return the callable that a name means. Raise ``ValueError`` with the reason why there is none."""
    if not is_name(name):
        raise ValueError("not of the form module:attr or path/to/file.py:attr")
    try:
        loaded = load_object(name, "")
    except PipelineError as error:
        raise ValueError(f"importing it failed: {'; '.join(each.given for each in error.problems)}") from error
    if not callable(loaded):
        raise ValueError(f"it is of type {type(loaded).__name__}, which cannot be called")
    return loaded


def is_name(text: str) -> bool:
    """Return whether a text has the form of a name that ``load_object`` loads."""
    module_name, _, attribute = text.rpartition(":")
    if is_handed_over(text) or _is_of_a_script(text):
        return True
    parts = attribute.split(".") if _is_file(module_name) else [*module_name.split("."), *attribute.split(".")]
    return all(part.isidentifier() for part in parts)


@contextmanager
def handed_over() -> Iterator[Callable[[object], str]]:
    """Yield a function that names an object, so that ``load_object`` finds it until the block ends; no two share a name."""
    own: dict[str, object] = {}
    with _LOCK:
        _HANDED_OVER.append(own)

    def name_of(value: object) -> str:
        called = getattr(value, "__qualname__", None)
        owner = type(value) if called is None else value
        name = f"{owner.__module__}:{called or f'{type(value).__qualname__}()'}"
        if not _is_of_a_script(name):
            importable: object = sys.modules.get(owner.__module__)
            for part in name.rpartition(":")[2].split("."):
                importable = getattr(importable, part, None)
            if importable is value:
                return name
        with _LOCK:
            in_use = ChainMap(*_HANDED_OVER)
            names = chain([name], (f"{name}#{number}" for number in count(2)))
            free = next(each for each in names if in_use.get(each, value) is value)
            own[free] = value
        return free

    try:
        yield name_of
    finally:
        with _LOCK:
            _HANDED_OVER[:] = [each for each in _HANDED_OVER if each is not own]


def is_handed_over(name: str) -> bool:
    """Return whether a name is valid in this process only."""
    return name in ChainMap(*_HANDED_OVER)


def _is_of_a_script(name: str) -> bool:
    module_name, _, attribute = name.rpartition(":")
    return module_name == "__main__" or (bool(module_name) and any(sign in attribute for sign in "<(#"))


def _is_file(module_name: str) -> bool:
    return module_name.endswith(".py") or "/" in module_name or os.sep in module_name


def _problem(error: BaseException, where: str, accepted: str) -> Problem:
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == KOLIBRIFY:
        return Problem(where, f"{described(error)}; it is not installed", f"{_OUR_NAMES}, or its installation")
    return Problem(where, described(error), accepted)


def _run(file_name: str, folder: Path, entry: str, where: str) -> ModuleType:
    """Run a file as a module that dataclasses and pickle can find, with its siblings in reach."""
    if not (folder / file_name).is_file():  # before ``resolve``, which raises for links in a circle
        accepted = f"file.py:attr, with the file relative to {folder}"
        raise PipelineError.one(where, f"{file_name!r}, which is no file", accepted)
    file = (folder / file_name).resolve()
    version = f"{file}\0{'' if entry else file.stat().st_mtime_ns}"
    digest = hashlib.sha256(version.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    module_name = f"{_FILES}{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', entry or file.stem)}"
    if not entry and module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise PipelineError.one(where, repr(file.name), "a file that Python can import, such as file.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if str(file.parent) not in sys.path:
        # Last, so that a sibling never takes the place of an installed module; for good, because functions import late.
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(module_name, None)  # also after Ctrl-C: the next load must not find half a module
        if is_ctrl_c(error):
            raise
        raise PipelineError([_problem(error, where, f"a file that can be run: {file.name}")]) from error
    if foreign := _foreign_sibling(file):
        sys.modules.pop(module_name, None)
        accepted = "modules next to it whose names differ from those next to other loaded files"
        raise PipelineError.one(where, f"an import of {foreign}", accepted)
    return module


def _foreign_sibling(file: Path) -> str | None:
    # Of its folder and of that of another loaded file, Python would have loaded the module of the first alone.
    loaded = [module.__file__ for name, module in [*sys.modules.items()] if name.startswith(_FILES)]
    others = {Path(origin).parent for origin in loaded if origin} - {file.parent}
    text = file.read_text("utf-8", errors="replace") if others else ""
    for name in sorted(each.stem for each in file.parent.iterdir()):
        origin = getattr(sys.modules.get(name), "__file__", None)
        # Not "from .name import", nor "from elsewhere import name".
        imports = re.search(rf"^[ \t]*(?:from[ ]+|import[ ]+(?:[^#\n]*,[ ]*)?){re.escape(name)}\b", text, re.MULTILINE)
        if origin and imports and others & {*Path(origin).resolve().parents[:2]}:
            return f"{name}, found in {origin}"
    return None


@contextmanager
def _kolibrify_names() -> Iterator[None]:
    # Grader files may be written for that package; its place is taken only where it is missing.
    if KOLIBRIFY in sys.modules or importlib.util.find_spec(KOLIBRIFY) is not None:
        yield
        return
    package, server, graders = (importlib.util.module_from_spec(ModuleSpec(name, None, is_package=True)) for name in _NAMES)
    vars(package)["rl_dataserver"], vars(server)["graders"] = server, graders
    vars(graders).update(Grader=Grader, GradeResult=GradeResult, GraderInput=GraderInput)
    sys.modules.update(zip(_NAMES, (package, server, graders), strict=True))
    try:
        yield
    finally:
        for name in _NAMES:
            sys.modules.pop(name, None)
