"""``math_verify`` asks the library in a worker process, whose clock of processor time ends what does not end by itself."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.support.rewards.scoring import answered, built, score, verdict, verdicts
from tests.support.vectors import rows_of
from tfgrpo.stores.errors import PipelineError

# Not imported to find out: each worker would import sympy, for two seconds. All tests that do are in one.
pytestmark = [
    pytest.mark.skipif(find_spec("math_verify") is None, reason="math-verify is not installed"),
    pytest.mark.xdist_group("math-verify"),
]


@pytest.mark.parametrize(
    ("answer", "gold", "expected"), rows_of("math_verify", "a_formula_counts_half_and_the_right_one_counts_full")
)
def test_a_formula_counts_half_and_the_right_one_counts_full(answer, gold, expected):
    assert score("math_verify", answered(answer), {"answer": gold}) == expected


@pytest.mark.parametrize("error", [MemoryError(), RecursionError()])
def test_a_formula_that_takes_too_much_is_not_graded(monkeypatch, error):
    def parse(*_, **__):
        raise error

    monkeypatch.setattr("math_verify.parse", parse)
    found = verdict("math_verify", answered("$5$"), {"answer": "$5$"})
    assert found.reason == f"too much work or memory for one formula ({type(error).__name__})"
    assert not found.broke


def test_a_formula_without_end_costs_its_own_attempt_by_processor_time():
    # Less than it takes to load the library, which is no time of an attempt.
    scorer = replace(built("math_verify"), cpu_s=0.5)
    outputs = ["$5$", "$9^{9^9}$", r"$\frac{10}{2}$", "$6$"]
    first, endless, *others = verdicts(scorer, *map(answered, outputs), answer="$5$")
    assert [each.score for each in (first, *others)] == [1.0, 1.0, 0.5]
    assert (endless.reason, endless.late) == ("no score within 0.5 s of processor time", True)


def test_gt_asks_it_about_formulas_that_are_written_differently():
    outputs = [r"Answer: $\frac{x}{2}$", r"Answer: $0.5 x$", r"Answer: $x$"]
    found = verdicts("gt", *outputs, answer=r"$\frac{x}{2}$")
    assert [each.score for each in found] == [1.0, 1.0, 0.0]


def test_a_missing_library_is_reported_when_the_scorer_is_built(monkeypatch):
    monkeypatch.setattr("tfgrpo.rewarders.options.find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"math-verify: got no math-verify; accepted: .*tfgrpo\[math\]"):
        built("math-verify")
