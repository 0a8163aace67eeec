"""Which grader of the user's own does an entry name? Imports or runs its file, builds it with its options; grades nothing.

Anything with a ``grade_batch`` is a grader: objects, instances of classes, what a factory makes, and functions of one item.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.graders.base import Grader, grader
from tfgrpo.rewarders.graders.table import BUILT_IN, build_grader
from tfgrpo.rewarders.importing import import_problem, imported
from tfgrpo.rewarders.kolibrify_names import kolibrify_names
from tfgrpo.stores.errors import PipelineError, Problem

_SOURCES: Final = ("import", "path", "builtin")
_KEYS: Final = (*_SOURCES, "init_kwargs")
_MODULES: Final = "tfgrpo_grader_"
"""What the names begin with under which files of users are found in ``sys.modules``."""
ACCEPTED: Final = (
    "an object with grade_batch(inputs), a class of such objects, a factory of one, or a function of one GraderInput"
)


def load_python_grader(spec: Mapping[str, Any], *, name: str, folder: Path, source: str) -> Grader:
    """The grader that an entry of ``python_graders`` describes.

    ``spec`` holds exactly one of ``import: module:attr``, ``path: file.py:attr`` and ``builtin: alias``, and possibly
    ``init_kwargs``. A file is relative to ``folder``; it may import its siblings, and is run once for each entry that names
    it. ``source`` says in messages where the entry stands. Raises ``PipelineError`` with everything that is wrong.
    """
    problems = [Problem(f"{source}.{key}", "an unknown key", ", ".join(_KEYS)) for key in spec if key not in _KEYS]
    options = spec.get("init_kwargs")
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(key, str) for key in options)):
        problems.append(Problem(f"{source}.init_kwargs", _kind(options), "options by name"))
        options = {}
    chosen = [key for key in _SOURCES if spec.get(key)]
    if len(chosen) != 1:
        given = " and ".join(chosen) or "none of them"
        raise PipelineError([*problems, Problem(source, given, f"exactly one of {', '.join(_SOURCES)}")])
    key, text = chosen[0], spec[chosen[0]]
    try:
        found = _found(key, text, dict(options or {}), name=name, folder=folder, source=source)
    except PipelineError as error:
        raise PipelineError([*problems, *error.problems]) from error
    if problems:
        raise PipelineError(problems)
    return found


def as_grader(found: object, options: Mapping[str, Any], where: str, *, options_key: str = "init_kwargs") -> Grader:
    """A grader out of what a user's name stands for. Raises ``PipelineError`` when it is, and makes, none.

    A class or factory is called with the options. A function that needs one argument more than the options fill is itself
    the grader of one item, with the options filled in.
    """
    place = f"{where}: {options_key}" if options_key else where
    if isinstance(found, type):
        return _usable(_built(found, options, place), where)
    if is_grader(found):
        if options:
            raise PipelineError([Problem(place, ", ".join(sorted(options)), "no options: it is an object already")])
        return cast("Grader", found)
    if not callable(found):
        raise PipelineError([Problem(where, _kind(found), ACCEPTED)])
    if not _takes(found, options) and _takes(found, options, one_more=True):
        return grader(partial(found, **options) if options else found)
    return _usable(_built(found, options, place), where)


def is_grader(found: object) -> bool:
    """Whether an object, not a class, grades batches."""
    return not isinstance(found, type) and callable(getattr(found, "grade_batch", None))


def _found(key: str, text: object, options: dict[str, Any], *, name: str, folder: Path, source: str) -> Grader:
    where = f"{source}.{key}"
    if key == "builtin":
        if not isinstance(text, str) or text not in BUILT_IN:
            raise PipelineError([Problem(where, repr(text), ", ".join(sorted(BUILT_IN)))])
        return build_grader(text, options, source=source)
    shape = "module:attr" if key == "import" else "file.py:attr"
    if not isinstance(text, str) or not all(text.rpartition(":")):
        raise PipelineError([Problem(where, repr(text), shape)])
    found = imported(text, where) if key == "import" else _from_file(text, name, folder, where)
    return as_grader(found, options, f"{where}: {text}")


def _from_file(text: str, name: str, folder: Path, where: str) -> object:
    file_name, _, attribute = text.rpartition(":")
    file = (folder / file_name).resolve()
    if not file.is_file():
        accepted = f"file.py:attr, with the file relative to {folder}"
        raise PipelineError([Problem(where, f"{file_name!r}, which is no file", accepted)])
    module = _run(file, name, where)
    missing = object()
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, missing)
        if found is missing:
            names = sorted(each for each in vars(module) if not each.startswith("_"))
            raise PipelineError([Problem(where, f"{attribute!r}, which {file_name} does not have", _some(names))])
    return found


def _run(file: Path, name: str, where: str) -> ModuleType:
    """Run a file as a module that can be found, as dataclasses and pickle want it, and that finds its siblings."""
    digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    module_name = f"{_MODULES}{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise PipelineError([Problem(where, repr(file.name), "a file that Python can import, such as file.py")])
    module = importlib.util.module_from_spec(spec)
    others = _other_folders(file.parent)
    sys.modules[module_name] = module
    if str(file.parent) not in sys.path:
        # Last, so that a sibling never takes the place of an installed module; for good, because graders import late.
        sys.path.append(str(file.parent))
    try:
        with kolibrify_names():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(module_name, None)
        raise PipelineError([import_problem(error, where, f"a file that can be run: {file.name}")]) from error
    strangers = _strangers(file, others)
    if strangers:
        sys.modules.pop(module_name, None)
        accepted = "modules beside it with names that no other grader's have"
        raise PipelineError(
            [Problem(where, f"an import of {each}, found in {place}", accepted) for each, place in strangers]
        )
    return module


def _other_folders(folder: Path) -> frozenset[Path]:
    """Folders of files that were loaded by other entries."""
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(_MODULES)]
    return frozenset(Path(file).parent for file in files if file) - {folder}


def _strangers(file: Path, others: frozenset[Path]) -> list[tuple[str, Path]]:
    """Imports that should be siblings of the file, and came from the folder of another entry, which was searched before."""
    found = []
    for name in sorted({*_sibling_names(file.parent)} & {*_imported_names(file)}):
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin and others & {*Path(origin).resolve().parents[:2]}:
            found.append((name, Path(origin)))
    return found


def _sibling_names(folder: Path) -> Iterable[str]:
    return (each.stem for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file())


def _imported_names(file: Path) -> Iterable[str]:
    """Top-level names that the file imports, wherever in it."""
    if file.suffix != ".py":
        return
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _built(build: Callable[..., Any], options: Mapping[str, Any], place: str) -> object:
    if not _takes(build, options):
        given = ", ".join(sorted(options)) or "none"
        raise PipelineError([Problem(place, given, f"the options of {_name(build)}{_signature(build)}")])
    try:
        return build(**options)
    except PipelineError as error:
        problems = [Problem(f"{place}.{each.source}", each.given, each.accepted) for each in error.problems]
        raise PipelineError(problems) from error
    except (Exception, SystemExit) as error:
        raise PipelineError([Problem(place, described(error), f"values that {_name(build)} takes")]) from error


def _usable(built: object, where: str) -> Grader:
    if inspect.iscoroutine(built):
        built.close()
    if not is_grader(built):
        raise PipelineError([Problem(where, f"something that makes {_kind(built)}", ACCEPTED)])
    return cast("Grader", built)


def _takes(build: Callable[..., Any], options: Mapping[str, Any], *, one_more: bool = False) -> bool:
    """Whether a call with the options, and possibly one argument before them, fits; unknown signatures fit."""
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError):
        return not one_more
    try:
        signature.bind(*[None] * one_more, **options)
    except TypeError:
        return False
    return True


def _signature(build: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(build))
    except (TypeError, ValueError):
        return ""


def _name(build: object) -> str:
    return str(getattr(build, "__name__", type(build).__name__))


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) or "an attribute of it"
