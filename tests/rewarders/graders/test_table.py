"""Every built-in scorer of single attempts is built by name, in its place, with all problems reported at once."""

import pickle

import pytest

from tests.support.rewards.scoring import built
from tfgrpo.rewarders.graders import Grader
from tfgrpo.rewarders.registry import GRADERS, build_scorer
from tfgrpo.stores.errors import PipelineError

NEEDED = {
    "category_match": {"allowed_categories": ["a"]},
    "completion_length_cap": {"max_completion_tokens": 9},
    "regex": {"pattern": "a"},
    **{name: {"worst": 9} for name in ("cost", "latency", "tokens")},
}
ISOLATED = {"code_tests", "ifeval", "json_conforms", "math-verify", "math_verify", "similarity", "sql_result"}
"""Those whose time no bound holds for; the others are quick enough for the event loop."""
PROMISED = {
    "category_match", "completion_length_cap", "json_schema", "json_valid", "label_match", "latex_only", "math-verify",
    "math_exact", "math_verify", "number_match", "number_only", "reasoning_format", "xml_schema",
}  # fmt: skip
"""Names of the existing system, and of its library of mathematics."""


@pytest.mark.parametrize("name", GRADERS)
def test_every_name_builds_a_scorer_that_other_systems_can_call_as_a_grader(name):
    scorer = built(name, **NEEDED.get(name, {}))
    assert (scorer.rewarder_id, scorer.place) == (name, "process" if name in ISOLATED else "inline")
    assert pickle.loads(pickle.dumps(scorer.source)) == scorer.source
    grader = scorer.made_from
    assert isinstance(grader, Grader)
    assert grader.grade_batch([]) == []
    assert set(GRADERS) >= PROMISED


def test_every_option_that_is_wrong_unknown_or_missing_is_named():
    for name, options, *expected in (
        (
            "category_match",
            {"require_answer": 1, "allowed": ["a"]},
            "allowed: got ['a']; accepted: only allowed_categories, require_answer",
            "allowed_categories: got nothing; accepted: a value: this option has no default",
            "require_answer: got 1; accepted: true or false",
        ),
        ("math_exact", {"tolerance": 1}, "tolerance: got 1; accepted: no options"),
        (
            "json_schema",
            {"reward_if_no_schema": float("inf"), "rewarder_id": " "},
            "rewarder_id: got ' '; accepted: a name",
            "reward_if_no_schema: got inf; accepted: a finite number",
        ),
    ):
        with pytest.raises(PipelineError) as caught:
            build_scorer(name, options, source="s")
        found = [str(problem).removeprefix(f"s: {name}: options.") for problem in caught.value.problems]
        assert found == expected
