"""Calibration: known answers, sums over groups, and None without evidence."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.judges import FakeJudge, judged, material
from tests.support.rewards.scoring import totalled
from tfgrpo.rewarders.judge.calibration import (
    RankCalibration,
    calibrate_group,
    judged_paths,
    rank_agreement,
    scores_by_path,
    swap_agreement,
    transitivity,
    true_path,
    vote_agreement,
)
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.outcomes import RewardScore

SCORES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=0, max_size=8)


@pytest.mark.parametrize(
    ("truth", "judged", "agreement", "tau"),
    [
        ([1, 2, 3], [1, 2, 3], 1.0, 1.0),
        ([1, 2, 3], [3, 2, 1], 0.0, -1.0),
        ([1, 2, 3], [1, 3, 2], 2 / 3, 1 / 3),
        ([0, 1], [5, 5], 0.5, None),
        ([1, 1], [0, 1], None, None),
        ([1], [1], None, None),
        ([], [], None, None),
        ([1, 2, 2, 4, 5], [1, 2, 3, 3, 5], 8.5 / 9, 8 / 9),
        ([1, 1, 2, 2], [1, 2, 2, 3], 3.5 / 4, 3 / (4 * 5) ** 0.5),
    ],
)
def test_agreement_and_tau_have_known_values(truth, judged, agreement, tau):
    found = rank_agreement(truth, judged)
    assert found.agreement == (None if agreement is None else pytest.approx(agreement))
    assert found.tau == (None if tau is None else pytest.approx(tau))


@given(SCORES)
def test_tau_is_antisymmetric_bounded_and_counts_every_pair(pairs):
    truth, judged = [a for a, _ in pairs], [b for _, b in pairs]
    found = rank_agreement(truth, judged)
    turned = rank_agreement(truth, [-value for value in judged])
    counts = (found.concordant, found.discordant, found.tied_by_judge, found.tied_in_truth, found.tied_in_both)
    assert sum(counts) == len(pairs) * (len(pairs) - 1) // 2
    if found.tau is not None:
        assert -1.0 <= found.tau <= 1.0
        assert turned.tau == pytest.approx(-found.tau)
        assert rank_agreement(judged, truth).tau == pytest.approx(found.tau)
    if found.agreement is not None:
        assert turned.agreement == pytest.approx(1.0 - found.agreement)


@given(SCORES, st.floats(0.1, 10))
def test_agreement_looks_at_order_alone(pairs, factor):
    truth, judged = [a for a, _ in pairs], [b for _, b in pairs]
    assert rank_agreement(truth, [factor * value + 3 for value in judged]) == rank_agreement(truth, judged)


@given(SCORES)
def test_a_judge_that_is_the_truth_agrees_with_it(pairs):
    found = rank_agreement([a for a, _ in pairs], [a for a, _ in pairs])
    assert found.agreement in (None, 1.0)
    assert found.tau in (None, 1.0)


@given(st.lists(SCORES, max_size=4))
def test_counts_of_groups_add_up_in_any_order(groups):
    parts = [rank_agreement([a for a, _ in pairs], [b for _, b in pairs]) for pairs in groups]
    assert sum(parts, RankCalibration()) == sum(reversed(parts), RankCalibration())


def test_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 true scores and 1"):
        rank_agreement([1, 2], [1])


def test_swaps_have_known_values():
    found = swap_agreement([("first", "first"), ("first", "second"), ("tie", "tie"), ("second", "tie")])
    assert (found.swaps, found.consistent, found.first_favoured) == (4, 2, 1)
    assert found.swap_consistency == 0.5
    assert swap_agreement([]).swap_consistency is None


@pytest.mark.parametrize(
    ("margins", "triples", "intransitive"),
    [
        ({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 1}, 1, 0),
        ({("a", "b"): 1, ("b", "c"): 1, ("c", "a"): 1}, 1, 1),
        ({("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 0}, 1, 1),
        ({("a", "b"): 1, ("b", "c"): 0, ("a", "c"): 0}, 0, 0),
        ({("a", "b"): 0, ("b", "c"): 0, ("a", "c"): 0}, 0, 0),
        ({("a", "b"): 1, ("b", "c"): 1}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_triples_that_no_order_explains_are_counted(margins, triples, intransitive):
    found = transitivity(margins)
    assert (found.triples, found.intransitive) == (triples, intransitive)
    assert found.intransitive_share == (intransitive / triples if triples else None)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=6))
def test_preferences_by_a_score_are_always_transitive(values):
    names = [str(place) for place in range(len(values))]
    margins = {(names[a], names[b]): float(values[a] - values[b]) for a, b in combinations(range(len(values)), 2)}
    assert transitivity(margins).intransitive == 0


def test_votes_have_known_values():
    found = vote_agreement([[0.5], [0.2, 0.4], [0.0, 0.5, 1.0], []])
    assert found.voted == 2
    assert found.vote_difference == pytest.approx((0.2 + (0.5 + 0.5 + 1.0) / 3) / 2)
    assert vote_agreement([[1.0]]).vote_difference is None


def test_as_json_has_none_without_evidence():
    empty = RankCalibration().as_json()
    assert {name for name, value in empty.items() if value is None} == {
        "agreement", "tau", "swap_consistency", "intransitive_share", "vote_difference",
    }  # fmt: skip


def weighted(name, weight=1.0, **options):
    return Weighted(build_scorer(name, options), weight)


MIXED = {"parts": [{"name": "judge"}, {"name": "gt"}]}
PURE = {"parts": [{"name": "judge"}]}


@pytest.mark.parametrize(
    ("scorers", "judged", "true"),
    [
        ([weighted("gt"), weighted("relative", 0.0)], (), "gt"),
        ([weighted("gt"), weighted("judge"), weighted("relative", 0.0)], ("judge",), "gt"),
        ([weighted("gt", 0.0), weighted("judge"), weighted("relative", 0.0)], ("judge", "relative"), "gt"),
        ([weighted("composite", **MIXED), weighted("relative", 0.0)], ("composite/judge",), "composite/gt"),
        ([weighted("composite", **PURE)], ("composite", "composite/judge"), None),
        ([weighted("judge"), weighted("composite", **MIXED)], ("judge", "composite/judge"), "composite/gt"),
        ([weighted("gt"), weighted("composite", **MIXED)], ("composite/judge",), "gt"),
    ],
)
def test_only_opinions_are_held_against_the_truth(scorers, judged, true):
    assert judged_paths(scorers) == judged
    assert true_path(scorers) == true


def opinion(question):
    shown = material(question)
    if "output" in shown:
        return {"reason": "", "score": {"Answer: 42": 0.9, "Answer: 41": 0.4, "Answer: 40": 1}[shown["output"]]}
    return {"reason": "", "better": "first" if shown["first"] > shown["second"] else "second"}


async def test_a_group_is_calibrated_from_what_was_recorded():
    scorers = [weighted("composite", **PURE), weighted("gt", 0.0), weighted("relative", 0.0, judge={})]
    context = judged(["Answer: 42", "Answer: 41", "Answer: 40"], FakeJudge(opinion))
    given = await totalled(context, *scorers)
    attempts = {
        attempt.rollout_id: scores_by_path([score for score in verdicts if isinstance(score, RewardScore)])
        for attempt, verdicts in zip(context.outputs, given.verdicts, strict=True)
    }
    found = calibrate_group(attempts, "composite/judge", "gt")
    assert (found.attempts, found.abstained) == (3, 0)
    assert (found.concordant, found.discordant, found.tied_in_truth) == (1, 1, 1)
    compared = calibrate_group(attempts, "relative", "gt")
    assert (compared.swap_consistency, compared.swaps, compared.triples) == (1.0, 3, 1)
    assert compared.agreement == 1.0
    assert calibrate_group(attempts, "relative", None).agreement is None


def test_abstentions_and_details_of_other_rewarders_are_left_alone():
    foreign = RewardScore("mine", 1.0, "", {"votes": "all", "parts": 3})
    attempts = {"r0": scores_by_path([foreign]), "r1": scores_by_path([])}
    found = calibrate_group(attempts, "mine", "gt")
    assert (found.attempts, found.abstained, found.voted) == (2, 1, 0)


def test_comparisons_without_an_answer_in_each_order_are_not_counted():
    told = {
        "by": "comparison",
        "comparisons": [
            {"with": "r1", "votes": [{"forward": "first", "backward": None}]},
            {"with": "r2", "votes": [{"forward": "tie", "backward": "tie"}]},
        ],
    }
    found = calibrate_group({"r0": {"relative": RewardScore("relative", 1.0, "", told)}}, "relative", None)
    assert (found.swaps, found.consistent) == (1, 1)
