"""How is a bad value told to a person? Errors of every kind become a ``Problem``: source, value, what is accepted.

It never repeats a value that may be secret, and never the contents of a list or mapping.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tfgrpo.pipelines.settings.base import meant_address
from tfgrpo.pipelines.settings.fields import Shape, accepted_phrase, field_shape, is_section, leaves_by_key, shape_of
from tfgrpo.stores.errors import ConfigError, Problem

_MAX_SHOWN = 80
_PLAIN_ADDRESS = re.compile(r"[a-z]+://[\w.-]*(?::\d+)?(?:/[\w./-]*)?")
_MAX_PROBLEMS = 50
_MAX_NAMES = 30
_HIDDEN = "a value that is not shown"
_NEVER_SHOWN = frozenset({"model.api_key_env", "model.api_key_secret"})
_ADDRESSES = frozenset({"model.base_url", "selection.base_url"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and the leaf it is about."""

    key: str
    problem: Problem


def shown(value: object, key: str = "") -> str:
    """``value`` as a message may repeat it: a short scalar, or what kind of thing it is."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if key in _NEVER_SHOWN or (key in _ADDRESSES and not _is_plain_address(value)):
        return _HIDDEN
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The accepted names as a phrase; only the likeliest one when ``name`` looks like a slip of it."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"{close[0]} (did you mean that?), or another of {len(names)} known ones" if len(names) > 1 else close[0]
    return (
        f"one of {', '.join(names)}"
        if len(names) <= _MAX_NAMES
        else f"one of the {len(names)} that `tfgrpo config` lists"
    )


def unknown(source: str, what: str, name: str, known: Iterable[str]) -> Problem:
    """A name nobody knows. Its value is not repeated: it may be a secret that went to the wrong place."""
    return Problem(source, f"an unknown {what}", did_you_mean(name, known))


def pydantic_findings(error: ValidationError, settings: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Each distinct error as (leaf key, path below the leaf, given, accepted)."""
    seen = set()
    for detail in error.errors(include_url=False):
        if _is_echo(detail):
            continue
        found = _describe(detail, settings)
        if found[:2] not in seen:
            seen.add(found[:2])
            yield found


def capped(problems: Sequence[Problem], source: str) -> tuple[Problem, ...]:
    """At most fifty problems, and a last one that says how many more there are."""
    if len(problems) <= _MAX_PROBLEMS:
        return tuple(problems)
    more = Problem(source, f"{len(problems) - _MAX_PROBLEMS} more problems", f"{len(problems)} problems fewer")
    return (*problems[:_MAX_PROBLEMS], more)


def raise_together(errors: Sequence[ConfigError]) -> None:
    """Raise all problems as one error of the first one's class; do nothing when there is none."""
    if errors:
        problems = dict.fromkeys(problem for error in errors for problem in error.problems)
        raise type(errors[0])(tuple(problems)) from None


def _is_echo(detail: ErrorDetails) -> bool:
    """Whether a list is called too short only because of entries that are refused already."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _describe(detail: ErrorDetails, settings: type[BaseModel]) -> tuple[str, str, str, str]:
    key, rest, shape, siblings = _locate(detail["loc"], settings)
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return key, rest, "an unknown key", did_you_mean(str(detail["loc"][-1]), siblings)
    if kind == "missing":
        return key, rest, "nothing", accepted_phrase(shape)
    if kind == "value_error":
        return key, rest, shown(value, key), str(detail["ctx"]["error"])
    if kind == "string_too_short":
        return key, rest, shown(value, key), "text that is not empty"
    return key, rest, shown(value, key), accepted_phrase(shape)


def _locate(loc: Sequence[int | str], settings: type[BaseModel]) -> tuple[str, str, Shape, Sequence[str]]:
    """Leaf key, the path below it, the shape expected there, and the names known where an unknown one stands."""
    shape, siblings = Shape(settings, ()), tuple[str, ...]()
    path: list[str] = []
    for part in loc:
        below = _below(shape, part)
        siblings = tuple(shape.annotation.model_fields) if is_section(shape.annotation) else ()
        if below is None and not siblings:
            break  # pydantic names the members of a union here, which is no place in the settings
        path.append(str(part))
        if below is None:
            break
        shape = below
    key = next((".".join(path[:end]) for end in range(len(path), 0, -1) if ".".join(path[:end]) in leaves_by_key()), "")
    return key, ".".join(path)[len(key) :].lstrip("."), shape, siblings


def _below(shape: Shape, part: int | str) -> Shape | None:
    annotation: Any = shape.annotation
    if is_section(annotation):
        field = annotation.model_fields.get(str(part))
        return field_shape(field) if field is not None else None
    if get_origin(annotation) is dict:
        return shape_of(get_args(annotation)[1])
    if get_origin(annotation) is tuple and isinstance(part, int):
        return shape_of(get_args(annotation)[0])
    return None


def _is_plain_address(value: object) -> bool:
    return isinstance(value, str) and (_PLAIN_ADDRESS.fullmatch(value) is not None or meant_address(value) is not None)
