"""The ground-truth rewarder: exact, normalised and numeric comparison."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.rewards.scoring import built, verdict
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import PipelineError


def judge(output: str, answer: str, **options):
    return verdict("gt", output, {"prompt": "p", "answer": answer}, **options)


def score(output: str, answer: str, **options) -> float:
    return judge(output, answer, **options).score


def test_evidence_is_one_line_that_names_both_values():
    assert judge("Answer: 1,081", "1080", match="numeric").evidence == ("numeric: answered '1,081' (1081) ≠ reference '1080'")
    assert judge("no\nidea", "1/3", match="numeric").evidence == ("numeric: answered 'idea' (no number) ≠ reference '1/3'")
    long = judge("x" * 10_000, "Paris", match="normalized").evidence
    assert len(long) < 250
    assert "'Paris'" in long


def test_a_runaway_output_is_read_from_its_end():
    assert score("9 " * 1_000_000 + "\nAnswer: 42", "42", match="numeric") == 1.0


def test_a_long_run_of_one_thing_is_read_in_time():
    for run in ("\n", " ", "\n ", "```\n", "1 h ", "a and ", "1 - ", "_"):
        for answer in ("Paris is nice", "2 h 5 min", "a, b and c", "x^2"):
            began = time.process_time()
            judge("a" + run * (10_000 // len(run)) + "b", answer)
            assert time.process_time() - began < 0.4, (run, answer)


def test_long_runs_in_a_field_and_before_a_question_are_read_in_time():
    began = time.process_time()
    record = {"prompt": "What is the total?", "answer": "42"}
    verdict("gt", "Total: 5" + "*" * 45_000 + "x", record, match="label", labels=["42"])
    verdict("gt", "42 kg", {"prompt": "\n" * 45_000 + "What is it", "answer": "42"})
    assert time.process_time() - began < 3.0


def test_unusable_options_are_refused():
    for name, value in (("match", "fuzzy"), *(("tolerance", each) for each in (-1, float("nan"), True, "0.1"))):
        with pytest.raises(PipelineError, match=f"{name}: got .*; accepted"):
            built("gt", **{name: value})
    for options, accepted in (({"match": "exact", "tolerance": 0.1}, "0"), ({"match": "text", "labels": ["a"]}, "none")):
        with pytest.raises(PipelineError, match=f"accepted: {accepted}, because match is '{options['match']}'"):
            built("gt", **options)


integers = st.integers(-(10**12), 10**12)


@given(integers, st.sampled_from([",", "_", "\u00a0", "\u202f", "'", " "]), st.sampled_from(["-", "\u2212", "\uff0d"]))
def test_separators_and_signs_never_change_a_value(value, separator, minus):
    written = f"{value:,}".replace(",", separator).replace("-", minus)
    assert score(f"So it is {written}.", str(value), match="numeric") == 1.0
    assert score(f"Answer: {written} apples", str(value), match="numeric") == 1.0
    assert score(f"Answer: {written}", str(value + 1), match="numeric") == 0.0


@given(st.text(max_size=200), st.text(max_size=40), st.sampled_from(["exact", "normalized", "numeric"]))
def test_any_text_is_judged_the_same_twice_and_never_raises(output, answer, match):
    first = judge(output, answer, match=match)
    assert first == judge(output, answer, match=match)
    assert isinstance(first, Abstained) or ("\n" not in first.evidence and first.score in (0.0, 1.0))


@given(st.text(alphabet="0123456789+-*/^.,%= \\{}$eE()x\u2212\u00bd\n", max_size=60))
@example("0\n=1")
def test_any_mixture_of_signs_and_digits_agrees_with_itself(text):
    verdict = judge(text, text, match="numeric")
    assert isinstance(verdict, Abstained) or verdict.score == 1.0
