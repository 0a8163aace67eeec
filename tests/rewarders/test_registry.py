"""Rewarders by name: the closed table, and any Python callable or class."""

from __future__ import annotations

import functools
import pickle
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tfgrpo.rewarders.callable import adapt
from tfgrpo.rewarders.scoring import Weighted, score_group, total_range

from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.registry import ALIASES, build_scorer, known_scorers
from tfgrpo.rewarders.relative import RelativeRewarder
from tfgrpo.rewarders.scorer import Abstained, Rewarder
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import OptionError, PipelineError
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.outcomes import RewardScore


@pytest.fixture(autouse=True)
def _examples_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support" / "rewards"))
    yield
    sys.modules.pop("rewarder_examples", None)


def example(name: str, **options) -> Rewarder:
    return build_scorer(f"rewarder_examples:{name}", options)


def scores(rewarder, context):
    return [verdict.score for verdict in rewarder.score(context)]


def test_built_in_rewarders_are_found_by_name():
    assert {"composite", "gt", "judge", "math_exact", "relative", "remote"} <= set(known_scorers())
    assert list(known_scorers()) == sorted(known_scorers())
    assert build_scorer("gt", {"match": "numeric", "tolerance": 0.1}) == GroundTruth("numeric", 0.1)
    assert build_scorer("relative", {"variant": "zscore"}) == RelativeRewarder("zscore")
    assert build_scorer("gt", {"rewarder_id": "gt-strict"}).rewarder_id == "gt-strict"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PipelineError, match=r"got 'nope'; accepted: category_match, .*, gt, .* or module:attr"):
        build_scorer("nope")


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("exact_match", "exact (did you mean that?), or category_match, "),
        ("ExactMatch", "exact (did you mean that?)"),
        ("exact-mach", "exact (did you mean that?)"),
        ("accuracy", "gt (did you mean that?)"),
        ("llm_judge", "judge (did you mean that?)"),
        ("Judge", "judge (did you mean that?)"),
        ("multiple choice", "choice (did you mean that?)"),
        ("footprint", "powl_footprint (did you mean that?)"),
        ("numbr_match", "number_match (did you mean that?)"),
        ("bleu", "module:attr or path/to/file.py:attr for a Python function or class: no built-in rewarder does that"),
        ("ROUGE-L", "similarity with metric: rouge_l (did you mean that?)"),
        ("contains", "includes (did you mean that?)"),
        ("regexp", "regex (did you mean that?)"),
        ("token_f1", "f1 (did you mean that?)"),
        ("powl", "powl_footprint (did you mean that?)"),
        ("something", "category_match, "),
    ],
)
def test_a_name_from_elsewhere_is_answered_with_the_one_that_fits(name, accepted):
    with pytest.raises(PipelineError) as caught:
        build_scorer(name)
    (problem,) = caught.value.problems
    assert (problem.source, problem.given) == ("rewarders: name", repr(name))
    assert problem.accepted.startswith(accepted)


def test_every_name_that_is_proposed_can_be_built_or_asks_for_its_options():
    for phrase in set(ALIASES.values()):
        name, _, option = phrase.partition(" with ")
        assert name in known_scorers()
        if option:
            assert build_scorer(name, dict([option.split(": ")]))
    assert not set(ALIASES) & set(known_scorers())


def test_every_unknown_option_is_named_at_once():
    with pytest.raises(PipelineError) as caught:
        build_scorer("gt", {"matching": "exact", "tol": 1}, source="my.yaml")
    assert [problem.source for problem in caught.value.problems] == [
        "my.yaml: gt: options.matching",
        "my.yaml: gt: options.tol",
    ]
    assert "only match, tolerance, decimal, labels, rewarder_id" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [("gt", {"match": "fuzzy"}), ("relative", {"variant": "median"}), ("rewarder_examples:Length", {"scale": 0})],
)
def test_a_value_that_an_option_does_not_accept_is_a_configuration_error(name, options):
    with pytest.raises(PipelineError, match=name):
        build_scorer(name, options)


@pytest.mark.parametrize("name", ["composite", "gt", "judge", "number_match", "powl_valid", "relative", "remote"])
def test_a_number_as_the_name_of_an_option_is_an_unknown_option(name):
    with pytest.raises(PipelineError, match=f"{name}: options(.1: got |: got 1, a)"):
        build_scorer(name, {1: 2, "a": 3})


def test_numbers_as_names_are_reported_in_the_options_of_members_and_judges():
    member = {"name": "judge", "options": {1: 2}}
    with pytest.raises(PipelineError, match=r"parts.0: judge: options.1: got 2") as caught:
        build_scorer("composite", {"parts": [member, {"name": "relative", "options": {"judge": {1: 2}}}]})
    assert "parts.1: relative: options.judge.1: got 2" in str(caught.value)


@pytest.mark.parametrize("name", ["gt", "powl_equal", "powl_valid"])
def test_the_id_of_a_built_in_rewarder_is_text(name):
    with pytest.raises(PipelineError, match=f"{name}: options.rewarder_id: got 7; accepted: a name"):
        build_scorer(name, {"rewarder_id": 7})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("latex_only", {"rewarder_id": b"x"}),
        ("judge", {"model": b"x"}),
        ("category_match", {"allowed_categories": b"x"}),
        ("remote", {"url": b"http://h"}),
    ],
)
def test_bytes_are_no_text(name, options):
    with pytest.raises(PipelineError, match=f"options.{next(iter(options))}: got"):
        build_scorer(name, options)


def test_a_plain_function_of_output_and_answer_scores_each_attempt(make_context):
    rewarder = example("same")
    assert rewarder.rewarder_id == "rewarder_examples:same"
    assert scores(rewarder, make_context(["42", "41"])) == [1.0, 0.0]


def test_a_plain_function_of_the_context_scores_the_group(make_context):
    assert scores(example("lengths"), make_context(["a", "bcd"])) == [1.0, 3.0]
    said = example("verdicts").score(make_context(["a", "b"]))
    assert said[0].evidence == "fine"
    assert said[1] == Abstained("rewarder_examples:verdicts", "no")


def test_options_reach_the_parameters_that_have_a_default(make_context):
    assert scores(example("at_least", least=2, most=3), make_context(["a", "bc", "defg"])) == [0.0, 1.0, 0.0]
    with pytest.raises(PipelineError, match=r"options: got answer; accepted: the options of at_least\(.*least.*most"):
        example("at_least", answer="42")


def test_a_class_is_built_with_its_options(make_context):
    assert scores(example("Length", scale=3.0), make_context(["ab"])) == [6.0]
    assert scores(example("instance"), make_context(["ab"])) == [4.0]
    assert scores(example("Loose", a=1, b=2), make_context(["ab"])) == [2.0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("missing", {}),
        ("three", {}),
        ("number", {}),
        ("number", {"a": 1}),
        ("instance", {"scale": 1}),
        ("Anonymous", {}),
        ("Inert", {}),
        ("Length", {"unit": "cm"}),
    ],
)
def test_what_is_no_rewarder_is_refused_before_anything_runs(name, options):
    with pytest.raises(PipelineError, match=f"rewarder_examples:{name}"):
        example(name, **options)


def test_a_module_that_cannot_be_imported_is_a_configuration_error(tmp_path, monkeypatch):
    (tmp_path / "broken_rewarder.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("broken_rewarder:score", "no_such_module_here:score", "rewarder_examples:", ":x"):
        with pytest.raises(PipelineError, match="module:attr that can be imported"):
            build_scorer(name)


def test_a_function_that_raises_on_one_output_loses_only_that_one(make_context):
    said = example("picky").score(make_context(["ok", "boom", "skip"]))
    assert said[0].score == 1.0
    assert said[1] == Abstained("rewarder_examples:picky", "raised ValueError: cannot read this", broke=True)
    assert said[2] == Abstained("rewarder_examples:picky", "returned None")


@pytest.mark.parametrize(
    ("name", "reason"), [("picky", "cannot read this"), ("sends_text", "expected"), ("returns_one", "expected")]
)
async def test_a_function_that_scores_no_output_is_broken(make_context, name, reason):
    with RewarderThreads() as threads:
        said = await score_group([Weighted(example(name))], make_context(["boom", "boom"]), threads)
    assert reason in said.faults[f"rewarder_examples:{name}"]


@pytest.mark.parametrize(
    "function",
    [
        lambda output: 1.0,
        lambda text, /: 1.0,
        lambda completions: [1.0],
        lambda predictions, references: [1.0],
        lambda *context: [1.0],
        lambda *outputs, **more: 1.0,
        lambda: 1.0,
        lambda a, b: 1.0,
        lambda x, /: 1.0,
        lambda output, answer, weight: 1.0,
        lambda state, target: 1.0,
        lambda answer: 1.0,
        lambda question, answer: 1.0,
        lambda answer, solution: 1.0,
        lambda gold: 1.0,
        lambda gold, label: 1.0,
        lambda pred, output, gold: 1.0,
        lambda _, answer: 1.0,
    ],
)
def test_a_function_of_another_signature_is_refused_where_it_is_adapted(function):
    with pytest.raises(ValueError, match=r"accepted: \(output, answer\), or \(context\) with that name"):
        adapt("mine", function)


BY_NAME = {
    "output and answer": lambda output, answer: (output, answer),
    "swapped": lambda answer, output: (output, answer),
    "dspy": lambda gold, pred, trace=None: (pred, gold),
    "dspy in full": lambda example, prediction, trace, pred_name, pred_trace: (prediction, example),
    "dspy attributes": lambda gold, pred, trace=None: (pred.answer, gold.answer),
    "dspy keys": lambda gold, pred: (pred["response"], gold["label"]),
    "verl": lambda data_source, solution_str, ground_truth, extra_info=None: (solution_str, ground_truth),
    "verl, swapped": lambda ground_truth, solution_str: (solution_str, ground_truth),
    "trl": lambda completion, ground_truth, **columns: (completion, columns["answer"]),
    "verifiers": lambda prompt, completion, answer, info, **more: (completion, answer),
    "autoevals": lambda input, output, expected: (output, expected),  # noqa: A006
    "reference first": lambda reference, prediction: (prediction, reference),
    "expected first": lambda expected, actual: (actual, expected),
    "sklearn": lambda y_true, y_pred: (y_pred, y_true),
    "the answer is the output": lambda answer, reference: (answer, reference),
    "the solution is the output": lambda ground_truth, solution: (solution, ground_truth),
    "the solution is the reference": lambda solution, completion: (completion, solution),
    "keywords": lambda *, gold, response: (response, gold),
    "positions": lambda target, text, /: (text, target),
    "positions without names": lambda a, b, /: (a, b),
    "camel case": lambda groundTruth, modelOutput: (modelOutput, groundTruth),  # noqa: N803
    "optional": lambda output, gold=None: (output, gold),
    "columns": lambda completion, **columns: (completion, columns["answer"]),
    "optional, with an option of a known name": lambda output, answer=None, target=3, label="x": (output, answer),
    "unused": lambda output, answer, _, _metadata: (output, answer),
    "item": lambda item, output: (output, item.answer),
    "metadata": lambda output, metadata: (output, metadata["gold"]),
}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", BY_NAME)
async def test_arguments_are_bound_by_the_names_of_the_parameters(make_context, name, later):
    function, seen = BY_NAME[name], []

    @functools.wraps(function)
    def plain(*args, **kwargs):
        seen.append(function(*args, **kwargs))
        return 1.0

    @functools.wraps(function)
    async def awaited(*args, **kwargs):
        return plain(*args, **kwargs)

    context = replace(make_context(["the output"], answer="the reference"), metadata={"gold": "the reference"})
    said = adapt("mine", awaited if later else plain).score(context)
    assert [verdict.score for verdict in (await said if later else said)] == [1.0]
    assert seen == [("the output", "the reference")]


def test_prompt_metadata_context_and_columns_are_bound_by_name_too(make_context):
    seen = {}

    def everything(question, output, metadata, context, item, extra_info=None, data_source="none", **columns):
        seen.update(locals())
        return 1

    own = {"unit": "km", "title": "T", "extra_info": {"index": 3}}
    context = replace(make_context(["42"]), metadata=own)
    assert scores(adapt("mine", everything), context) == [1.0]
    assert (seen["question"], seen["metadata"], seen["context"]) == ("prompt", own, context)
    assert (seen["extra_info"], seen["data_source"]) == ({"index": 3}, "none")
    assert seen["columns"] == {"unit": "km", "title": "T", "prompt": "prompt", "answer": "42"}
    item = seen["item"]
    assert (item.id, item.prompt, item.input, item.answer, item.target) == ("q1", "prompt", "prompt", "42", "42")
    assert (item.unit, item.title, item["title"], item.get("size", 1)) == ("km", "T", "T", 1)
    with pytest.raises(AttributeError, match="no 'size'; there are answer, extra_info, id, metadata, title, unit"):
        item.size  # noqa: B018
    with pytest.raises(KeyError):
        item["size"]
    assert (item[0], item.upper(), pickle.loads(pickle.dumps(item)).unit) == ("p", "PROMPT", "km")
    source = []
    adapt("mine", lambda data_source, output: source.append(data_source) or 1).score(context)
    assert source == ["items"]


def test_an_attribute_that_a_prediction_does_not_have_costs_the_attempt_with_its_name(make_context):
    (said,) = adapt("mine", lambda gold, pred: gold.answer == pred.intent).score(make_context(["42"]))
    assert said == Abstained("mine", "raised AttributeError: no 'intent'; there are answer", broke=True)


class Scored:
    def __init__(self, score, feedback):
        self.score, self.feedback = score, feedback


@pytest.mark.parametrize(
    ("value", "score", "evidence", "details"),
    [
        (True, 1.0, "mine returned True", None),
        (Decimal("0.5"), 0.5, "mine returned 0.5", None),
        (Fraction(1, 2), 0.5, "mine returned 1/2", None),
        (np.float32(0.5), 0.5, "mine returned 0.5", None),
        (np.int64(1), 1.0, "mine returned 1", None),
        (np.bool_(True), 1.0, "mine returned True", None),
        (np.array(0.5), 0.5, "mine returned 0.5", None),
        ({"score": 0.5}, 0.5, "mine returned 0.5", None),
        ({"reward": np.float64(0.5)}, 0.5, "mine returned 0.5", None),
        ({"score": True, "reward": 1, "acc": True}, 1.0, "mine returned True", {"acc": True}),
        ({"score": 0.5, "reason": "no\nunit"}, 0.5, "no unit", {"reason": "no\nunit"}),
        ({"score": 1, "parts": [1, {"a": np.nan}], "n": np.int64(3), "x": object(), 7: 1}, 1.0, "mine returned 1", {"n": 3}),
        (Scored(0.5, "no unit"), 0.5, "no unit", {"feedback": "no unit"}),
    ],
)  # fmt: skip
def test_every_form_of_a_score_is_read_and_what_is_beside_it_kept(make_context, value, score, evidence, details):
    (said,) = adapt("mine", lambda output, answer: value).score(make_context(["42"]))
    assert said == RewardScore("mine", score, evidence, None if details is None else FrozenDict(details))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"score": None, "reason": "?"}, "returned None"),
        ({"score": "high"}, "returned str, expected a number, a bool, None or a dict with a score"),
        ({"score": 1, "reward": 0}, "returned ['reward', 'score'], expected one score"),
        ({"accuracy": 1}, "returned ['accuracy'], expected one score"),
        ({}, "returned [], expected one score"),
        ([0.5], "returned list, expected a number, a bool, None or a dict with a score"),
        (np.array([0.5]), "returned ndarray, expected a number, a bool, None or a dict with a score"),
    ],
)
def test_a_result_without_one_score_costs_its_attempt(make_context, value, reason):
    (said,) = adapt("mine", lambda output, answer: value).score(make_context(["42"]))
    assert (said.rewarder_id, said.reason) == ("mine", reason)


def test_options_fill_parameters_with_unknown_names(tmp_path, make_context):
    file = tmp_path / "own.py"
    file.write_text("def near(pred, gold, within):\n    return abs(float(pred) - float(gold)) <= within\n")
    assert scores(build_scorer(f"{file}:near", {"within": 1}), make_context(["43", "44"])) == [1.0, 0.0]
    for options in ({}, {"gold": "1", "within": 1}, {"size": 1}):
        with pytest.raises(PipelineError, match="near"):
            build_scorer(f"{file}:near", options)


def test_a_function_that_yields_is_refused_where_it_is_adapted():
    def yields(output, answer):
        yield 1.0

    async def yields_later(context):
        yield 1.0

    def one_for_each_attempt(context):
        yield from [1.0] * len(context.outputs)

    for function in (yields, yields_later):
        with pytest.raises(ValueError, match="a function that yields"):
            adapt("mine", function)
    assert adapt("mine", one_for_each_attempt).by_context


@pytest.mark.parametrize("name", ["builtins:int", "builtins:max"])
def test_a_callable_without_a_signature_is_refused(name):
    with pytest.raises(PipelineError, match=name):
        build_scorer(name)


@pytest.mark.parametrize("name", ["gt", "relative", "operator:eq"])
def test_rewarders_can_travel_to_another_process(name, make_context):
    rewarder = build_scorer(name)
    copy = pickle.loads(pickle.dumps(rewarder))
    context = make_context(["42", "41"], prior={"r0": 1.0, "r1": 0.0})
    assert scores(copy, context) == scores(rewarder, context) == [1.0, 0.0]


def test_a_function_of_anything_is_refused_because_its_meaning_is_unknown():
    with pytest.raises(PipelineError):
        example("catch_all")


@pytest.mark.parametrize(
    ("raised", "given", "accepted"),
    [
        ("ValueError('a is 1; accepted: 2')", "ValueError: a is 1; accepted: 2", "values that Own takes"),
        ("OptionError('a is 1', '2')", "a is 1", "2"),
        ("SystemExit(3)", "SystemExit: 3", "values that Own takes"),
    ],
)
def test_the_text_of_a_plain_value_error_is_not_split(tmp_path, raised, given, accepted):
    file = tmp_path / "own.py"
    file.write_text(
        "from tfgrpo.stores.errors import OptionError\n\nclass Own:\n    rewarder_id = 'own'\n"
        f"    def __init__(self):\n        raise {raised}\n    def score(self, context):\n        return []\n"
    )
    with pytest.raises(PipelineError) as caught:
        build_scorer(f"{file}:Own")
    (problem,) = caught.value.problems
    assert (problem.given, problem.accepted) == (given, accepted)


def test_the_range_that_a_function_declares_is_the_range_of_its_reward():
    def stars(output, answer):
        return 4

    async def later(context):
        return [4]

    stars.score_range = (1, 5)
    assert total_range([Weighted(adapt("stars", stars))]) == (1.0, 5.0)
    assert total_range([Weighted(adapt("later", later))]) == (0.0, 1.0)
    later.score_range = (5, 1)
    with pytest.raises(OptionError, match="score_range"):
        total_range([Weighted(adapt("later", later))])
