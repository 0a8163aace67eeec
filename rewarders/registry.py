"""Make the scorer of a name with its options: a built-in one, or any callable, class or object of the user's.

Built-in names are a closed table. Anything else is named as ``module:attr`` or ``path/to/file.py:attr``. A run, a selection,
a data mix and the data server make theirs here, and so does a worker process.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, get_args

from tfgrpo.rewarders.calling import perform
from tfgrpo.rewarders.composite import AnyScorer, build_composite
from tfgrpo.rewarders.functions import SIGNATURES, Bound, bound, constructed, fits, pop_rewarder_id, refuse_unknown
from tfgrpo.rewarders.importing import is_handed_over, load_object
from tfgrpo.rewarders.matching import NO_NUMBER, REJECTS
from tfgrpo.rewarders.scorer import (
    Abstained,
    GraderInput,
    ItemScorer,
    Parse,
    Place,
    Scorer,
    Source,
    Verdict,
    declared_range,
)
from tfgrpo.rewarders.threads import RewarderThreads, is_async
from tfgrpo.rewarders.workers import NotIsolated, WorkerPool
from tfgrpo.stores.errors import OptionError, PipelineError, Problem
from tfgrpo.stores.text import bare_name, suggested


class _Grader(NamedTuple):
    """A built-in scorer of single attempts: where its class is, and what the runner has to know."""

    module: str
    kind: str
    needs_answer: bool = False
    place: Place = "inline"
    cpu_s: float | None = None
    parses: bool = True
    """Takes the option ``parse``. False: it cuts reasoning itself."""
    limit_s: float | None = None
    """Most seconds of one call; None: the runner's."""


_GRADERS: Final[Mapping[str, _Grader]] = {
    "category_match": _Grader("labels", "CategoryMatch", needs_answer=True),
    "choice": _Grader("texts", "Choice", needs_answer=True, parses=False),
    "code_tests": _Grader("code_tests", "CodeTests", place="process", limit_s=600.0, parses=False),
    "completion_length_cap": _Grader("formats", "CompletionLengthCap"),
    "cost": _Grader("trajectory", "Cost", parses=False),
    "em": _Grader("texts", "ExactMatch", needs_answer=True, parses=False),
    "exact": _Grader("texts", "Exact", needs_answer=True, parses=False),
    "f1": _Grader("texts", "F1", needs_answer=True, parses=False),
    "ifeval": _Grader("ifeval", "IfEval", place="process", parses=False),
    "includes": _Grader("texts", "Includes", needs_answer=True, parses=False),
    "json_conforms": _Grader("json_conforms", "JsonConforms", place="process"),
    "json_schema": _Grader("schema_grader", "JsonSchema"),
    "json_valid": _Grader("formats", "JsonValid"),
    "label_match": _Grader("labels", "LabelMatch", needs_answer=True),
    "latency": _Grader("trajectory", "Latency", parses=False),
    "latex_only": _Grader("formats", "LatexOnly"),
    "math-verify": _Grader("math_verify", "MathVerify", needs_answer=True, place="process", cpu_s=4.0),
    "math_exact": _Grader("number_match", "MathExact", needs_answer=True),
    "math_verify": _Grader("math_verify", "MathVerify", needs_answer=True, place="process", cpu_s=4.0),
    "number_match": _Grader("number_match", "NumberMatch", needs_answer=True),
    "number_only": _Grader("number_match", "NumberOnly"),
    "reasoning_format": _Grader("formats", "ReasoningFormat"),
    "regex": _Grader("texts", "Regex", parses=False),
    "similarity": _Grader("texts", "Similarity", needs_answer=True, place="process", parses=False),
    "sql_result": _Grader("sql_result", "SqlResult", needs_answer=True, place="process", parses=False),
    "tokens": _Grader("trajectory", "Tokens", parses=False),
    "tool_calls": _Grader("trajectory", "ToolCalls", parses=False),
    "xml_schema": _Grader("schema_grader", "XmlSchema"),
}
GRADERS: Final = tuple(sorted(_GRADERS))
COMPARING: Final = frozenset({"gt", *(name for name, each in _GRADERS.items() if each.needs_answer)})
"""Scorers that abstain on an item without a reference answer."""
COMPARING_MODELS: Final = frozenset({"powl_equal", "powl_footprint"})
"""Scorers that abstain on an item without a process model as its answer or in its metadata."""
_MODELS: Final = COMPARING_MODELS | {"powl_group_consensus", "powl_self_consistency", "powl_valid"}
_FORMULAS: Final = "gt formulas"
"""What ``gt`` asks about formulas that are written differently; in a worker process only."""


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
    "similarity with metric: chrf": "chrf chrf_plus_plus",
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
    return tuple(sorted({"composite", "gt", "judge", "relative", "remote", *_MODELS, *_GRADERS}))


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
    if name in _GRADERS:
        return _grader(name, given, where, key)
    if name == "gt":
        return _ground_truth(given, where, key)
    if name == "composite":
        return build_composite(given, where, lambda part, its, place: build_scorer(part, its, source=place))
    if name in ("judge", "relative", "remote") or name in _MODELS:
        return _MAKERS["powl" if name in _MODELS else name](name, given, where, key)
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
    if source.name == _FORMULAS:
        from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify, formulas_equal  # noqa: PLC0415 - imports sympy
        from tfgrpo.rewarders.gt import GroundTruth  # noqa: PLC0415 - see ``_ground_truth``

        gt = GroundTruth(**source.options)
        MathVerify().prepare()
        return Scorer(gt.rewarder_id, partial(gt.score_one, equal=formulas_equal))
    made = build_scorer(source.name, source.options, folder=Path(source.folder), entry=source.entry)
    if not isinstance(made, Scorer):
        raise PipelineError.one("rewarders", source.name, "a single scorer")
    if isinstance(made.made_from, ItemScorer):
        made.made_from.prepare()
    return made


def _source(name: str, options: Mapping[str, Any], folder: Path | None = None, entry: str = "") -> Source:
    return Source(name, dict(options), str(folder or Path.cwd()), entry)


def _split_options(
    options: Mapping[str, Any], name: str, where: str, key: str
) -> tuple[dict[str, Any], str, Parse | None]:
    """Return the options of the grader itself, its name in records, and how it is to read outputs."""
    rest, own = pop_rewarder_id(options, name, where)
    parse = rest.pop("parse", None)
    if parse is not None and parse not in get_args(Parse):
        raise PipelineError.one(f"{where}{key}.parse", repr(parse), ", ".join(get_args(Parse)))
    return rest, own, parse


def _grader(name: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    traits = _GRADERS[name]
    problems: list[Problem] = []
    rest, own, parse = (
        {each: value for each, value in options.items() if each not in ("parse", "rewarder_id")},
        name,
        None,
    )
    try:
        rest, own, parse = _split_options(options, name, where, key)
    except PipelineError as error:
        problems += error.problems
    if "parse" in options and not traits.parses:
        problems.append(
            Problem(f"{where}{key}.parse", repr(options["parse"]), "no parse: this scorer cuts reasoning itself")
        )
    module = importlib.import_module(f"tfgrpo.rewarders.graders.builtin.{traits.module}")
    try:
        grader: ItemScorer = constructed(getattr(module, traits.kind), rest, where, key)
    except PipelineError as error:
        problems += error.problems
    if problems:
        raise PipelineError(problems)
    isolated = traits.place == "process"
    return Scorer(
        own,
        grader.score_one,
        place=traits.place,
        needs_answer=traits.needs_answer,
        parse=parse,
        cpu_s=traits.cpu_s,
        limit_s=traits.limit_s,
        source=_source(name, options) if isolated else None,
        unusable=getattr(grader, "unusable", None),
        overlooked=getattr(grader, "overlooked", None),
        made_from=grader,
    )


def _ground_truth(options: dict[str, Any], where: str, key: str) -> Scorer:
    # A worker of a user's function starts three times as fast without pydantic.
    from tfgrpo.rewarders.gt import GroundTruth  # noqa: PLC0415 - see above

    gt: GroundTruth = constructed(GroundTruth, options, where, key)
    formulas = Scorer(gt.rewarder_id, gt.score_one, place="process", cpu_s=4.0, source=Source(_FORMULAS, options, ""))
    return Scorer(
        gt.rewarder_id,
        gt.score_one,
        needs_answer=True,
        unusable=gt.unusable,
        second=formulas if gt.knows_algebra else None,
        made_from=gt,
    )


def _judge(_: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    from tfgrpo.rewarders.judge.judge import JudgeRewarder  # noqa: PLC0415 - only for judges
    from tfgrpo.rewarders.judge.options import judge_options  # noqa: PLC0415 - as above

    rest, own = pop_rewarder_id(options, "judge", where)
    judge = JudgeRewarder(judge_options(rest, f"{where}{key}"), own)
    checks = judge.unusable if judge.options.preset in ("reference", "grounded") else None
    return _group(own, judge, place="loop", asks_model=True, judge_loads=judge.judge_loads, unusable=checks)


def _group(name: str, maker: Any, **traits: Any) -> Scorer:
    """Return the scorer of an object with ``score(context)``."""
    return Scorer(name, maker.score, scope="group", score_range=declared_range(maker), made_from=maker, **traits)


def _relative(_: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    """Return the ``relative`` scorer: by totals, or by a judge's comparisons when it has an option ``judge``."""
    from tfgrpo.rewarders.relative import RelativeRewarder, Variant  # noqa: PLC0415 - only where it is asked for

    rest, own = pop_rewarder_id(options, "relative", where)
    variant = rest.pop("variant", "rank")
    judge = rest.pop("judge", None)
    problems = [
        Problem(f"{where}{key}.{each}", repr(rest[each]), "judge, rewarder_id, variant") for each in sorted(rest)
    ]
    if variant not in get_args(Variant):
        problems.append(Problem(f"{where}{key}.variant", repr(variant), ", ".join(get_args(Variant))))
    pairs = None
    if isinstance(judge, Mapping):
        from tfgrpo.rewarders.judge.options import judge_options  # noqa: PLC0415 - see above
        from tfgrpo.rewarders.judge.pairs import PairwiseRewarder  # noqa: PLC0415

        try:
            pairs = PairwiseRewarder(judge_options(judge, f"{where}{key}.judge"), variant, own)
            problems += [
                Problem(
                    f"{where}{key}.judge.{each}", repr(value), "the rewarder judge: presets and panels do not compare"
                )
                for each in ("preset", "models")
                if (value := getattr(pairs.options, each)) is not None
            ]
        except PipelineError as error:
            problems += error.problems
    elif judge is not None:
        problems.append(Problem(f"{where}{key}.judge", repr(judge), "options of a judge, or {} for all defaults"))
    if problems:
        raise PipelineError(problems)
    if pairs is not None:
        return _group(own, pairs, place="loop", compares=True, asks_model=True, judge_loads=pairs.judge_loads)
    return _group(own, RelativeRewarder(variant, own), ranks=True)


def _remote(name: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    from tfgrpo.rewarders.graders.remote import RemoteGrader  # noqa: PLC0415 - only for services

    rest, own, parse = _split_options(options, name, where, key)
    remote = constructed(RemoteGrader, rest, where, key)
    return Scorer(
        own, partial(remote.grade, own), scope="batch", place="loop", parse=parse, close=remote.aclose, made_from=remote
    )


def _process_model(name: str, options: dict[str, Any], where: str, key: str) -> Scorer:
    from tfgrpo.rewarders.powl.scoring import POWL_REWARDERS  # noqa: PLC0415 - only for process models

    made = constructed(POWL_REWARDERS[name], options, where, key)
    place: Place = "inline" if made.quick else "process"
    source = None if made.quick else _source(name, options)
    return _group(made.rewarder_id, made, place=place, compares=made.compares, source=source)


_MAKERS: Final[Mapping[str, Callable[[str, dict[str, Any], str, str], Scorer]]] = {
    "judge": _judge,
    "powl": _process_model,
    "relative": _relative,
    "remote": _remote,
}


def _from_python(
    name: str, options: dict[str, Any], where: str, key: str, *, folder: Path | None, entry: str
) -> Scorer:
    found = load_object(name, where, folder=folder, entry=entry)
    rest, own, parse = _split_options(options, entry or name, where, key)
    made = as_scorer(own, found, rest, where, key)
    if "rewarder_id" in options:
        made = replace(made, rewarder_id=own)  # though the object has a name, too
    # What only this process has runs in a thread of it; what waits for the run's model runs on its event loop.
    isolated = made.place != "loop" and not is_handed_over(name)
    source = _source(name, options, folder, entry) if isolated else None
    place: Place = "loop" if made.place == "loop" else "process" if isolated else "thread"
    return replace(made, place=place, source=source, parse=parse)


def as_scorer(name: str, found: object, options: Mapping[str, Any], where: str, key: str = ": options") -> Scorer:
    """Return a user's object as a scorer: what a class or factory makes, an object as it is, or a function's call.

    Raises ``PipelineError`` when it is none and makes none.
    """
    if callable(found) and (isinstance(found, type) or not _scores(found)) and fits(found, options):
        made: object = constructed(found, options, where, key)
        if inspect.iscoroutine(made):
            made.close()
        if not _scores(made) and not callable(made):
            raise PipelineError.one(where, f"something that makes {_kind(made)}", _ACCEPTED)
        found, options = made, {}
    elif isinstance(found, type):
        found, options = constructed(found, options, where, key), {}  # raises: its options do not fit
    if _scores(found):
        if options:
            raise PipelineError.one(where + key, ", ".join(sorted(options)), "no options: it is an object already")
        return _of_object(name, found, where)
    if not callable(found):
        raise PipelineError.one(where, _kind(found), _ACCEPTED)
    return _of_function(name, found, options, where, key)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _of_object(name: str, found: object, where: str) -> Scorer:
    try:
        score_range = declared_range(found)
    except OptionError as error:
        raise PipelineError.one(where, error.given, error.accepted) from error
    traits: dict[str, Any] = {"score_range": score_range, "made_from": found, "close": getattr(found, "close", None)}
    if callable(getattr(found, "score_one", None)):
        return Scorer(name, found.score_one, **traits)  # type: ignore[attr-defined]
    if callable(getattr(found, "grade_batch", None)):
        per_item = getattr(found, "per_item", False) is True
        return Scorer(name, found.grade_batch, scope="batch", per_item=per_item, **traits)  # type: ignore[attr-defined]
    own = getattr(found, "rewarder_id", None)
    if not isinstance(own, str):
        raise PipelineError.one(where, "no rewarder_id", "a rewarder with a rewarder_id and score(context)")
    flags: dict[str, Any] = {flag: bool(getattr(found, flag, False)) for flag in ("ranks", "compares", "asks_model")}
    place: Place = "loop" if flags["asks_model"] else "thread"
    loads = getattr(found, "judge_loads", None)
    return Scorer(own, cast("Any", found).score, scope="group", place=place, judge_loads=loads, **flags, **traits)


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
    verdict = _on_trial(scorer)
    if not isinstance(verdict, Abstained):
        return
    if verdict.reason.endswith((REJECTS, *_NO_GRADER)) or verdict.reason.startswith("SystemExit"):
        raise PipelineError.one(where, f"{verdict.reason} (a call with a made-up item)", _RETURNS)


def _on_trial(scorer: Scorer) -> Verdict | None:
    """Return the verdict on the made-up attempt; None if a thread has none in time."""
    if scorer.place == "process":
        pool = WorkerPool(scorer, 1)
        try:
            return pool.perform([TRIAL], TRIAL_S)[0]
        except NotIsolated:
            return None  # the runner will say so, and call it in a thread
        finally:
            pool.close()
    verdicts: dict[int, Verdict] = {}
    with RewarderThreads(1) as threads, suppress(TimeoutError):
        threads.submit(perform, scorer, [deepcopy(TRIAL)], verdicts.__setitem__).result(TRIAL_S)
    return verdicts.get(0)


_RETURNS: Final = "a grader: called with a GraderInput, or grade_batch with a list of them, it returns numbers"
_ACCEPTED: Final = (
    f"a function of {SIGNATURES}; an object with score_one(item), grade_batch(inputs) or score(context), a class of such "
    "objects, or a factory of one"
)


def _scores(found: object) -> bool:
    return any(callable(getattr(found, name, None)) for name in ("score_one", "grade_batch", "score"))


def _of_function(name: str, function: Callable[..., Any], options: Mapping[str, Any], where: str, key: str) -> Scorer:
    try:
        if options:
            refuse_unknown(function, options, f"{where}{key}")
        made: Bound = bound(function, options)
        return Scorer(
            name, made.call, scope=made.scope, place="thread", score_range=declared_range(function), made_from=function
        )
    except ValueError as error:  # a plain one for a callable of which Python knows no signature
        given = error.given if isinstance(error, OptionError) else str(error)
        raise PipelineError.one(where, given, f"a function of {SIGNATURES}") from error
