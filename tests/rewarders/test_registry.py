"""Scorers by name: the closed table, and any Python callable, class or object, its parameters bound by their names."""

import functools
import importlib
import pickle
import sys
import textwrap
from dataclasses import replace

import pytest

from tests.support.rewards.scoring import built, scores, verdicts
from tests.support.vectors import rows_of
from tfgrpo.rewarders.composite import total_range
from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.importing import handed_over
from tfgrpo.rewarders.judge.judge import RelativeRewarder
from tfgrpo.rewarders.registry import build_scorer, known_scorers
from tfgrpo.rewarders.runner import refuse_no_scorer
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.errors import PipelineError


def test_built_in_rewarders_are_found_by_name():
    assert {"composite", "gt", "judge", "math_exact", "relative", "remote"} <= set(known_scorers())
    assert list(known_scorers()) == sorted(known_scorers())
    assert built("gt", match="numeric", tolerance=0.1).made_from == GroundTruth("numeric", 0.1)
    assert built("relative", variant="zscore").made_from == RelativeRewarder("zscore")
    assert built("gt", rewarder_id="gt-strict").rewarder_id == "gt-strict"


def test_a_name_from_elsewhere_is_answered_with_the_one_that_fits():
    for name, accepted in rows_of("registry", "a_name_from_elsewhere_is_answered_with_the_one_that_fits"):
        (problem,) = problems(name)
        assert problem.startswith(f"p.yaml: name: got {name!r}; accepted: {accepted}")


KINDS = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import ClassVar
    from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput
    from tfgrpo.rewarders.scorer import Abstained
    from tfgrpo.stores.errors import OptionError, PipelineError, Problem
    from tfgrpo.stores.outcomes import RewardScore

    class Plain:
        def __init__(self, reward=0.5):
            if reward < 0:
                raise ValueError("reward below 0; accepted: more")
            self.reward = reward
        def grade_batch(self, inputs):
            return [GradeResult(i.sample_id, self.reward, i.completion_index) for i in inputs]

    class Later(Grader):
        async def grade_batch(self, inputs):
            return [GradeResult(i.sample_id, 0.5, i.completion_index) for i in inputs]

    class Single:
        def score_one(self, item):
            return 0.5

    @dataclass
    class Data:
        weights: dict[str, float] | None = None
        kind: ClassVar[str] = "data"
        def grade_batch(self, inputs):
            return [0.5 for _ in inputs]

    class Outer:
        Inner = Plain

    class Group:
        rewarder_id = "group"
        def __init__(self, worth=0.5):
            self.worth = worth
        def score(self, context):
            return [RewardScore("group", self.worth, "seen") for _ in context.outputs]

    class Called:
        def __init__(self, **options):
            self.options = options
        def __call__(self, output, answer):
            return self.options.get("reward", 0.5)

    class CalledLater:
        async def __call__(self, output, answer): return 0.5

    class NoScorer: pass

    class Anonymous:
        def score(self, context): return []

    class Ranged:
        score_range = (1, 0)
        def score_one(self, item): return 1.0

    class Refuses:
        def __init__(self): raise OptionError("a is 1", "2")

    def strict(*, reward):
        raise PipelineError([Problem("reward", repr(reward), "a reward"), Problem("scale", "nothing", "a scale")])

    def factory(reward=0.5): return Plain(reward)
    def loose_factory(**options): return Plain(**options)
    def score(item): return 0.5
    def scaled(item, scale): return 0.25 * scale
    def same(output, answer, least=1, *, most=100): return 0.5 if least <= len(output) <= most else 0.0
    async def later_score(item): return 0.5
    def lengths(context): return [len(each.output) / 4 for each in context.outputs]
    async def later_lengths(context): return lengths(context)
    def makes_none(): return None
    async def makes_later(): return Plain()
    def leaves(): raise SystemExit(2)
    def yields(output, answer): yield 1.0
    async def yields_later(context): yield 1.0
    def words(output): return "good"
    def columns(gold, pred): return gold.unit == pred.answer

    instance, group_instance, number = Plain(), Group(), 7
"""


@pytest.fixture(autouse=True)
def _as_before():
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("tfgrpo_file_", "my_")):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path / "my_kinds.py", KINDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))


def called(scorer, *outputs):
    """Return the scores, called in this process."""
    return scores(replace(scorer, place="thread") if scorer.place == "process" else scorer, *(outputs or ("ab",)))


def problems(name, options=None, **more) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        build_scorer(name, options, source="p.yaml", **more)
    return [str(problem) for problem in caught.value.problems]


OBJECTS = [
    ("Plain", {}), ("Plain", {"reward": 0.5}), ("Later", {}), ("Single", {}), ("Data", {"weights": {"a": 1.0}}),
    ("Outer.Inner", {}), ("Group", {}), ("Group", {"worth": 0.5}), ("Called", {}), ("Called", {"reward": 0.5}),
    ("CalledLater", {}), ("instance", {}), ("group_instance", {}), ("factory", {}), ("factory", {"reward": 0.5}),
    ("loose_factory", {"reward": 0.5}), ("score", {}), ("scaled", {"scale": 2.0}), ("same", {}),
    ("same", {"least": 2, "most": 3}), ("later_score", {}), ("lengths", {}), ("later_lengths", {}),
]  # fmt: skip


@pytest.mark.parametrize("module", ["my_kinds.py", "my_kinds", "./my_kinds.py"])
def test_objects_classes_factories_and_functions_are_scorers(folder, module):
    for attr, options in OBJECTS if module == "my_kinds.py" else OBJECTS[:1]:
        scorer = built(f"{module}:{attr}", **options)
        own = {"Group": "group", "group_instance": "group"}.get(attr, f"{module}:{attr}")
        assert (scorer.rewarder_id, called(scorer)) == (own, [0.5]), (attr, options)
        named = built(f"{module}:{attr}", rewarder_id="mine", **options)
        (verdict,) = verdicts(replace(named, place="thread"), "ab")
        assert (named.rewarder_id, verdict.rewarder_id) == ("mine", "mine"), (attr, options)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        *rows_of("registry", "what_cannot_be_a_scorer_is_refused_with_its_place"),
        ("my_loud.py:x", {}, f"got ValueError: {'one two' * 42}one tw…; accepted"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_scorer_is_refused_with_its_place(folder, name, options, expected):
    write(folder / "my_broken.py", "def\n")
    write(folder / "my_leaves.py", "raise SystemExit(3)\n")
    write(folder / "my_loud.py", "raise ValueError('one\\ntwo' * 400)\n")
    write(folder / "notes.txt", "x = 1\n")
    before = set(sys.modules)
    (problem,) = problems(name, options)
    assert expected in problem
    assert problem.startswith(f"p.yaml: {name}")
    assert len(problem.splitlines()) == 1
    if name.startswith(("my_broken", "my_leaves", "my_loud")):
        assert not {each for each in set(sys.modules) - before if each.startswith(("tfgrpo_file", "my_"))}


def test_a_user_s_scorer_is_tried_before_a_run(folder):
    refuse_no_scorer(built("my_kinds.py:columns"), "rewarders.0")  # which the made-up item does not have
    with pytest.raises(PipelineError, match=r"rewarders\.0: got the reward 'good' is no number"):
        refuse_no_scorer(built("my_kinds.py:words"), "rewarders.0")


def test_ranges_are_declared_by_objects_and_functions():
    def stars(output, answer):
        return 4

    stars.score_range = (1, 5)
    with handed_over() as name_of:
        assert total_range([Weighted(built(name_of(stars)))]) == (1.0, 5.0)
        assert total_range([Weighted(built(name_of(lambda output: 1)))]) == (0.0, 1.0)
        stars.score_range = (5, 1)
        with pytest.raises(PipelineError, match="score_range is"):
            built(name_of(stars))


def test_a_file_may_import_its_siblings_early_and_late(tmp_path):
    write(tmp_path / "graders" / "my_words.py", "WORTH = 0.5\n")
    write(tmp_path / "graders" / "my_package" / "__init__.py", "WORTH = 0.25\n")
    write(
        tmp_path / "graders" / "mine.py",
        """
        from my_words import WORTH
        def score(item):
            import my_package
            return WORTH + my_package.WORTH
        """,
    )
    scorer = build_scorer("graders/mine.py:score", folder=tmp_path, entry="mine")
    assert (scorer.rewarder_id, scores(scorer, "a")) == ("mine", [0.75])


def test_a_sibling_of_another_scorers_name_is_refused_and_not_mixed_up(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "my_helper.py", f"NAME = {name!r}\n")
        write(tmp_path / name / "mine.py", "from my_helper import NAME\ndef score(item):\n    return 1.0\n")
        write(tmp_path / name / "late.py", "def score(item):\n    import os, my_helper as mine\n    return 1.0\n")
    assert called(build_scorer("one/mine.py:score", folder=tmp_path, entry="a")) == [1.0]
    assert called(build_scorer("one/mine.py:score", folder=tmp_path, entry="b")) == [1.0]
    for file in ("mine", "late"):
        (problem,) = problems(f"two/{file}.py:score", folder=tmp_path)
        assert "an import of my_helper, found in" in problem
    write(tmp_path / "two" / "own.py", "from json import loads as my_helper\ndef score(item):\n    return my_helper('1.0')\n")
    assert called(build_scorer("two/own.py:score", folder=tmp_path, entry="a")) == [1.0]


def test_each_entry_of_a_mix_has_a_module_of_its_own_and_the_file_as_it_is_now(tmp_path):
    def score(entry):
        return called(build_scorer("mine.py:score", folder=tmp_path, entry=entry))

    write(tmp_path / "mine.py", "calls = []\ndef score(item):\n    calls.append(1)\n    return len(calls)\n")
    first = build_scorer("mine.py:score", folder=tmp_path, entry="first")
    assert [called(first), called(first), score("second")] == [[1.0], [2.0], [1.0]]
    write(tmp_path / "mine.py", "def score(item):\n    return 0.125\n")
    assert score("first") == [0.125]


THEIRS = """
    {imports}

    class Mine({module}Grader):
        def __init__(self, worth: float = 0.25) -> None:
            super().__init__()
            self.worth = worth

        async def grade_batch(self, inputs: "list[{module}GraderInput]") -> "list[{module}GradeResult]":
            assert all(isinstance(each, {module}GraderInput) for each in inputs)
            results = [
                {module}GradeResult(sample_id=each.sample_id, reward=self.worth, completion_index=each.completion_index)
                for each in inputs
            ]
            for result in results:
                result.reward *= 2
            return results
"""


@pytest.mark.parametrize(
    ("imports", "module"),
    [
        ("from kolibrify.rl_dataserver.graders import Grader, GradeResult, GraderInput", ""),
        ("from kolibrify.rl_dataserver import graders", "graders."),
        ("import kolibrify.rl_dataserver.graders", "kolibrify.rl_dataserver.graders."),
        ("from my_base import Grader, GradeResult, GraderInput", ""),
    ],
)
def test_a_file_for_the_existing_system_loads_where_that_is_absent(tmp_path, monkeypatch, imports, module):
    write(tmp_path / "my_base.py", "from kolibrify.rl_dataserver.graders import *\n")
    write(tmp_path / "my_theirs.py", THEIRS.format(imports=imports, module=module))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("my_theirs.py:Mine", "my_theirs:Mine"):
        scorer = build_scorer(name, folder=tmp_path)
        assert called(scorer) == [0.5]
    if "my_base" in imports:
        assert scores(scorer, "a", "b") == [0.5, 0.5]  # in a worker process
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kolibrify")


def test_a_file_that_needs_more_of_the_existing_system_is_answered_with_what_there_is(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = "it is not installed; accepted: from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput"
    for line in ("from kolibrify.rl_dataserver.graders import MathExactGrader", "import kolibrify.rl.rewards"):
        write(tmp_path / "my_theirs.py", f"{line}\n")
        for name in ("my_theirs.py:Mine", "my_theirs:Mine"):
            assert expected in problems(name, folder=tmp_path)[0]


def test_a_file_for_the_existing_system_works_where_that_is_installed(tmp_path):
    package = tmp_path / "site" / "kolibrify" / "rl_dataserver"
    write(package.parent / "__init__.py", "")
    write(package / "__init__.py", "")
    write(package / "graders.py", "class Grader:\n    worth = 0.5\n")
    theirs = "from kolibrify.rl_dataserver.graders import Grader\nclass Mine(Grader):\n"
    write(tmp_path / "theirs.py", theirs + "    def score_one(self, item):\n        return self.worth\n")
    sys.path.append(str(tmp_path / "site"))
    try:
        assert called(build_scorer("theirs.py:Mine", folder=tmp_path)) == [0.5]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kolibrify"]:
            del sys.modules[name]


def test_a_function_of_another_signature_is_refused():
    for parameters in (
        "predictions, references", "*context", "*outputs, **more", "a, b", "question", "state, target", "answer",
        "question, answer", "answer, solution", "pred, output, gold", "_, answer",
    ):  # fmt: skip
        function = eval(f"lambda {parameters}: 1.0")
        with handed_over() as name_of, pytest.raises(PipelineError, match=r"accepted: a function of \(output, answer\)"):
            built(name_of(function))


BY_NAME = {
    "output and answer": lambda output, answer: (output, answer),
    "swapped": lambda answer, output: (output, answer),
    "dspy": lambda gold, pred, trace=None: (pred, gold),
    "dspy attributes": lambda gold, pred, trace=None: (pred.answer, gold.answer),
    "dspy keys": lambda gold, pred: (pred["response"], gold["label"]),
    "verl": lambda data_source, solution_str, ground_truth, extra_info=None: (solution_str, ground_truth),
    "verl, swapped": lambda ground_truth, solution_str: (solution_str, ground_truth),
    "trl": lambda completion, ground_truth, **columns: (completion, columns["answer"]),
    "verifiers": lambda prompt, completion, answer, info, **more: (completion, answer),
    "autoevals": lambda input, output, expected: (output, expected),  # noqa: A006
    "the answer is the output": lambda answer, reference: (answer, reference),
    "the solution is the reference": lambda solution, completion: (completion, solution),
    "keywords": lambda *, gold, response: (response, gold),
    "positions": lambda target, text, /: (text, target),
    "positions without names": lambda a, b, /: (a, b),
    "camel case": lambda groundTruth, modelOutput: (modelOutput, groundTruth),  # noqa: N803
    "optional": lambda output, gold=None: (output, gold),
    "optional, with an option of a known name": lambda output, answer=None, target=3, label="x": (output, answer),
    "unused": lambda output, answer, _, _metadata: (output, answer),
    "item": lambda item, output: (output, item.answer),
    "metadata": lambda output, metadata: (output, metadata["gold"]),
}


@pytest.mark.parametrize(("name", "later"), [*((name, False) for name in BY_NAME), ("trl", True), ("positions", True)])
def test_arguments_are_bound_by_the_names_of_the_parameters(name, later):
    function, seen = BY_NAME[name], []

    @functools.wraps(function)
    def plain(*args, **kwargs):
        seen.append(function(*args, **kwargs))
        return 1.0

    @functools.wraps(function)
    async def awaited(*args, **kwargs):
        return plain(*args, **kwargs)

    with handed_over() as name_of:
        scorer = built(name_of(awaited if later else plain))
        assert scores(scorer, "the output", answer="the reference", metadata={"gold": "the reference"}) == [1.0]
    assert seen == [("the output", "the reference")]


def test_prompt_metadata_and_columns_are_bound_by_name_too():
    seen = {}

    def everything(question, output, metadata, item, extra_info=None, data_source="none", level=None, **columns):
        seen.update(locals())
        return 1

    own = {"unit": "km", "title": "T", "extra_info": {"index": 3}, "data_source": "gsm8k", "level": 3}
    with handed_over() as name_of:
        assert scores(built(name_of(everything), title="mine"), "42", prompt="How?", metadata=own) == [1.0]
        assert (seen["question"], seen["metadata"], seen["extra_info"]) == ("How?", own, {"index": 3})
        assert (seen["data_source"], seen["level"]) == ("none", 3)  # another default than None is an option
        assert seen["columns"] == {"unit": "km", "title": "mine", "prompt": "How?", "answer": "42"}
        item = seen["item"]
        assert (item.id, item.prompt, item.input, item.answer, item.target) == ("q1", "How?", "How?", "42", "42")
        assert (item.unit, item.title, item["title"], item.get("size", 1)) == ("km", "T", "T", 1)
        with pytest.raises(AttributeError, match=r"no 'size'; there are answer, .*unit"):
            item.size  # noqa: B018
        with pytest.raises(KeyError):
            item["size"]
        assert (item[0], item.upper(), pickle.loads(pickle.dumps(item)).unit) == ("H", "HOW?", "km")
        sources = []
        scores(built(name_of(lambda data_source, output: sources.append(data_source) or 1)), "42", metadata=own)
        assert sources == ["gsm8k"]


def test_options_fill_parameters_with_unknown_names(folder):
    write(folder / "own.py", "def near(pred, gold, within):\n    return abs(float(pred) - float(gold)) <= within\n")
    assert called(built("own.py:near", within=1), "43", "44") == [1.0, 0.0]
    for options in ({}, {"gold": "1", "within": 1}, {"size": 1}):
        (problem,) = problems("own.py:near", options)
        assert "near" in problem
