"""Make the scorer of a name with its options: a built-in one, or any callable, class or object of the user's.

Built-in names are a closed table. Anything else is named as ``module:attr`` or ``path/to/file.py:attr``. A run, a selection,
a data mix and the data server make theirs here, and so does a worker process.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from tfgrpo.rewarders.composite import AnyScorer, build_composite
from tfgrpo.rewarders.functions import SIGNATURES, bound, call_fits, constructed, named_problems, refuse_unknown
from tfgrpo.rewarders.importing import is_handed_over, load_object
from tfgrpo.rewarders.scorer import ItemScorer, Scorer, ScorerSource, ScoringPlace, declared_range
from tfgrpo.stores.errors import OptionError, PipelineError
from tfgrpo.stores.text import suggested


class _BuiltIn(NamedTuple):
    # ``gt with formulas`` is no name of a user's: it is what ``gt`` leaves undecided
    name: str
    # Module and class or factory; empty for ``composite``, which is made of others
    made_by: str = ""
    needs_answer: bool = False
    place: ScoringPlace = "inline"
    cpu_s: float | None = None
    limit_s: float | None = None
    aliases: str = ""
    phrases: Mapping[str, str] = MappingProxyType({})


_ACCEPTED: Final = (
    f"a function of {SIGNATURES}; an object with score_one(item), grade_batch(inputs) or score(context), a class of such "
    "objects, or a factory of one"
)
_ROWS: Final = Path(__file__).with_name("builtin.jsonl").read_text("utf-8").splitlines()
_TABLE: Final[Mapping[str, _BuiltIn]] = {each.name: each for each in (_BuiltIn(**json.loads(row)) for row in _ROWS)}
_GRADERS: Final = "graders.builtin."
GRADERS: Final = tuple(name for name, each in _TABLE.items() if each.made_by.startswith(_GRADERS) and " " not in name)
COMPARING: Final = frozenset(name for name, each in _TABLE.items() if each.needs_answer)
COMPARING_MODELS: Final = frozenset({"powl_equal", "powl_footprint"})
"""Scorers that abstain on an item without a process model as its answer or in its metadata."""
ALIASES: Final[Mapping[str, str]] = {
    alias: phrase
    for each in _TABLE.values()
    for phrase, aliases in {each.name: each.aliases, **each.phrases}.items()
    for alias in aliases.split()
}
"""Names of rewarders in other frameworks, with the name here."""


def known_scorers() -> tuple[str, ...]:
    """Return the built-in names, sorted."""
    return tuple(sorted(name for name in _TABLE if " " not in name))


def build_scorer(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    source: str = "rewarders",
    key: str = ": options",
    folder: Path | None = None,
    entry: str = "",
) -> AnyScorer:
    """Return the scorer called ``name``, made with ``options``.

    ``source`` is the place of the name in messages, and ``key`` that of the options within it. ``folder``: what a file is
    relative to, the working directory by default; ``entry``: of a data mix, for which a file is run once more. Raises
    ``PipelineError`` for what is unknown, not accepted, or cannot be imported or used.
    """
    where = f"{source}: {name}"
    # A pipeline file may have numbers as keys, which are no keywords and do not sort.
    rest = {str(each): value for each, value in (options or {}).items()}
    if name == "composite":
        return build_composite(rest, where, lambda part, its, path: build_scorer(part, its, source=path))
    if name in _TABLE:
        return _built_in(name, rest, where, key)
    if ":" not in name:
        names = known_scorers()
        accepted = f"{', '.join(names)}, or module:attr or path/to/file.py:attr for a Python function or class"
        raise PipelineError.one(f"{source}: name", repr(name), suggested(name, names, accepted, ALIASES))
    target, every_option = load_object(name, where, folder=folder, entry=entry), dict(rest)
    own = rest.pop("rewarder_id", entry or name)
    if problems := named_problems(own, f"{where}{key}"):
        raise PipelineError(problems)
    made = as_scorer(own, target, rest, where, key)
    if "rewarder_id" in every_option:
        made = replace(made, rewarder_id=own)  # though the object has a name, too
    # What only this process has runs in a thread of it; what waits for the run's model runs on its event loop.
    isolated = made.place != "loop" and not is_handed_over(name)
    return replace(
        made,
        place="process" if isolated else made.place,
        source=ScorerSource(name, every_option, str(folder or Path.cwd()), entry) if isolated else None,
    )


def _built_in(name: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    traits, rest = _TABLE[name], dict(options)
    own = rest.pop("rewarder_id", name)
    problems = named_problems(own, f"{where}{key}")
    module, _, attribute = traits.made_by.partition(":")
    # Only now: a worker starts three times as fast without pydantic.
    build = getattr(importlib.import_module(f"tfgrpo.rewarders.{module}"), attribute)
    if "rewarder_id" in options and "rewarder_id" in inspect.signature(build).parameters and not problems:
        rest["rewarder_id"] = own
    try:
        made: Any = constructed(build, rest, where, key)
    except PipelineError as error:
        problems += error.problems
    if problems:
        raise PipelineError(problems)
    scorer = _of_object(own, made, where)
    place = "loop" if scorer.asks_model else "inline" if getattr(made, "quick", False) else traits.place
    return replace(
        scorer,
        place=place,
        source=ScorerSource(name, dict(options), str(Path.cwd())) if place == "process" else None,
        second=_built_in("gt with formulas", options, where, key) if name == "gt" and made.knows_algebra else None,
        needs_answer=traits.needs_answer,
        cpu_s=traits.cpu_s,
        limit_s=traits.limit_s,
    )


def as_scorer(name: str, target: object, options: Mapping[str, Any], where: str, key: str = ": options") -> Scorer:
    """Return a user's object as a scorer: what a class or factory makes, an object, or a function. Raises ``PipelineError``."""
    if callable(target) and (isinstance(target, type) or not _scores(target)) and call_fits(target, options):
        made: object = constructed(target, options, where, key)
        if inspect.iscoroutine(made):
            made.close()
        if not _scores(made) and not callable(made):
            kind = "nothing" if made is None else f"a {type(made).__name__}"
            raise PipelineError.one(where, f"something that makes {kind}", _ACCEPTED)
        target, options = made, {}
    elif isinstance(target, type):
        target, options = constructed(target, options, where, key), {}  # raises: its options do not fit
    if _scores(target):
        if options:
            raise PipelineError.one(where + key, ", ".join(sorted(options)), "no options: it is an object already")
        return _of_object(name, target, where)
    if not callable(target):
        raise PipelineError.one(where, "nothing" if target is None else f"a {type(target).__name__}", _ACCEPTED)
    try:
        if options:
            refuse_unknown(target, options, f"{where}{key}")
        call, scope = bound(target, options)
        return Scorer(name, call, scope, "thread", declared_range(target), made_from=target)
    except ValueError as error:  # a plain one for a callable of which Python knows no signature
        fault = error.given if isinstance(error, OptionError) else str(error)
        raise PipelineError.one(where, fault, f"a function of {SIGNATURES}") from error


def _of_object(name: str, target: object, where: str) -> Scorer:
    try:
        score_range = declared_range(target)
    except OptionError as error:
        raise PipelineError.one(where, error.given, error.accepted) from error
    traits: dict[str, Any] = {each: getattr(target, each, None) for each in ("close", "unusable", "overlooked", "judge_loads")}
    traits |= {"place": "thread", "score_range": score_range, "made_from": target}
    if isinstance(target, ItemScorer) and type(target).wanted is ItemScorer.wanted:
        traits["unusable"] = None  # it compares with nothing
    flags: dict[str, Any] = {flag: bool(getattr(target, flag, False)) for flag in ("ranks", "compares", "asks_model")}
    if flags["asks_model"]:
        traits["place"] = "loop"
    elif callable(call := getattr(target, "score_one", None)):
        return Scorer(name, call, **traits)
    elif callable(call := getattr(target, "grade_batch", None)):
        return Scorer(name, call, scope="batch", per_item=getattr(target, "per_item", False) is True, **traits)
    own = getattr(target, "rewarder_id", name if isinstance(target, ItemScorer) else None)
    if not isinstance(own, str):
        raise PipelineError.one(where, "no rewarder_id", "a rewarder with a rewarder_id and score(context)")
    return Scorer(own, cast("Any", target).score, scope="group", **flags, **traits)


def _scores(target: object) -> bool:
    return any(callable(getattr(target, name, None)) for name in ("score_one", "grade_batch", "score"))
