"""The relative scorer: rank, centred and z-score of totals within one group."""

from __future__ import annotations

import pytest

from tests.support.rewards.scoring import built, group, numbers
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import PipelineError, RewardError


def ranked(totals, variant="rank", attempts=3):
    prior = {f"r{index}": total for index, total in enumerate(totals) if total is not None}
    return built("relative", variant=variant).call(group(*"abc"[:attempts], prior_scores=prior))


def test_attempts_are_sorted_by_their_total_and_ties_are_ties():
    verdicts = ranked([0.5, 1.0, 0.5])
    assert numbers(verdicts) == [0.25, 1.0, 0.25]
    assert verdicts[0].evidence == "total 0.5: 1 of 3 better, 1 equal (rank)"


def test_each_variant_gives_its_own_scale():
    for variant, expected in (("rank", [0.0, 1.0]), ("centered", [-0.5, 0.5]), ("zscore", [-1.0, 1.0])):
        assert numbers(ranked([0.0, 1.0], variant, 2)) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("variant", "value"), [("rank", 0.5), ("centered", 0.0), ("zscore", 0.0)])
def test_a_flat_group_has_one_value_throughout(variant, value):
    assert numbers(ranked([0.1, 0.1, 0.1], variant)) == [value] * 3


@pytest.mark.parametrize("totals", [[], [1.0]])
def test_ranking_fewer_than_two_attempts_is_refused(totals):
    with pytest.raises(RewardError, match="at least two"):
        ranked(totals)


def test_an_attempt_without_a_total_is_not_ranked_as_if_it_had_none():
    verdicts = ranked([0.0, None, 1.0])
    assert isinstance(verdicts[1], Abstained)
    assert numbers(verdicts) == [0.0, None, 1.0]


def test_totals_that_are_no_numbers_are_refused():
    with pytest.raises(RewardError, match="finite"):
        ranked([float("nan"), 1.0])


def test_an_unknown_variant_is_refused():
    with pytest.raises(PipelineError, match="variant: got 'median'; accepted: rank, centered, zscore"):
        built("relative", variant="median")
