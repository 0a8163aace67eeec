"""Every built-in grader is built by name, with all problems reported at once."""

from __future__ import annotations

import importlib.util

import pytest
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify
from tfgrpo.stores.errors import PipelineError

NEEDED = {"category_match": {"allowed_categories": ["a"]}, "completion_length_cap": {"max_completion_tokens": 9}}
NAMES = {
    "category_match",
    "completion_length_cap",
    "json_conforms",
    "json_schema",
    "json_valid",
    "label_match",
    "latex_only",
    "math-verify",
    "math_exact",
    "math_verify",
    "number_match",
    "number_only",
    "reasoning_format",
    "xml_schema",
}


def problems(*arguments, **named) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        build_grader(*arguments, **named)
    return [str(problem) for problem in caught.value.problems]


def test_the_names_are_those_promised():
    assert set(BUILT_IN) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_builds_a_grader_that_answers_an_empty_batch(name):
    grader = build_grader(name, NEEDED.get(name))
    assert isinstance(grader, Grader)
    assert grader.grade_batch([]) == []


def test_an_unknown_name_lists_the_known_ones():
    assert problems("math_exakt", source="mix.yaml: datasets.a.graders") == [
        f"mix.yaml: datasets.a.graders: got 'math_exakt'; accepted: {', '.join(sorted(NAMES))}"
    ]


def test_every_option_that_is_wrong_unknown_or_missing_is_named():
    assert problems("category_match", {"require_answer": 1, "allowed": ["a"]}, source="s") == [
        "s: category_match: init_kwargs.allowed: got ['a']; accepted: only allowed_categories, require_answer",
        "s: category_match: init_kwargs.allowed_categories: got nothing; accepted: a value: this option has no default",
        "s: category_match: init_kwargs.require_answer: got 1; accepted: true or false",
    ]
    assert problems("math_exact", {"tolerance": 1}, source="s") == [
        "s: math_exact: init_kwargs.tolerance: got 1; accepted: no options"
    ]
    assert problems("xml_schema", {"reward_if_no_schema": float("inf"), "require_answer": None}, source="s") == [
        "s: xml_schema: init_kwargs.reward_if_no_schema: got inf; accepted: a finite number",
        "s: xml_schema: init_kwargs.require_answer: got None; accepted: true or false",
    ]


def test_a_missing_library_is_reported_when_the_grader_is_built(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = problems("math-verify", source="s")
    assert problem.startswith("s: math-verify: got no math-verify; accepted: ")
    assert problem.endswith('pip install "tfgrpo[math]"')
    assert BUILT_IN["math_verify"] is MathVerify
