"""``math_verify`` asks the library in a worker process, whose clock of processor time ends what does not end by itself."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.support.rewards.scoring import answered, built, score, verdict, verdicts
from tests.support.vectors import rows_of

# Not imported to find out: each worker would import sympy, for two seconds. All tests that do are in one.
pytestmark = [
    pytest.mark.skipif(find_spec("math_verify") is None, reason="math-verify is not installed"),
    pytest.mark.xdist_group("math-verify"),
]


def test_a_formula_counts_half_and_the_right_one_counts_full():
    for answer, gold, expected in rows_of("math_verify", "a_formula_counts_half_and_the_right_one_counts_full"):
        assert score("math_verify", answered(answer), {"answer": gold}) == expected, (answer, gold)


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
    outputs = ["$5$", "$6$", "$9^{9^9}$"]  # the last one: a process for what comes behind it would load the library again
    right, wrong, endless = verdicts(scorer, *map(answered, outputs), answer="$5$")
    assert (right.score, wrong.score) == (1.0, 0.5)
    assert (endless.reason, endless.late) == ("no score within 0.5 s of processor time", True)


def test_gt_asks_it_about_formulas_that_are_written_differently():
    gt = built("gt")
    assert (gt.place, gt.second.place) == ("inline", "process")
    outputs = [r"Answer: $\frac{x}{2}$", r"Answer: $0.5 x$", r"Answer: $x$"]
    found = verdicts(replace(gt, second=replace(gt.second, place="thread")), *outputs, answer=r"$\frac{x}{2}$")
    assert [each.score for each in found] == [1.0, 1.0, 0.0]
