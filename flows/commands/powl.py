"""``tfgrpo powl``: check, score or compare process models that are read from standard input.

Exit codes: 0 when every model was read (and, for ``validate``, is valid); 2 otherwise. With ``--lines`` a refused line is
reported with its number and leaves an empty line, and the other lines are still processed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, product
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.powl_files import read_model, read_reference
from tfgrpo.rewarders.powl import (
    Footprint,
    Model,
    footprint,
    footprint_similarity,
    footprint_to_value,
    group_consensus,
    labels_of,
    self_consistency,
    structural_key,
    to_text,
    to_value,
    validate,
)
from tfgrpo.stores.errors import PowlError, SettingsError

_REFUSED = 2
_SIGNS: Mapping[tuple[str, ...], str] = {
    four: "".join(compress("→←∥#", map(int, four))) or "·" for four in product("01", repeat=4)
}
"""Text of a cell, by the digits of its four relations."""
_MAX_WARNINGS = 3
"""Warnings shown for one model."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer for one model: as an object, and as lines for a person."""

    value: Mapping[str, Any]
    text: str
    ok: bool = True


_Read: TypeAlias = tuple[int | None, Model | PowlError | None]
"""The number of a line, and its model, its refusal, or None for a blank line."""


def execute(options: argparse.Namespace, console: Console) -> int:
    """Process every model on standard input."""
    read: Iterable[_Read] = _models(options, console)
    answer_for: Callable[[Model], _Answer] = partial(_answer, options=options)
    if options.action == "score":
        read, answer_for = _scoring(options, read)
    code = 0
    for line, model in read:
        if isinstance(model, PowlError) or model is None:
            if line is not None and options.action != "footprint" and not console.as_json:
                console.text("")  # keeps the line numbers of output and input equal
            if model is not None:
                _print_refusal(console, line, model)
                code = _REFUSED
            continue
        answer = answer_for(model)
        text = f"{answer.text}\n" if line is not None and "\n" in answer.text else answer.text
        console.answer({**({} if line is None else {"line": line}), **answer.value}, text)
        code = code if answer.ok else _REFUSED
    return code


def _models(options: argparse.Namespace, console: Console) -> Iterator[_Read]:
    """Yield models and refusals, each with the number of its line."""
    if sys.stdin.isatty():
        console.say("Reading from the terminal; end with Ctrl-D.")
    if not options.lines:
        yield None, _model(None, sys.stdin.buffer.read(), options, console)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield number, _model(number, line, options, console) if line.strip() else None


def _model(line: int | None, raw: bytes, options: argparse.Namespace, console: Console) -> Model | PowlError:
    warnings: list[PowlError] = []
    try:
        model = read_model(raw, options.format, aliases=options.aliases, warn=warnings.append)
    except PowlError as error:
        return error
    for warning in warnings[:_MAX_WARNINGS]:
        console.say(f"warning: {_located(line, warning)}", style="yellow", wrap=False)
    return model


def _answer(model: Model, options: argparse.Namespace) -> _Answer:
    match options.action:
        case "parse":
            text, key = to_text(model), structural_key(model)
            value = {"model": to_value(model), "text": text, "activities": list(labels_of(model)), "key": key}
            return _Answer(value, text)
        case "validate":
            result = validate(model, allowed_labels=options.allow or None)
            findings = [finding._asdict() for finding in result.findings]
            text = ("; " if options.lines else "\n").join(map(str, result.findings)) or "valid"
            return _Answer({"valid": result.valid, "findings": findings}, text, result.valid)
    relations = footprint(model, options.mode or "block")
    return _Answer(footprint_to_value(relations), table_of(relations))


def _scoring(options: argparse.Namespace, read: Iterable[_Read]) -> tuple[Iterable[_Read], Callable[[Model], _Answer]]:
    """Return what is read, and what scores each of its models, in order.

    A score is the similarity to the reference, which is read once, the agreement with all others, or the self-consistency.
    Raise ``SettingsError`` for options that do not fit together.
    """
    if options.consensus and (options.reference is not None or not options.lines):
        raise SettingsError.one("--consensus", "it so", "it with --lines and without --reference")
    how: dict[str, Any] = {"aggregate": options.aggregate or "pooled", "mode": options.mode or "block"}
    if options.reference is not None:
        reference = read_reference(Path(options.reference), how["mode"])
        return read, lambda model: _scored("footprint_similarity", footprint_similarity(model, reference, **how), **how)
    if options.consensus:
        read = list(read)
        models = [model for _, model in read if model is not None and not isinstance(model, PowlError)]
        if len(models) < 2:
            raise SettingsError.one("--consensus", f"{len(models)} model(s) that can be read", "at least two")
        scores = iter(group_consensus(models, **how))
        return read, lambda _: _scored("group_consensus", next(scores), **how)
    for name in ("mode", "aggregate"):
        if getattr(options, name) is not None:
            raise SettingsError.one(f"--{name}", "it alone", "it with --reference or --consensus")
    return read, lambda model: _scored("self_consistency", self_consistency(model))


def _scored(measure: str, score: float, **how: str) -> _Answer:
    return _Answer({"score": score, "measure": measure, **how}, f"{score:.4f}")


def table_of(relations: Footprint) -> str:
    """Return the matrix of the textbooks; a pair in several relations shows all of them."""
    names = [" ".join(label.split()) for label in relations.activities]
    rows = [["", *names]]
    rows += ([name, *cells] for name, cells in zip(names, _cells(relations.rows, len(names)), strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _cells(rows: Sequence[Sequence[int]], count: int) -> Iterator[list[str]]:
    """Yield the signs of each row, read from its bit masks: looking pairs up takes half a minute for 2,000 labels."""
    follows, together, never = (["".join(reversed(f"{mask:0{count}b}")) for mask in relation] for relation in rows)
    precedes = ("".join(column) for column in zip(*follows, strict=True))
    for digits in zip(follows, precedes, together, never, strict=True):
        yield [_SIGNS[four] for four in zip(*digits, strict=True)]


def _located(line: int | None, error: PowlError) -> str:
    return f"standard input: {error}" if line is None else f"line {line}: {str(error).removeprefix('line 1, ')}"


def _print_refusal(console: Console, line: int | None, error: PowlError) -> None:
    """Print one message for a person; with ``--json`` also one object with the location."""
    console.say(f"tfgrpo: {_located(line, error)}", style="bold red", wrap=False)
    if console.as_json:
        location = {"row": error.line, "column": error.column, "pointer": error.pointer}
        known = {name: value for name, value in location.items() if value is not None}
        number = {} if line is None else {"line": line}
        console.result({**number, "status": "refused", "message": error.reason, **known})
