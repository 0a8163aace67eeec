"""Make the scorer of a name with its options: a built-in one, or any callable, class or object of the user's.

Built-in names are a closed table. Anything else is named as ``module:attr`` or ``path/to/file.py:attr``. A run, a selection,
a data mix and the data server make theirs here, and so does a worker process.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from tfgrpo.rewarders.calling import NO_NUMBER, REJECTS
from tfgrpo.rewarders.composite import AnyScorer, build_composite
from tfgrpo.rewarders.functions import SIGNATURES, bound, constructed, fits, named_problems, refuse_unknown
from tfgrpo.rewarders.importing import is_handed_over, load_object
from tfgrpo.rewarders.scorer import (
    Abstained,
    GraderInput,
    ItemScorer,
    Place,
    Scorer,
    Source,
    declared_range,
)
from tfgrpo.rewarders.threads import is_async
from tfgrpo.rewarders.workers import WorkerPool
from tfgrpo.stores.errors import OptionError, PipelineError
from tfgrpo.stores.text import bare_name, suggested


class _BuiltIn(NamedTuple):
    """A built-in scorer: its class or factory, and what a runner has to know."""

    module: str
    build: str
    needs_answer: bool = False
    place: Place = "inline"
    cpu_s: float | None = None
    limit_s: float | None = None
    """Most seconds of one call; None: the runner's."""


_BUILTIN: Final = "graders.builtin"
_TABLE: Final[Mapping[str, _BuiltIn]] = {
    "category_match": _BuiltIn(f"{_BUILTIN}.answers", "CategoryMatch", needs_answer=True),
    "choice": _BuiltIn(f"{_BUILTIN}.answers", "Choice", needs_answer=True),
    "code_tests": _BuiltIn(f"{_BUILTIN}.code_tests", "CodeTests", place="process", limit_s=600.0),
    "completion_length_cap": _BuiltIn(f"{_BUILTIN}.formats", "CompletionLengthCap"),
    "cost": _BuiltIn(f"{_BUILTIN}.trajectory", "Cost"),
    "em": _BuiltIn(f"{_BUILTIN}.texts", "ExactMatch", needs_answer=True),
    "exact": _BuiltIn(f"{_BUILTIN}.texts", "Exact", needs_answer=True),
    "f1": _BuiltIn(f"{_BUILTIN}.texts", "F1", needs_answer=True),
    "gt with formulas": _BuiltIn(f"{_BUILTIN}.math_verify", "GroundTruthOfFormulas", place="process", cpu_s=4.0),
    "gt": _BuiltIn("gt", "GroundTruth", needs_answer=True),
    "ifeval": _BuiltIn(f"{_BUILTIN}.ifeval", "IfEval", place="process"),
    "includes": _BuiltIn(f"{_BUILTIN}.texts", "Includes", needs_answer=True),
    "json_conforms": _BuiltIn(f"{_BUILTIN}.formats", "JsonConforms", place="process"),
    "json_schema": _BuiltIn(f"{_BUILTIN}.formats", "JsonSchema"),
    "json_valid": _BuiltIn(f"{_BUILTIN}.formats", "JsonValid"),
    "judge": _BuiltIn("judge.judge", "judge"),
    "label_match": _BuiltIn(f"{_BUILTIN}.answers", "LabelMatch", needs_answer=True),
    "latency": _BuiltIn(f"{_BUILTIN}.trajectory", "Latency"),
    "latex_only": _BuiltIn(f"{_BUILTIN}.formats", "LatexOnly"),
    "math-verify": _BuiltIn(f"{_BUILTIN}.math_verify", "MathVerify", needs_answer=True, place="process", cpu_s=4.0),
    "math_exact": _BuiltIn(f"{_BUILTIN}.answers", "MathExact", needs_answer=True),
    "math_verify": _BuiltIn(f"{_BUILTIN}.math_verify", "MathVerify", needs_answer=True, place="process", cpu_s=4.0),
    "number_match": _BuiltIn(f"{_BUILTIN}.answers", "NumberMatch", needs_answer=True),
    "number_only": _BuiltIn(f"{_BUILTIN}.answers", "NumberOnly"),
    "powl_equal": _BuiltIn("powl.scoring", "PowlEqual", place="process"),
    "powl_footprint": _BuiltIn("powl.scoring", "PowlFootprint", place="process"),
    "powl_group_consensus": _BuiltIn("powl.scoring", "PowlGroupConsensus", place="process"),
    "powl_self_consistency": _BuiltIn("powl.scoring", "PowlSelfConsistency", place="process"),
    "powl_valid": _BuiltIn("powl.scoring", "PowlValid", place="process"),
    "reasoning_format": _BuiltIn(f"{_BUILTIN}.formats", "ReasoningFormat"),
    "regex": _BuiltIn(f"{_BUILTIN}.texts", "Regex"),
    "relative": _BuiltIn("judge.relative", "relative"),
    "remote": _BuiltIn("graders.remote", "RemoteGrader", place="loop"),
    "similarity": _BuiltIn(f"{_BUILTIN}.texts", "Similarity", needs_answer=True, place="process"),
    "sql_result": _BuiltIn(f"{_BUILTIN}.sql_result", "SqlResult", needs_answer=True, place="process"),
    "tokens": _BuiltIn(f"{_BUILTIN}.trajectory", "Tokens"),
    "tool_calls": _BuiltIn(f"{_BUILTIN}.trajectory", "ToolCalls"),
    "xml_schema": _BuiltIn(f"{_BUILTIN}.formats", "XmlSchema"),
}
GRADERS: Final = tuple(name for name, each in _TABLE.items() if each.module.startswith(_BUILTIN) and " " not in name)
COMPARING: Final = frozenset(name for name, each in _TABLE.items() if each.needs_answer)
"""Scorers that abstain on an item without a reference answer."""
COMPARING_MODELS: Final = frozenset({"powl_equal", "powl_footprint"})
"""Scorers that abstain on an item without a process model as its answer or in its metadata."""


_PHRASES: Final = {
    "exact": "equal equals exact_match literal strict strict_match string_match",
    "gt": "acc accuracy answer answer_match correct correctness default ground_truth match quasi_exact_match reference truth",
    "number_match": "float integer number numeric numeric_match numerical",
    "math_verify": "latex latex_match math math_equal math_equivalence math_reward symbolic sympy",
    "math_exact": "gsm8k gsm8k_match math_match",
    "choice": "choices mc mcq multiple_choice option options",
    "label_match": "category class classification label labels",
    "includes": "contain contains icontains in includes_answer substring",
    "regex": "matches pattern re regex_match regexp",
    "em": "squad squad_em",
    "f1": "f1_score qa_f1 squad_f1 token_f1 word_f1",
    "similarity": "fuzzy likeness string_similarity text_similarity",
    "similarity with metric: chrf": "chrf",
    "similarity with metric: edit": "edit_distance edit_similarity levenshtein",
    "similarity with metric: rouge_l": "rouge rouge_l rouge_score",
    "ifeval": "if_eval instruction_following instructions verifiable_instructions",
    "judge": "g_eval geval grader_model llm llm_as_a_judge llm_as_judge llm_judge llm_rubric model_graded rubric",
    "json_conforms": "json_match json_schema_match jsonschema schema",
    "json_valid": "is_json json valid_json",
    "xml_schema": "xml",
    "latex_only": "latex_format",
    "reasoning_format": "format format_reward think think_format",
    "completion_length_cap": "length length_penalty max_length max_tokens",
    "code_tests": "code code_exec code_execution code_reward human_eval humaneval mbpp pass_at_1 python_tests unit_tests",
    "sql_result": "execution_accuracy sql sql_execution sqlite text_to_sql",
    "tool_calls": "bfcl function_call function_calling function_calls tool_call tool_correctness trajectory_match",
    "cost": "cost_usd price usd",
    "latency": "duration latency_s seconds speed time",
    "tokens": "completion_tokens token_count",
    "composite": "average combined mean mix sum weighted weighted_sum",
    "relative": "pairwise preference ranking",
    "remote": "api http remote_http url webhook",
    "powl_footprint": "conformance footprint powl process_model",
}
ALIASES: Final[Mapping[str, str]] = {alias: name for name, aliases in _PHRASES.items() for alias in aliases.split()}
"""What people call a rewarder elsewhere, with its name here."""
_NOT_BUILT_IN: Final = (
    "bert_score bleu cosine embedding meteor perplexity rouge_1 rouge_2 semantic_similarity starts_with"
)


def known_scorers() -> tuple[str, ...]:
    """Return the built-in names, sorted."""
    return tuple(sorted({"composite", *(name for name in _TABLE if " " not in name)}))


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
    relative to, the working directory by default; ``entry``: of a data mix, for which a file is run once more.

    Raises ``PipelineError`` for an unknown name or option, for a value that an option does not accept, and for a
    ``module:attr`` that cannot be imported or used.
    """
    where = f"{source}: {name}"
    # A pipeline file may have numbers as keys, which are no keywords and do not sort.
    given = {str(each): value for each, value in (options or {}).items()}
    if name in _TABLE:
        return _built_in(name, given, where, key)
    if name == "composite":
        return build_composite(given, where, lambda part, its, place: build_scorer(part, its, source=place))
    if ":" not in name:
        accepted = "module:attr or path/to/file.py:attr for a Python function or class"
        if bare_name(name) in map(bare_name, _NOT_BUILT_IN.split()):
            accepted += ": no built-in rewarder does that"
        else:
            known = known_scorers()
            accepted = suggested(name, known, f"{', '.join(known)}, or {accepted}", ALIASES)
        raise PipelineError.one(f"{source}: name", repr(name), accepted)
    return _from_python(name, given, where, key, folder=folder, entry=entry)


def scorer_of(source: Source) -> Scorer:
    """Return the scorer that a worker process is to run."""
    made = build_scorer(source.name, source.options, folder=Path(source.folder), entry=source.entry)
    if not isinstance(made, Scorer):
        raise PipelineError.one("rewarders", source.name, "a single scorer")
    if isinstance(made.made_from, ItemScorer):
        made.made_from.prepare()
    return made


def _built_in(name: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    """Return a built-in scorer. Its module is loaded only now: a worker starts three times as fast without pydantic."""
    traits, rest = _TABLE[name], dict(options)
    own = rest.pop("rewarder_id", name)
    problems = named_problems(own, f"{where}{key}")
    build = getattr(importlib.import_module(f"tfgrpo.rewarders.{traits.module}"), traits.build)
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
        source=Source(name, dict(options), str(Path.cwd())) if place == "process" else None,
        second=_built_in("gt with formulas", options, where, key) if name == "gt" and made.knows_algebra else None,
        needs_answer=traits.needs_answer,
        cpu_s=traits.cpu_s,
        limit_s=traits.limit_s,
    )


def _from_python(
    name: str, options: dict[str, Any], where: str, key: str, *, folder: Path | None, entry: str
) -> Scorer:
    found = load_object(name, where, folder=folder, entry=entry)
    rest = dict(options)
    own = rest.pop("rewarder_id", entry or name)
    if problems := named_problems(own, f"{where}{key}"):
        raise PipelineError(problems)
    made = as_scorer(own, found, rest, where, key)
    if "rewarder_id" in options:
        made = replace(made, rewarder_id=own)  # though the object has a name, too
    # What only this process has runs in a thread of it; what waits for the run's model runs on its event loop.
    isolated = made.place != "loop" and not is_handed_over(name)
    source = Source(name, dict(options), str(folder or Path.cwd()), entry) if isolated else None
    place: Place = "loop" if made.place == "loop" else "process" if isolated else "thread"
    return replace(made, place=place, source=source)


def as_scorer(name: str, found: object, options: Mapping[str, Any], where: str, key: str = ": options") -> Scorer:
    """Return a user's object as a scorer: what a class or factory makes, an object as it is, or a function's call.

    Raises ``PipelineError`` when it is none and makes none.
    """
    if callable(found) and (isinstance(found, type) or not _scores(found)) and fits(found, options):
        made: object = constructed(found, options, where, key)
        if inspect.iscoroutine(made):
            made.close()
        if not _scores(made) and not callable(made):
            kind = "nothing" if made is None else f"a {type(made).__name__}"
            raise PipelineError.one(where, f"something that makes {kind}", _ACCEPTED)
        found, options = made, {}
    elif isinstance(found, type):
        found, options = constructed(found, options, where, key), {}  # raises: its options do not fit
    if _scores(found):
        if options:
            raise PipelineError.one(where + key, ", ".join(sorted(options)), "no options: it is an object already")
        return _of_object(name, found, where)
    if not callable(found):
        raise PipelineError.one(where, "nothing" if found is None else f"a {type(found).__name__}", _ACCEPTED)
    try:
        if options:
            refuse_unknown(found, options, f"{where}{key}")
        call, scope = bound(found, options)
        score_range = declared_range(found)
        return Scorer(name, call, scope=scope, place="thread", score_range=score_range, made_from=found)
    except ValueError as error:  # a plain one for a callable of which Python knows no signature
        given = error.given if isinstance(error, OptionError) else str(error)
        raise PipelineError.one(where, given, f"a function of {SIGNATURES}") from error


def _of_object(name: str, found: object, where: str) -> Scorer:
    try:
        score_range = declared_range(found)
    except OptionError as error:
        raise PipelineError.one(where, error.given, error.accepted) from error
    traits: dict[str, Any] = {
        each: getattr(found, each, None) for each in ("close", "unusable", "overlooked", "judge_loads")
    }
    traits |= {"place": "thread", "score_range": score_range, "made_from": found}
    if isinstance(found, ItemScorer) and type(found).wanted is ItemScorer.wanted:
        traits["unusable"] = None  # it compares with nothing
    flags: dict[str, Any] = {flag: bool(getattr(found, flag, False)) for flag in ("ranks", "compares", "asks_model")}
    if flags["asks_model"]:
        traits["place"] = "loop"
    elif callable(call := getattr(found, "score_one", None)):
        return Scorer(name, call, **traits)
    elif callable(call := getattr(found, "grade_batch", None)):
        return Scorer(name, call, scope="batch", per_item=getattr(found, "per_item", False) is True, **traits)
    own = getattr(found, "rewarder_id", name if isinstance(found, ItemScorer) else None)
    if not isinstance(own, str):
        raise PipelineError.one(where, "no rewarder_id", "a rewarder with a rewarder_id and score(context)")
    return Scorer(own, cast("Any", found).score, scope="group", **flags, **traits)


TRIAL: Final = GraderInput.of(
    "trial:0",
    {"prompt": "What is 6 * 7?", "answer": "42", "system_prompt": None, "metadata": {}},
    "<think>\n6 * 7 = 42\n</think>\n42",
    completion_tokens=16,
    completion_index=0,
)
"""A made-up attempt."""
TRIAL_S: Final = 5.0
_NO_GRADER: Final = ("expected a list of results", NO_NUMBER[0], "the result has no reward, or two different ones")


def refuse_no_scorer(scorer: Scorer, where: str) -> None:
    """Ask a user's scorer about a made-up attempt. Raise ``PipelineError`` if it takes none, exits, or returns no number.

    Anything else that it raises may be its word on this attempt; so may None and NaN. A coroutine, which may call a service,
    and a scorer of groups are not asked.
    """
    if scorer.source is None or ":" not in scorer.source.name or scorer.scope == "group" or is_async(scorer.call):
        return
    pool = WorkerPool(scorer, log=None)  # the runner will warn of a scorer that cannot be isolated
    try:
        (verdict,) = pool.perform([TRIAL], TRIAL_S)
    finally:
        pool.close()
    reason = verdict.reason if isinstance(verdict, Abstained) else ""
    if reason.endswith((REJECTS, *_NO_GRADER)) or reason.startswith("SystemExit"):
        accepted = "a grader: called with a GraderInput, or grade_batch with a list of them, it returns numbers"
        raise PipelineError.one(where, f"{reason} (a call with a made-up item)", accepted)


_ACCEPTED: Final = (
    f"a function of {SIGNATURES}; an object with score_one(item), grade_batch(inputs) or score(context), a class of such "
    "objects, or a factory of one"
)


def _scores(found: object) -> bool:
    return any(callable(getattr(found, name, None)) for name in ("score_one", "grade_batch", "score"))
