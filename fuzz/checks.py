"""Properties that hold for any input to the readers of process models; a violation raises."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from tfgrpo.rewarders.powl import (
    Model,
    PowlError,
    footprint,
    footprint_similarity,
    parse_json,
    parse_text,
    structural_key,
    to_json,
    to_text,
    validate,
)
from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES, OPERATORS

LIMIT_S: Final = 5.0
_CALL: Final = re.compile(rf"(?:{'|'.join(OPERATORS)}|ACTIVITY|SILENT)\s*[(\[]")


class Finding(AssertionError):
    """An input for which something does not hold."""


def check(data: bytes) -> None:
    """Read the input in every way. The first byte says nothing; all ways are tried on all of it."""
    text = data.decode("utf-8", errors="replace")
    began = time.perf_counter()
    for read in (parse_text, parse_json, _with_aliases, _fenced):
        model = _read(read, text)
        if model is not None:
            _hold(model)
            if read is parse_text and not _CALL.search(text):
                raise Finding(f"prose was read as {to_text(model)}")
    if time.perf_counter() - began > LIMIT_S:
        raise Finding(f"took more than {LIMIT_S} s for {len(data)} bytes")


def _with_aliases(text: str) -> Model:
    return parse_text(text, aliases=True)


def _fenced(text: str) -> Model:
    return parse_json(text, fenced=True)


def _read(read: Callable[[str], Model], text: str) -> Model | None:
    """The model, or None when it is refused as it should be; any other exception is a crash and goes up."""
    try:
        return read(text)
    except PowlError as error:
        if not error.reason or not str(error):
            raise Finding("an error that says nothing") from error
        return None


def _hold(model: Model) -> None:
    if model.depth > MAX_DEPTH or model.size > MAX_NODES:
        raise Finding("a limit was passed")
    if parse_text(to_text(model)) != model:
        raise Finding(f"text does not read back: {to_text(model)}")
    if parse_json(to_json(model)) != model:
        raise Finding(f"JSON does not read back: {to_json(model)}")
    if structural_key(parse_text(to_text(model))) != structural_key(model):
        raise Finding("the key changed")
    validate(model)
    for mode in ("block", "direct", "order"):
        found = footprint(model, mode)
        if footprint_similarity(found, found) != 1.0:
            raise Finding(f"not like itself in mode {mode}")
