"""No text makes a built-in grader raise or slow; only an unusable record may raise."""

from __future__ import annotations

import json
import math
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader

from tfgrpo.rewarders.graders.base import GraderInput, metadata
from tfgrpo.rewarders.graders.builtin.json_conforms import validator_of
from tfgrpo.stores.errors import RewardError

OPTIONS = {
    "category_match": {"allowed_categories": ["alpha", "42"]},
    "completion_length_cap": {"max_completion_tokens": 9},
}
GRADERS = {name: build_grader(name, OPTIONS.get(name)) for name in BUILT_IN if "verify" not in name}
TAGGED = "<think>r</think>\n"
any_text = st.text(st.characters(exclude_categories=()), max_size=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)
schemas = st.dictionaries(
    st.sampled_from(["required", "allow_additional_properties", "root_tag", "x"]), json_values, max_size=3
)
records = json_values | st.fixed_dictionaries(
    {},
    optional={
        "answer": json_values,
        "expected_category": json_values,
        "metadata": json_values
        | st.fixed_dictionaries(
            {"schema": schemas.map(json.dumps) | json_values, "expected_json_schema": schemas | json_values}
        ),
    },
)
completions = st.builds(
    "".join,
    st.lists(
        any_text
        | st.sampled_from(
            ["<think>", "</think>", "```json\n", "```", "{'a': 1}", "<answer/>", "42", "\\q", '{"a":', "Answer: "]
        ),
        max_size=5,
    ),
)


def graded(name, item):
    """Score; 0.0 for the failures that there may be: of the reference, and of the schema."""
    try:
        return GRADERS[name].score_one(item)
    except RewardError:
        if name in ("number_match", "label_match"):  # a reference that is no number, or an answer with two readings
            return 0.0
        if name == "json_conforms":
            with pytest.raises(ValueError):  # noqa: PT011 - of any kind
                validator_of(metadata(item, "schema"))
            return 0.0
        required = json.loads(item.record["metadata"]["schema"])["required"]
        assert name == "json_schema"
        assert any(isinstance(each, list | dict) for each in required)
        return 0.0


@given(completions, records, st.none() | st.integers())
def test_any_text_and_record_score_from_0_to_1_without_an_error(completion, record, tokens):
    for each in (completion, f"{TAGGED}{completion}"):
        item = GraderInput.of("s:0", record, each, completion_tokens=tokens)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of literals in the text; the score is the same
            rewards = {name: graded(name, item) for name in GRADERS}
        assert {name: value for name, value in rewards.items() if not isinstance(value, float)} == {}
        assert all(0.0 <= value <= 1.0 for value in rewards.values()), rewards


UNITS = [
    "<",
    "`",
    "[",
    "{",
    "1",
    "1,",
    "0.",
    "9/9 ",
    "```\n",
    "```json\n[",
    "-",
    "\\",
    "\\q",
    '"',
    "$",
    "\\boxed{",
    "<a>",
    "&a;",
    "<!--",
    "<think>",
    "</think>",
    "\\frac{",
    "{1:",
    "1+",
    "a",
    " ",
]
RECORD = {
    "answer": "1",
    "metadata": {
        "schema": json.dumps({"required": ["answer"], "root_tag": "a"}),
        "expected_json_schema": {"required": ["a"]},
    },
}


@pytest.mark.parametrize("unit", UNITS)
def test_a_runaway_completion_costs_time_in_proportion(unit):
    body = (unit * 100_000)[:100_000]
    for completion in (body, f"{TAGGED}{body}", f"{TAGGED}{{{body}"):
        item = GraderInput.of("s:0", RECORD, completion, completion_tokens=3)
        for name, grader in GRADERS.items():
            began = time.process_time()
            assert math.isfinite(grader.score_one(item))
            assert time.process_time() - began < 1.5, (name, unit)
