"""Read YAML files, with the line of a syntax error in its problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from tfgrpo.stores.errors import PipelineError

_T = TypeVar("_T")


def read_yaml(path: Path, load: Callable[[str], _T], *, label: str, line: str, accepted: str) -> tuple[bytes, _T]:
    """Return the bytes of a UTF-8 file and its content. Raise ``PipelineError`` for an unreadable file or bad YAML.

    ``label`` names the file in messages; ``line`` stands between it and a line number.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise PipelineError.one(label, error.strerror or type(error).__name__, "a file that can be read") from None
    except UnicodeDecodeError as error:
        raise PipelineError.one(label, f"no UTF-8 at byte {error.start}", "a file in UTF-8") from None
    try:
        return raw, load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{label}{line}{mark.line + 1}" if mark is not None else label
        raise PipelineError.one(where, error.problem or "no YAML", error.note or accepted) from None
    except yaml.YAMLError as error:
        raise PipelineError.one(label, str(error).split("\n", maxsplit=1)[0], accepted) from None
    except RecursionError:
        raise PipelineError.one(label, "nesting without end", f"{accepted}, nested a few levels deep") from None
    except ValueError as error:
        raise PipelineError.one(label, str(error), "numbers of a readable length") from None
