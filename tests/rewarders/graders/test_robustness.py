"""No text makes a built-in scorer fail or slow: each scores from 0 to 1, or says why the item has no score."""

import json
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.scoring import built
from tfgrpo.rewarders.calling import perform
from tfgrpo.rewarders.registry import GRADERS
from tfgrpo.rewarders.scorer import GraderInput
from tfgrpo.stores.outcomes import RewardScore

OPTIONS = {
    "category_match": {"allowed_categories": ["alpha", "42"]},
    "completion_length_cap": {"max_completion_tokens": 9},
    "regex": {"pattern": "[0-9]+"},
    **{name: {"worst": 9} for name in ("cost", "latency", "tokens")},
}
SCORERS = {
    name: built(name, **OPTIONS.get(name, {}))
    for name in ("gt", *GRADERS)
    if "verify" not in name and name not in ("code_tests", "sql_result")
}
MAY_ABSTAIN = {
    "choice", "exact", "em", "f1", "gt", "ifeval", "includes", "json_conforms", "json_schema", "label_match", "number_match",
    "cost", "latency", "regex", "similarity", "tokens", "tool_calls",
}  # fmt: skip
"""Those that need something of the record, or find two readings."""
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
    found = perform(SCORERS[name], [item])
    return found[0] if isinstance(found, tuple) else found


@given(completions, records, st.none() | st.integers())
def test_any_text_and_record_score_from_0_to_1_or_have_no_score(completion, record, tokens):
    for each in (completion, f"{TAGGED}{completion}"):
        item = GraderInput.of("s:0", record, each, completion_tokens=tokens)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of literals in the text; the score is the same
            found = {name: graded(name, item) for name in SCORERS}
        scores = {name: verdict.score for name, verdict in found.items() if isinstance(verdict, RewardScore)}
        assert all(0.0 <= value <= 1.0 for value in scores.values()), scores
        assert set(found) - set(scores) <= MAY_ABSTAIN
        assert [verdict for name, verdict in found.items() if name not in scores and verdict.broke] == []


UNITS = [*'<`[-"', "1,", "9/9 ", "```json\n[", "\\q", "\\boxed{", "<a>", "&a;", "<think>", "{1:", "the answer is so "]
WITHIN = [
    ("(", "a", ""),
    ("```", "a", ""),
    ("4", "a", "8°"),
    ("1", " ", "x"),
    ("{\n", " ", "x"),
    ("so ", "91,", "."),
    ("", "May 91, ", ""),
]
"""What comes before a unit, the unit, and what comes behind its last one."""
RECORD = {
    "answer": "1",
    "metadata": {"schema": json.dumps({"required": ["answer"], "root_tag": "a"}), "expected_json_schema": {"required": ["a"]}},
}


@pytest.mark.parametrize(("before", "unit", "behind"), [*(("", unit, "") for unit in UNITS), *WITHIN])
def test_a_runaway_completion_costs_time_in_proportion(before, unit, behind):
    body = f"{before}{(unit * 12_000)[:12_000]}{behind}"
    for completion in (body, f"{TAGGED}{{{body[:5_000]}"):
        item = GraderInput.of("s:0", RECORD, completion, completion_tokens=3)
        for name in set(SCORERS) - {"similarity"}:  # quadratic as its measures are, and so in a process with a clock
            began = time.process_time()
            assert not getattr(graded(name, item), "broke", False)
            assert time.process_time() - began < 0.4, (name, unit)
