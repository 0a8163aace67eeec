"""``tfgrpo powl``: read process models on standard input, and check, compare or draw them. Scores models, runs nothing.

Exit codes: 0 when every model was read (and, for ``validate``, is valid); 2 otherwise. With ``--lines`` a line that is
refused is told with its number and leaves an empty line, and the other lines are worked on all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from pathlib import Path
from typing import Any, TypeAlias, get_args

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import refuse_idle
from tfgrpo.flows.console.powl_files import Reading, read_model, read_reference
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
from tfgrpo.rewarders.powl.relations import Mode
from tfgrpo.rewarders.powl.similarity import Aggregate
from tfgrpo.stores.errors import PowlError, SettingsError

_REFUSED = 2
_SIGNS: Mapping[tuple[str, ...], str] = {
    four: "".join(compress("→←∥#", map(int, four))) or "·" for four in product("01", repeat=4)
}
"""What stands in a cell, by the digits of its four relations."""
_TAKEN_BY = {"reference": ("score",), "consensus": ("score",), "allow": ("validate",)}
"""Options that mean something for one action only."""
_DOUBTS = 3
"""Most warnings about one text."""
_MANY_LINES = ("footprint", "draw")
"""What takes several lines for one model; with ``--lines`` an empty one ends each."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is said of one model: as an object, and as lines for a person."""

    value: Mapping[str, Any]
    text: str
    ok: bool = True


_Work: TypeAlias = Callable[[Model, argparse.Namespace], _Answer]


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.usage = f"{parser.prog} {{{','.join(_WORK)}}} [options] < FILE"
    parser.epilog = (
        "Exit codes: 0, or 2 when a model was refused or is not valid; with --lines the others are still done."
    )
    parser.add_argument("action", choices=tuple(_WORK), metavar="ACTION", help=", ".join(_WORK))
    parser.add_argument("--lines", action="store_true", help="one model a line; with --json one object a line")
    parser.add_argument("--format", choices=get_args(Reading), default="auto", help="form of the input [auto]")
    parser.add_argument("--aliases", action="store_true", help="text: also take SEQ, AND, →, ×, ∧, ↺ and any case")
    parser.add_argument("--mode", choices=get_args(Mode), help="footprint, score: reading of a footprint [block]")
    parser.add_argument(
        "--reference", metavar="FILE", help="score: a model, a footprint, or an event log (.xes, .csv; needs pm4py)"
    )
    parser.add_argument("--aggregate", choices=get_args(Aggregate), help="score: over all relations or each [pooled]")
    parser.add_argument("--consensus", action="store_true", help="score: compare the lines with each other")
    parser.add_argument("--allow", action="append", metavar="LABEL", help="validate: an allowed label; repeatable")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Do what was asked with every model on standard input."""
    _check(options)
    options.say = console.say
    options.compared = None if options.reference is None else read_reference(Path(options.reference), options.mode)
    answers = _agreement(options) if options.consensus else _one_by_one(options)
    code = 0
    for line, answer in answers:
        if isinstance(answer, _Answer):
            _tell(console, line, answer)
        elif line is not None and options.action not in _MANY_LINES and not console.as_json:
            console.text("")  # the lines of the output stay beside those of the input
        if isinstance(answer, PowlError):
            _refuse(console, line, answer)
        if isinstance(answer, PowlError) or (answer is not None and not answer.ok):
            code = _REFUSED
    return code


def _check(options: argparse.Namespace) -> None:
    refuse_idle(options, options.action, _TAKEN_BY)
    if options.consensus and (options.reference is not None or not options.lines):
        raise SettingsError.one("--consensus", "it so", "it with --lines and without --reference")
    compares = options.reference is not None or options.consensus
    for name, heeded, where in (
        ("mode", compares or options.action == "footprint", "footprint, and score with --reference or --consensus"),
        ("aggregate", compares, "score with --reference or --consensus"),
    ):
        if getattr(options, name) is not None and not heeded:
            raise SettingsError.one(f"--{name}", f"it with {options.action}", f"{where} only")
    options.mode = options.mode or "block"
    options.aggregate = options.aggregate or "pooled"


def _read(options: argparse.Namespace) -> Iterator[tuple[int | None, Model | PowlError | None]]:
    """Models and refusals, with the number of their line; None for a blank line."""
    if sys.stdin.isatty():
        sys.stderr.write("Reading from the terminal; end with Ctrl-D.\n")
    if not options.lines:
        yield None, _model(None, sys.stdin.buffer.read(), options)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield number, _model(number, line, options) if line.strip() else None


def _model(line: int | None, raw: bytes, options: argparse.Namespace) -> Model | PowlError:
    doubts: list[PowlError] = []
    try:
        model = read_model(raw, options.format, aliases=options.aliases, warn=doubts.append)
    except PowlError as error:
        return error
    for doubt in doubts[:_DOUBTS]:
        options.say(f"warning: {_placed(line, doubt)}", style="yellow", wrap=False)
    return model


def _parse(model: Model, options: argparse.Namespace) -> _Answer:
    del options
    text = to_text(model)
    key = structural_key(model)
    return _Answer({"model": to_value(model), "text": text, "activities": list(labels_of(model)), "key": key}, text)


def _validate(model: Model, options: argparse.Namespace) -> _Answer:
    result = validate(model, allowed_labels=options.allow)
    findings = [{**found._asdict(), "severity": found.severity} for found in result.findings]
    said = [str(found) for found in result.findings] or ["valid"]
    return _Answer({"valid": result.valid, "findings": findings}, "; ".join(said) if options.lines else "\n".join(said),
                   result.valid)  # fmt: skip


def _footprint(model: Model, options: argparse.Namespace) -> _Answer:
    found = footprint(model, options.mode)
    return _Answer(footprint_to_value(found), table_of(found))


def _score(model: Model, options: argparse.Namespace) -> _Answer:
    reference: Footprint | None = options.compared
    if reference is None:
        return _scored("self_consistency", self_consistency(model))
    score = footprint_similarity(model, reference, options.aggregate, mode=options.mode)
    return _scored("footprint_similarity", score, aggregate=options.aggregate, mode=options.mode)


def _draw(model: Model, options: argparse.Namespace) -> _Answer:
    del options
    picture = to_mermaid(model)
    return _Answer({"mermaid": picture}, picture)


_WORK: Mapping[str, _Work] = {
    "parse": _parse,
    "validate": _validate,
    "footprint": _footprint,
    "score": _score,
    "draw": _draw,
}


def _one_by_one(options: argparse.Namespace) -> Iterator[tuple[int | None, _Answer | PowlError | None]]:
    for line, model in _read(options):
        yield line, model if model is None or isinstance(model, PowlError) else _WORK[options.action](model, options)


def _agreement(options: argparse.Namespace) -> Iterator[tuple[int | None, _Answer | PowlError | None]]:
    """How far each model agrees with the others. One alone agrees with nobody."""
    results = list(_read(options))
    models = [model for _, model in results if model is not None and not isinstance(model, PowlError)]
    if len(models) < 2:
        raise SettingsError.one("--consensus", f"{len(models)} model(s) that can be read", "at least two")
    scores = iter(group_consensus(models, options.aggregate, mode=options.mode))
    how = {"aggregate": options.aggregate, "mode": options.mode}
    for line, model in results:
        if model is None or isinstance(model, PowlError):
            yield line, model
        else:
            yield line, _scored("group_consensus", next(scores), **how)


def _scored(measure: str, score: float, **how: str) -> _Answer:
    return _Answer({"score": score, "measure": measure, **how}, f"{score:.4f}")


def table_of(found: Footprint) -> str:
    """The matrix that textbooks show; a pair in several relations shows all of them."""
    names = [" ".join(label.split()) for label in found.activities]
    cells = list(_cells(found.rows, len(names)))
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(names)]
    first = max(map(len, names), default=0)
    lines = [" " * first + "".join(f"  {name:<{width}}" for name, width in zip(names, widths, strict=True))]
    for name, row in zip(names, cells, strict=True):
        lines.append(f"{name:<{first}}" + "".join(f"  {cell:<{w}}" for cell, w in zip(row, widths, strict=True)))
    return "\n".join(line.rstrip() for line in lines)


def _cells(rows: Sequence[Sequence[int]], count: int) -> Iterator[list[str]]:
    """The signs of each row, read off its masks digit by digit: looking pairs up takes half a minute for 2,000 labels."""
    follows, together, never = (["".join(reversed(f"{mask:0{count}b}")) for mask in relation] for relation in rows)
    precedes = ("".join(column) for column in zip(*follows, strict=True))
    for digits in zip(follows, precedes, together, never, strict=True):
        yield [_SIGNS[four] for four in zip(*digits, strict=True)]


def _tell(console: Console, line: int | None, answer: _Answer) -> None:
    if console.as_json:
        console.result({**({} if line is None else {"line": line}), **answer.value})
    else:
        console.text(f"{answer.text}\n" if line is not None and "\n" in answer.text else answer.text)


def _placed(line: int | None, error: PowlError) -> str:
    return f"standard input: {error}" if line is None else f"line {line}: {str(error).removeprefix('line 1, ')}"


def _refuse(console: Console, line: int | None, error: PowlError) -> None:
    """One message for a person; with ``--json`` one object with the place as well."""
    console.say(f"tfgrpo: {_placed(line, error)}", style="bold red", wrap=False)
    if console.as_json:
        place = {"row": error.line, "column": error.column, "pointer": error.pointer}
        known = {name: value for name, value in place.items() if value is not None}
        number = {} if line is None else {"line": line}
        console.result({**number, "status": "refused", "message": error.reason, **known})
