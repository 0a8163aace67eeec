"""The relative rewarder: rank, centred and z-score within one group."""

from __future__ import annotations

import pytest

from tfgrpo.rewarders.base import Abstained
from tfgrpo.rewarders.relative import RelativeRewarder
from tfgrpo.stores.errors import PipelineError, RewardError


def scores(context, variant="rank"):
    return [verdict.score for verdict in RelativeRewarder(variant).score(context)]


def test_attempts_are_sorted_by_their_total_and_ties_are_ties(make_context):
    context = make_context(["a", "b", "c"], prior={"r0": 0.5, "r1": 1.0, "r2": 0.5})
    assert scores(context) == [0.25, 1.0, 0.25]


def test_each_variant_gives_its_own_scale(make_context):
    context = make_context(["a", "b"], prior={"r0": 0.0, "r1": 1.0})
    assert scores(context, "rank") == [0.0, 1.0]
    assert scores(context, "centered") == [-0.5, 0.5]
    assert scores(context, "zscore") == pytest.approx([-1.0, 1.0], abs=1e-7)


@pytest.mark.parametrize(("variant", "value"), [("rank", 0.5), ("centered", 0.0), ("zscore", 0.0)])
def test_a_flat_group_has_one_value_throughout(make_context, variant, value):
    context = make_context(["a", "b", "c"], prior={"r0": 0.1, "r1": 0.1, "r2": 0.1})
    assert scores(context, variant) == [value] * 3


@pytest.mark.parametrize("prior", [{}, {"r0": 1.0}])
def test_ranking_fewer_than_two_attempts_is_refused(make_context, prior):
    with pytest.raises(RewardError, match="at least two"):
        RelativeRewarder().score(make_context(["a", "b"], prior=prior))


def test_an_attempt_without_a_total_is_not_ranked_as_if_it_had_none(make_context):
    verdicts = RelativeRewarder().score(make_context(["a", "b", "c"], prior={"r0": 0.0, "r2": 1.0}))
    assert isinstance(verdicts[1], Abstained)
    assert [verdicts[0].score, verdicts[2].score] == [0.0, 1.0]


def test_evidence_counts_the_better_attempts(make_context):
    verdicts = RelativeRewarder().score(make_context(["a", "b", "c"], prior={"r0": 0.5, "r1": 1.0, "r2": 0.5}))
    assert verdicts[0].evidence == "total 0.5: 1 of 3 better, 1 equal (rank)"


def test_totals_that_are_no_numbers_are_refused(make_context):
    with pytest.raises(RewardError, match="finite"):
        RelativeRewarder().score(make_context(["a", "b"], prior={"r0": float("nan"), "r1": 1.0}))


def test_an_unknown_variant_is_refused():
    with pytest.raises(PipelineError, match="variant: got 'median'; accepted: rank, centered, zscore"):
        RelativeRewarder("median")
