"""Graders of the user's own: by import, by file, by alias; everything wrong is one error that names the place."""

from __future__ import annotations

import asyncio
import importlib
import sys
import textwrap

import pytest
from tfgrpo.rewarders.graders.loading import as_grader, load_python_grader
from tfgrpo.rewarders.graders.running import GraderRunner

from tfgrpo.rewarders.graders.base import FunctionGrader, GraderInput
from tfgrpo.rewarders.graders.builtin.formats import CompletionLengthCap
from tfgrpo.stores.errors import PipelineError

ITEM = GraderInput.of("d:0", {"answer": "42"}, "<think>r</think>42")

KINDS = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import ClassVar
    from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput, grader

    class Plain:
        def __init__(self, reward=0.5):
            if reward < 0:
                raise ValueError("reward below 0")
            self.reward = reward
        def grade_batch(self, inputs):
            return [GradeResult(i.sample_id, self.reward, i.completion_index) for i in inputs]

    class Later(Grader):
        async def grade_batch(self, inputs):
            return [GradeResult(i.sample_id, 0.5, i.completion_index) for i in inputs]

    @dataclass
    class Data:
        weights: dict[str, float] | None = None
        kind: ClassVar[str] = "data"
        def grade_batch(self, inputs):
            return [0.5 for _ in inputs]

    class Outer:
        Inner = Plain

    instance = Plain()

    def factory(reward=0.5):
        return Plain(reward)

    def loose_factory(**options):
        return Plain(**options)

    def score(item):
        return 0.5

    def scaled(item, scale=1.0):
        return 0.25 * scale

    async def later_score(item):
        return 0.5

    @grader
    def decorated(item: GraderInput) -> float:
        return 0.5

    number = 7

    class NoGrader:
        pass

    def makes_none():
        return None

    async def makes_later():
        return Plain()

    def leaves():
        raise SystemExit(2)

    def strict(*, reward):
        from tfgrpo.stores.errors import PipelineError, Problem
        raise PipelineError([Problem("reward", repr(reward), "a reward"), Problem("scale", "nothing", "a scale")])
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
def folder(tmp_path):
    write(tmp_path / "my_kinds.py", KINDS)
    return tmp_path


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))


def load(folder, *, name="mine", **spec):
    return load_python_grader(spec, name=name, folder=folder, source="rl.yaml: python_graders.mine")


def problems(folder, **spec) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        load(folder, **spec)
    return [str(problem) for problem in caught.value.problems]


def reward(grader) -> float:
    with GraderRunner() as runner:
        (grade,) = asyncio.run(runner.grade("mine", grader, [ITEM]))
    assert isinstance(grade, float), grade
    return grade


@pytest.mark.parametrize(
    ("attr", "options"),
    [
        ("Plain", {}),
        ("Plain", {"reward": 0.5}),
        ("Later", {}),
        ("Data", {"weights": {"a": 1.0}}),
        ("Outer.Inner", {}),
        ("instance", {}),
        ("factory", {}),
        ("factory", {"reward": 0.5}),
        ("loose_factory", {"reward": 0.5}),
        ("score", {}),
        ("scaled", {"scale": 2.0}),
        ("later_score", {}),
        ("decorated", {}),
    ],
)
@pytest.mark.parametrize("key", ["path", "import"])
def test_objects_classes_factories_and_functions_are_graders(folder, monkeypatch, key, attr, options):
    monkeypatch.syspath_prepend(str(folder))
    text = f"my_kinds.py:{attr}" if key == "path" else f"my_kinds:{attr}"
    assert reward(load(folder, **{key: text}, init_kwargs=options)) == 0.5
    if not options:
        assert reward(load(folder, **{key: text})) == 0.5
        assert reward(load(folder, **{key: text}, init_kwargs=None)) == 0.5


@pytest.mark.parametrize("alias", ["completion_length_cap", "math-verify", "latex_only", "category_match"])
def test_the_known_aliases_are_built_in(folder, alias):
    options = {"completion_length_cap": {"max_completion_tokens": 5}, "category_match": {"allowed_categories": ["a"]}}
    if alias == "math-verify":
        pytest.importorskip("math_verify")
    built = load(folder, builtin=alias, init_kwargs=options.get(alias, {}))
    if alias == "completion_length_cap":
        assert built == CompletionLengthCap(5)


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
    assert reward(load(tmp_path, path="graders/mine.py:score")) == 0.75


def test_a_sibling_never_takes_the_place_of_an_installed_module(tmp_path):
    write(tmp_path / "statistics.py", "raise RuntimeError('the wrong one')\n")
    write(tmp_path / "mine.py", "import statistics\ndef score(item):\n    return statistics.mean([0, 1])\n")
    assert reward(load(tmp_path, path="mine.py:score")) == 0.5


def test_a_sibling_of_another_graders_name_is_refused_and_not_mixed_up(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name / "my_helper.py", f"NAME = {name!r}\n")
        write(tmp_path / name / "mine.py", "from my_helper import NAME\ndef score(item):\n    return 1.0\n")
    load(tmp_path, path="one/mine.py:score")
    assert reward(load(tmp_path, path="one/mine.py:score", name="again")) == 1.0
    (problem,) = problems(tmp_path, path="two/mine.py:score")
    assert "an import of my_helper, found in" in problem
    assert "one" in problem


def test_each_entry_has_a_module_of_its_own_and_the_file_as_it_is_now(tmp_path):
    write(tmp_path / "mine.py", "calls = []\ndef score(item):\n    calls.append(1)\n    return len(calls)\n")
    first, second = load(tmp_path, path="mine.py:score"), load(tmp_path, path="mine.py:score", name="other one")
    assert [reward(first), reward(first), reward(second)] == [1.0, 2.0, 1.0]
    write(tmp_path / "mine.py", "def score(item):\n    return 0.125\n")
    assert reward(load(tmp_path, path="mine.py:score")) == 0.125


def test_an_absolute_path_stays_what_it_is(folder, tmp_path_factory):
    assert reward(load(tmp_path_factory.mktemp("elsewhere"), path=f"{folder / 'my_kinds.py'}:score")) == 0.5


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
@pytest.mark.parametrize("key", ["path", "import"])
def test_a_file_for_the_existing_system_loads_where_that_is_absent(tmp_path, monkeypatch, key, imports, module):
    write(tmp_path / "my_base.py", "from kolibrify.rl_dataserver.graders import *\n")
    write(tmp_path / "my_theirs.py", THEIRS.format(imports=imports, module=module))
    monkeypatch.syspath_prepend(str(tmp_path))
    path = list(sys.meta_path)
    loaded = load(tmp_path, **{key: "my_theirs.py:Mine" if key == "path" else "my_theirs:Mine"})
    assert reward(loaded) == 0.5
    assert sys.meta_path == path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kolibrify")


@pytest.mark.parametrize(
    "line", ["from kolibrify.rl_dataserver.graders import MathExactGrader", "import kolibrify.rl.rewards"]
)
def test_a_file_that_needs_more_of_the_existing_system_is_told_what_there_is(tmp_path, monkeypatch, line):
    write(tmp_path / "my_theirs.py", f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for spec in ({"path": "my_theirs.py:Mine"}, {"import": "my_theirs:Mine"}):
        (problem,) = problems(tmp_path, **spec)
        assert (
            "it is not installed; accepted: from tfgrpo.rewarders.graders import Grader, GradeResult, GraderInput"
            in problem
        )


def test_a_file_for_the_existing_system_works_where_that_is_installed(tmp_path):
    write(tmp_path / "site" / "kolibrify" / "__init__.py", "")
    write(tmp_path / "site" / "kolibrify" / "rl_dataserver" / "__init__.py", "")
    write(
        tmp_path / "site" / "kolibrify" / "rl_dataserver" / "graders.py",
        """
        from dataclasses import dataclass
        class Grader: pass
        @dataclass
        class GradeResult:
            sample_id: str
            reward: float
            completion_index: int | None = None
        """,
    )
    write(
        tmp_path / "theirs.py",
        """
        from kolibrify.rl_dataserver.graders import Grader, GradeResult
        class Mine(Grader):
            async def grade_batch(self, inputs):
                return [GradeResult(i.sample_id, 0.5, i.completion_index) for i in inputs]
        """,
    )
    sys.path.append(str(tmp_path / "site"))
    try:
        assert reward(load(tmp_path, path="theirs.py:Mine")) == 0.5
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kolibrify"]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "mine: got none of them; accepted: exactly one of import, path, builtin"),
        ({"path": "a.py:b", "builtin": "latex_only"}, "got path and builtin; accepted: exactly one of"),
        ({"path": "", "import": None}, "got none of them"),
        (
            {"path": "my_kinds.py:score", "kwargs": {}},
            "mine.kwargs: got an unknown key; accepted: import, path, builtin",
        ),
        ({"path": "my_kinds.py:score", "init_kwargs": [1]}, "mine.init_kwargs: got a list; accepted: options by name"),
        (
            {"path": "my_kinds.py:score", "init_kwargs": {1: 1}},
            "mine.init_kwargs: got a dict; accepted: options by name",
        ),
        ({"path": "my_kinds.py"}, "mine.path: got 'my_kinds.py'; accepted: file.py:attr"),
        ({"path": 7}, "mine.path: got 7; accepted: file.py:attr"),
        ({"import": "my_kinds"}, "mine.import: got 'my_kinds'; accepted: module:attr"),
        (
            {"path": "missing.py:x"},
            "mine.path: got 'missing.py', which is no file; accepted: file.py:attr, with the file",
        ),
        ({"path": ".:x"}, "which is no file"),
        ({"path": "notes.txt:x"}, "mine.path: got 'notes.txt'; accepted: a file that Python can import"),
        ({"path": "my_kinds.py:missing"}, "'missing', which my_kinds.py does not have; accepted: "),
        ({"path": "my_broken.py:x"}, "mine.path: got SyntaxError: "),
        ({"path": "my_leaves.py:x"}, "mine.path: got SystemExit: 3; accepted: a file that can be run: my_leaves.py"),
        ({"import": "no_such_module_here:x"}, "mine.import: got ModuleNotFoundError: No module named"),
        ({"builtin": "nope"}, "mine.builtin: got 'nope'; accepted: category_match, "),
        ({"builtin": ["latex_only"]}, "mine.builtin: got ['latex_only']; accepted: category_match"),
        ({"builtin": "category_match"}, "category_match: init_kwargs.allowed_categories: got nothing"),
        ({"path": "my_kinds.py:number"}, "my_kinds.py:number: got a int; accepted: an object with grade_batch(inputs)"),
        ({"path": "my_kinds.py:NoGrader"}, "got something that makes a NoGrader; accepted: an object with grade_batch"),
        ({"path": "my_kinds.py:makes_none"}, "got something that makes nothing; accepted: an object with"),
        ({"path": "my_kinds.py:makes_later"}, "got something that makes a coroutine; accepted: an object with"),
        (
            {"path": "my_kinds.py:Plain", "init_kwargs": {"worth": 1}},
            "init_kwargs: got worth; accepted: the options of Plain(",
        ),
        ({"path": "my_kinds.py:Plain", "init_kwargs": {"reward": -1}}, "init_kwargs: got ValueError: reward below 0"),
        ({"path": "my_kinds.py:leaves"}, "got SystemExit: 2; accepted: values that leaves takes"),
        (
            {"path": "my_kinds.py:instance", "init_kwargs": {"reward": 1}},
            "got reward; accepted: no options: it is an object",
        ),
        ({"path": "my_kinds.py:decorated", "init_kwargs": {"reward": 1}}, "accepted: no options: it is an object"),
        (
            {"path": "my_kinds.py:score", "init_kwargs": {"scale": 1}},
            "init_kwargs: got scale; accepted: the options of score(",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder, spec, said):
    write(folder / "my_broken.py", "def\n")
    write(folder / "my_leaves.py", "raise SystemExit(3)\n")
    write(folder / "notes.txt", "x = 1\n")
    before = set(sys.modules)
    found = problems(folder, **spec)
    assert any(said in problem for problem in found), found
    assert all(problem.startswith("rl.yaml: python_graders.mine") for problem in found)
    broken = {"my_broken.py:x", "my_leaves.py:x"}
    assert spec.get("path") not in broken or not {name for name in set(sys.modules) - before if "tfgrpo_file" in name}


def test_everything_wrong_with_an_entry_is_said_at_once(folder):
    assert len(problems(folder, path="missing.py:x", kwargs={}, init_kwargs=3)) == 3
    assert len(problems(folder, path="my_kinds.py:strict", init_kwargs={"reward": 1})) == 2


def test_a_callable_that_tells_nothing_of_its_arguments_is_called():
    with pytest.raises(PipelineError, match="something that makes a dict"):
        as_grader(dict, {"a": 1}, "here")
    with pytest.raises(PipelineError, match=r"here: got TypeError: .*; accepted: values that max takes"):
        as_grader(max, {}, "here", "")


def test_a_function_can_still_be_called_after_loading(folder):
    loaded = load(folder, path="my_kinds.py:score")
    assert isinstance(loaded, FunctionGrader)
    assert loaded(ITEM) == 0.5
    assert asyncio.run(load(folder, path="my_kinds.py:later_score")(ITEM)) == 0.5


@pytest.mark.parametrize("attr", ["loud.py:Thing", "late.py:Thing"])
def test_what_a_users_code_raises_is_told_in_one_line_that_ends(tmp_path, attr):
    (tmp_path / "loud.py").write_text("raise ValueError('one\\ntwo' * 400)\n", encoding="utf-8")
    (tmp_path / "late.py").write_text(
        "class Thing:\n    def __init__(self):\n        raise ValueError('one\\ntwo' * 400)\n", encoding="utf-8"
    )
    with pytest.raises(PipelineError) as caught:
        load_python_grader({"path": attr}, name="x", folder=tmp_path, source="mix")
    (problem,) = caught.value.problems
    assert problem.given.startswith("ValueError: one twoone two")
    assert len(str(problem).splitlines()) == 1
    assert len(problem.given) < 320
