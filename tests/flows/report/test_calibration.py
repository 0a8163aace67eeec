"""Calibration of judges: known answers, and what is compared with the truth."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents.steps import group, record
from tests.support.rewards.judges import FakeJudge, judged, material
from tests.support.rewards.scoring import totalled
from tfgrpo.flows.report.calibration import CalibrationTally, compared_pairs, judged_paths, rank_agreement, tau
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.outcomes import RewardScore

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)
MIXED = {"parts": [{"name": "judge"}, {"name": "gt"}]}
PURE = {"parts": [{"name": "judge"}]}


def weighted(name, weight=1.0, **options):
    return Weighted(build_scorer(name, options), weight)


@pytest.mark.parametrize(
    ("truth", "judge", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 1 / 3),
        ([0, 1], [5, 5], None),
        ([1, 1], [0, 1], None),
        ([], [], None),
        ([1, 2, 2, 4, 5], [1, 2, 3, 3, 5], 8 / 9),
        ([1, 1, 2, 2], [1, 2, 2, 3], 3 / (4 * 5) ** 0.5),
    ],
)
def test_tau_has_known_values(truth, judge, expected):
    found = rank_agreement([*zip(truth, judge, strict=True)])
    assert tau(found) == (None if expected is None else pytest.approx(expected))


@given(PAIRS)
def test_every_pair_is_counted_and_tau_is_antisymmetric(pairs):
    found, turned = rank_agreement(pairs), rank_agreement([(one, -other) for one, other in pairs])
    assert sum(found.values()) == len(pairs) * (len(pairs) - 1) // 2
    assert compared_pairs(found) == compared_pairs(turned)
    if (value := tau(found)) is not None:
        assert tau(turned) == pytest.approx(-value)
        assert -1.0 <= value <= 1.0


@pytest.mark.parametrize(
    ("scorers", "opinions", "truth"),
    [
        ([weighted("gt"), weighted("relative", 0.0)], (), "gt"),
        ([weighted("gt"), weighted("judge"), weighted("relative", 0.0)], ("judge",), "gt"),
        ([weighted("gt", 0.0), weighted("judge"), weighted("relative", 0.0)], ("judge", "relative"), "gt"),
        ([weighted("composite", **MIXED), weighted("relative", 0.0)], ("composite/judge",), "composite/gt"),
        ([weighted("composite", **PURE)], ("composite", "composite/judge"), None),
        ([weighted("gt"), weighted("composite", **MIXED)], ("composite/judge",), "gt"),
    ],
)
def test_only_opinions_are_held_against_the_truth(scorers, opinions, truth):
    assert judged_paths(scorers) == (truth, opinions)


def opinion(question):
    shown = material(question)
    if "output" in shown:
        return {"reason": "", "score": {"Answer: 42": 0.9, "Answer: 41": 0.4, "Answer: 40": 1}[shown["output"]]}
    return {"reason": "", "better": "first" if shown["first"] > shown["second"] else "second"}


async def test_groups_are_calibrated_from_what_was_recorded_and_add_up():
    scorers = [weighted("composite", **PURE), weighted("gt", 0.0), weighted("relative", judge={})]
    scored = await totalled(judged(["Answer: 42", "Answer: 41", "Answer: 40"], FakeJudge(opinion)), *scorers)
    records = tuple(replace(record(at, scores=each), rollout_id=f"r{at}") for at, each in enumerate(scored.verdicts))
    tally = CalibrationTally(scorers)
    for _ in range(2):
        tally.add(group(records))
    block = tally.as_json()
    assert block["truth"] == "gt"
    assert {**block["rewarders"]["composite/judge"], "attempts": 6, "abstained": 0} == {
        "attempts": 6, "abstained": 0, "concordant": 2, "discordant": 2, "tied_by_judge": 0, "tied_in_truth": 2,
        "tied_in_both": 0, "swaps": 0, "consistent": 0, "voted": 0,
        "disagreement": 0, "agreement": 0.5, "tau": pytest.approx(0.0), "swap_consistency": None,
        "vote_difference": None,
    }  # fmt: skip
    compared = block["rewarders"]["relative"]
    assert (compared["swap_consistency"], compared["swaps"]) == (1.0, 6)
    assert compared["agreement"] == 1.0


def comparison(*votes):
    answers = [{"forward": forward, "backward": backward} for forward, backward in votes]
    return {"by": "comparison", "comparisons": [{"with": f"r{at}", "votes": [each]} for at, each in enumerate(answers, 1)]}


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"votes": "all", "parts": 3}, {"voted": 0, "swaps": 0}),  # of another rewarder
        ({"by": "judge", "votes": (0.0, 0.5, None, 1.0)}, {"voted": 1, "vote_difference": pytest.approx(2 / 3)}),
        ({"by": "judge", "votes": (1.0,)}, {"voted": 0, "vote_difference": None}),
        (comparison(("first", None), ("tie", "tie")), {"swaps": 1, "consistent": 1}),
        (comparison(("first", "second"), ("second", "tie")), {"swaps": 2, "consistent": 0}),
    ],
)
def test_what_a_judge_recorded_is_counted(details, expected):
    tally = CalibrationTally([weighted("judge")])
    tally.add(group((record(0, scores=(RewardScore("judge", 1.0, "", details),)), record(1, scores=()))))
    found = tally.as_json()["rewarders"]["judge"]
    assert (found["attempts"], found["abstained"]) == (2, 1)
    assert {name: found[name] for name in expected} == expected
