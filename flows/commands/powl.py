"""``tfgrpo powl``: check, score, compare or draw process models that are read from standard input.

Exit codes: 0 when every model was read (and, for ``validate``, is valid); 2 otherwise. With ``--lines`` a refused line is
reported with its number and leaves an empty line, and the other lines are still processed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    to_mermaid,
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
_MULTILINE = ("footprint", "draw")
"""Actions whose answers have several lines; with ``--lines`` an empty one ends each."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer for one model: as an object, and as lines for a person."""

    value: Mapping[str, Any]
    text: str
    ok: bool = True


_Read: TypeAlias = tuple[int | None, Model | PowlError | None]
"""The number of a line, and its model, its refusal, or None for a blank line."""
_Answered: TypeAlias = tuple[int | None, _Answer | PowlError | None]


def execute(options: argparse.Namespace, console: Console) -> int:
    """Process every model on standard input."""
    answers = _consensus(options, console) if _compares_lines(options) else _one_by_one(options, console)
    code = 0
    for line, answer in answers:
        if isinstance(answer, _Answer):
            _print(console, line, answer)
        elif line is not None and options.action not in _MULTILINE and not console.as_json:
            console.text("")  # keeps the line numbers of output and input equal
        if isinstance(answer, PowlError):
            _print_refusal(console, line, answer)
        if isinstance(answer, PowlError) or (answer is not None and not answer.ok):
            code = _REFUSED
    return code


def _compares_lines(options: argparse.Namespace) -> bool:
    """Return whether the models are compared with each other. Raise ``SettingsError`` for options that do not fit."""
    if options.action != "score":
        return False
    if options.consensus and (options.reference is not None or not options.lines):
        raise SettingsError.one("--consensus", "it so", "it with --lines and without --reference")
    if options.reference is None and not options.consensus:
        for name in ("mode", "aggregate"):
            if getattr(options, name) is not None:
                raise SettingsError.one(f"--{name}", "it alone", "it with --reference or --consensus")
    return bool(options.consensus)


def _models(options: argparse.Namespace, console: Console) -> Iterator[_Read]:
    """Yield models and refusals, each with the number of its line."""
    if sys.stdin.isatty():
        sys.stderr.write("Reading from the terminal; end with Ctrl-D.\n")
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


def _parse(model: Model) -> _Answer:
    text = to_text(model)
    key = structural_key(model)
    return _Answer({"model": to_value(model), "text": text, "activities": list(labels_of(model)), "key": key}, text)


def _validate(model: Model, options: argparse.Namespace) -> _Answer:
    result = validate(model, allowed_labels=options.allow or None)
    findings = [{**finding._asdict(), "severity": finding.severity} for finding in result.findings]
    texts = [str(finding) for finding in result.findings] or ["valid"]
    text = ("; " if options.lines else "\n").join(texts)
    return _Answer({"valid": result.valid, "findings": findings}, text, result.valid)


def _footprint(model: Model, options: argparse.Namespace) -> _Answer:
    relations = footprint(model, options.mode or "block")
    return _Answer(footprint_to_value(relations), table_of(relations))


def _scorer(options: argparse.Namespace) -> Callable[[Model], _Answer]:
    """Return what scores a model: its similarity to the reference, which is read once, or its self-consistency."""
    if options.reference is None:
        return lambda model: _scored("self_consistency", self_consistency(model))
    how = _comparison(options)
    reference = read_reference(Path(options.reference), how["mode"])
    return lambda model: _scored("footprint_similarity", footprint_similarity(model, reference, **how), **how)


def _draw(model: Model) -> _Answer:
    chart = to_mermaid(model)
    return _Answer({"mermaid": chart}, chart)


def _work_of(options: argparse.Namespace) -> Callable[[Model], _Answer]:
    match options.action:
        case "validate":
            return partial(_validate, options=options)
        case "footprint":
            return partial(_footprint, options=options)
        case "score":
            return _scorer(options)
        case "draw":
            return _draw
        case _:
            return _parse


def _one_by_one(options: argparse.Namespace, console: Console) -> Iterator[_Answered]:
    work = _work_of(options)
    for line, model in _models(options, console):
        yield line, model if model is None or isinstance(model, PowlError) else work(model)


def _consensus(options: argparse.Namespace, console: Console) -> Iterator[_Answered]:
    """Score each model by its agreement with the others."""
    results = list(_models(options, console))
    models = [model for _, model in results if model is not None and not isinstance(model, PowlError)]
    if len(models) < 2:
        raise SettingsError.one("--consensus", f"{len(models)} model(s) that can be read", "at least two")
    how = _comparison(options)
    scores = iter(group_consensus(models, **how))
    for line, model in results:
        if model is None or isinstance(model, PowlError):
            yield line, model
        else:
            yield line, _scored("group_consensus", next(scores), **how)


def _comparison(options: argparse.Namespace) -> dict[str, Any]:
    return {"aggregate": options.aggregate or "pooled", "mode": options.mode or "block"}


def _scored(measure: str, score: float, **how: str) -> _Answer:
    return _Answer({"score": score, "measure": measure, **how}, f"{score:.4f}")


def table_of(relations: Footprint) -> str:
    """Return the matrix of the textbooks; a pair in several relations shows all of them."""
    names = [" ".join(label.split()) for label in relations.activities]
    cells = list(_cells(relations.rows, len(names)))
    widths = [max(len(name), *(len(row[column]) for row in cells)) for column, name in enumerate(names)]
    first = max(map(len, names), default=0)
    lines = [" " * first + "".join(f"  {name:<{width}}" for name, width in zip(names, widths, strict=True))]
    for name, row in zip(names, cells, strict=True):
        lines.append(f"{name:<{first}}" + "".join(f"  {cell:<{w}}" for cell, w in zip(row, widths, strict=True)))
    return "\n".join(line.rstrip() for line in lines)


def _cells(rows: Sequence[Sequence[int]], count: int) -> Iterator[list[str]]:
    """Yield the signs of each row, read from its bit masks: looking pairs up takes half a minute for 2,000 labels."""
    follows, together, never = (["".join(reversed(f"{mask:0{count}b}")) for mask in relation] for relation in rows)
    precedes = ("".join(column) for column in zip(*follows, strict=True))
    for digits in zip(follows, precedes, together, never, strict=True):
        yield [_SIGNS[four] for four in zip(*digits, strict=True)]


def _print(console: Console, line: int | None, answer: _Answer) -> None:
    if console.as_json:
        console.result({**({} if line is None else {"line": line}), **answer.value})
    else:
        console.text(f"{answer.text}\n" if line is not None and "\n" in answer.text else answer.text)


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
