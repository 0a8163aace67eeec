"""What the gate makes of evidence of earlier nights, of unequal losses and of the scale of rewards."""

from __future__ import annotations

import random

import pytest

from tests.support.rewards.arms import decide, evidence, items
from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.tasks.gate import Carried, decide_gate, evidence_text, narrow_scale

WEAK = Capital().after([-0.5, 0.25])
PROVEN = Capital().after([1.0] * 20)


def weigh(champion, candidate, before=(), nights=1, **settings):
    """The decision with evidence that earlier differences brought."""
    carried = Carried(Capital().after(before), nights - 1)
    return decide_gate(evidence(champion, candidate), GateSettings(**settings), carried=carried)


def test_evidence_of_earlier_nights_and_batches_promotes_what_a_sweep_alone_cannot_show():
    champion, candidate = items(40, [0.0, 1.0]), {**items(40, [0.0, 1.0]), **{f"q{n}": [1.0, 1.0] for n in range(6)}}
    assert decide(champion, candidate).decision == "undecided"
    alone = weigh(champion, candidate)
    assert (alone.decision, alone.nights) == ("undecided", 1)
    assert alone.reasons[0] == f"evidence {evidence_text(alone.capital)} of the 20 needed, over 1 night"
    carried = weigh(champion, candidate, [0.5, 0.5, 0.0, -0.5] * 20, nights=3)
    assert carried.decision == "promote"
    assert carried.reasons[0] == f"evidence {evidence_text(carried.capital)} of the 20 needed, over 3 nights"
    assert carried.interval == alone.interval
    assert weigh(champion, candidate, [0.5, 0.5, 0.0, -0.5] * 20, confidence=0.9999).decision == "undecided"


def test_the_capital_is_that_of_all_differences_the_sweep_included():
    champion, candidate = items(10, [0.0, 1.0]), items(10, [1.0, 1.0])
    decision = weigh(champion, candidate, [0.25, -0.5])
    assert decision.capital.logs == pytest.approx(Capital().after([0.25, -0.5, *[0.5] * 10]).logs)
    assert decide(champion, candidate).capital is None


def test_a_sweep_that_speaks_against_the_candidate_promotes_nothing_however_much_evidence_there_is():
    champion, candidate = items(40, [0.0, 1.0]), {**items(40, [0.0, 1.0]), "q0": [0.0, 0.0]}
    decision = weigh(champion, candidate, [1.0] * 50)
    assert decision.decision == "undecided"
    assert "over 1,000 of the 20 needed, over 1 night, but this sweep alone speaks against it" in decision.reasons[0]
    assert weigh(items(40, [1.0]), items(40, [0.0]), [1.0] * 500).decision == "reject"


def test_learning_batches_and_the_sweep_count_alike_unless_the_halves_lost_unequal_shares():
    swept = evidence(items(10, [0.0, 1.0]), items(10, [0.0, 1.0]))
    learned = evidence(items(20, [0.0, 1.0]), items(20, [1.0, 1.0]))
    decision = decide_gate(swept, GateSettings(), carried=Carried(), learned=learned)
    assert decision.capital.logs == pytest.approx(Capital().after([0.5] * 20 + [0.0] * 10).logs)
    assert (decision.learned, decision.nights, len(decision.reasons)) == (20, 1, 2)
    losing = evidence(items(20, [0.0, 1.0]), items(20, [None, 1.0]))
    decision = decide_gate(swept, GateSettings(), carried=Carried(), learned=losing)
    assert decision.capital.logs == pytest.approx(Capital().after([0.0] * 10).logs)
    assert (
        "left out: the arms lost unequal shares of their attempts (champion 0 of 40, candidate 20 of 40"
        in decision.reasons[2]
    )
    off = decide_gate(swept, GateSettings(), carried=Carried(), learned=evidence(items(2, [0.0]), items(2, [7.0])))
    assert "left out: rewards outside 0 … 1" in off.reasons[2]


@pytest.mark.parametrize(("nights", "given_up"), [(1, False), (2, True)])
def test_evidence_that_decides_nothing_for_long_is_given_up(nights, given_up):
    champion, candidate = items(10, [0.0, 1.0]), items(10, [1.0, 0.0])
    decision = weigh(champion, candidate, nights=nights, patience_nights=2)
    assert (decision.decision, decision.given_up) == ("undecided", given_up)
    assert given_up == ("given up after 2 nights: the evidence starts anew" in decision.reasons)


def test_a_sweep_that_proves_nothing_leaves_the_evidence_as_it_was():
    capital = Capital().after([0.5, 0.5])
    carried = Carried(capital, 2)
    same = decide_gate(evidence(items(30, [1.0]), items(30, [1.0]), identical=True), GateSettings(), carried=carried)
    off = decide_gate(evidence(items(30, [0.0]), items(30, [5.0])), GateSettings(), carried=carried)
    assert (same.decision, off.decision) == ("undecided", "undecided")
    assert same.capital == off.capital == capital
    assert same.nights == off.nights == 2


def test_unequal_losses_of_the_sweep_enter_the_evidence_at_their_worst():
    champion, candidate = items(60, [1.0, 0.0]), items(60, [1.0, None])
    decision = weigh(champion, candidate)
    assert decision.capital.logs == pytest.approx(Capital().after([0.0] * 60).logs)
    assert "Fisher's exact test" in decision.reasons[-1]


def graded(low, high, gain):
    """Items judged between ``low`` and ``high``, the candidate better by a share of that range."""
    chance = random.Random(3)
    before = {f"q{n}": low + (high - low) * 0.6 * chance.random() for n in range(60)}
    after = {item: reward + (high - low) * gain for item, reward in before.items()}
    return evidence(
        {item: [reward] for item, reward in before.items()}, {item: [reward] for item, reward in after.items()}
    )


def test_graded_rewards_on_part_of_a_scale_promote_within_their_declared_range():
    judged = graded(0.45, 0.55, gain=0.3)
    assert decide_gate(judged, GateSettings()).decision == "undecided"
    decision = decide_gate(judged, GateSettings(), (0.45, 0.55))
    assert decision.decision == "promote"
    assert -0.1 <= decision.interval.low <= decision.interval.high <= 0.1
    assert decide_gate(graded(0.0, 5.0, gain=0.3), GateSettings(), (0.0, 5.0)).decision == "promote"


def test_rewards_outside_their_declared_range_are_undecided_and_named():
    decision = decide_gate(graded(0.4, 0.55, gain=0.3), GateSettings(), (0.45, 0.55))
    assert (decision.decision, decision.interval) == ("undecided", None)
    assert "outside 0.45 … 0.55, their declared range" in decision.reasons[0]


def test_items_flip_between_the_ends_of_the_declared_range():
    champion, candidate = items(10, [5.0, 5.0]), items(10, [1.0, 1.0])
    decision = decide_gate(evidence(champion, candidate), GateSettings(), (1.0, 5.0))
    assert len(decision.regressions) == 10
    assert decide_gate(evidence(candidate, champion), GateSettings(), (0.0, 5.0)).recoveries == ()


@pytest.mark.parametrize(
    ("low", "high", "declared", "warned"),
    [(0.45, 0.53, (0.0, 1.0), True), (0.45, 0.53, (0.45, 0.55), False), (0.0, 1.0, (0.0, 1.0), False)],
)
def test_rewards_on_less_than_a_tenth_of_their_range_are_warned_of(low, high, declared, warned):
    told = narrow_scale(graded(low, high, gain=0.3), declared)
    assert bool(told) == warned
    assert not warned or "score_range" in told


def test_equal_rewards_are_no_matter_of_the_scale():
    assert narrow_scale(evidence(items(5, [1.0]), items(5, [1.0])), (0.0, 1.0)) == ""


@pytest.mark.parametrize(
    ("decision", "capital", "nights", "begins"),
    [
        ("undecided", WEAK, 2, Carried(WEAK, 2)),
        ("undecided", WEAK, 0, Carried(WEAK.anew())),
        ("reject", WEAK, 2, Carried(WEAK.anew())),
        ("reject", PROVEN, 2, Carried(PROVEN, 2)),
        ("promote", PROVEN, 2, Carried(PROVEN, 2)),
        ("promote", None, None, Carried()),
    ],
)
def test_the_next_night_begins_with_the_evidence_that_the_decision_leaves(decision, capital, nights, begins):
    assert Carried.after(decision, capital, nights, 0.95) == begins


def following(learned, swept, carried=PROVEN, **settings):
    """The decision on lessons that follow on a library in force."""
    return decide_gate(swept, GateSettings(**settings), carried=Carried(carried, 2), learned=learned, follows=True)


HELPS = evidence(items(9, [0.0, 0.0]), items(9, [1.0, 1.0]))
LEVEL = evidence(items(9, [1.0, 0.0]), items(9, [0.0, 1.0]))
WORSE = evidence(items(9, [1.0, 1.0]), items(9, [1.0, 0.0]))


def test_a_library_that_follows_is_promoted_by_the_proof_against_no_lessons_and_a_sweep_that_is_not_worse():
    decision = following(HELPS, LEVEL)
    assert (decision.decision, decision.nights, decision.learned) == ("promote", 3, 9)
    assert decision.capital == PROVEN.after(HELPS.differences)
    assert decision.reasons[0].startswith("against no lessons, evidence ")
    assert following(HELPS, WORSE).decision != "promote"


def test_lessons_that_do_worse_than_none_tonight_hold_back_what_follows_whatever_was_proven_before():
    harms = evidence(items(9, [1.0, 1.0]), items(9, [0.0, 0.0]))
    decision = following(harms, LEVEL, carried=Capital().after([1.0] * 200))
    assert (decision.decision, decision.given_up) == ("undecided", False)
    assert decision.reasons[0].endswith("but this night's learning batches speak against it")


def test_the_sweep_between_two_libraries_is_no_evidence_against_no_lessons():
    ahead = evidence(items(9, [0.0, 0.0]), items(9, [1.0, 1.0]))
    decision = following(None, ahead, carried=Capital())
    assert (decision.decision, decision.capital, decision.nights) == ("undecided", Capital(), 2)


def test_the_gain_over_no_lessons_is_told_with_its_interval():
    gain = following(HELPS, LEVEL).gain
    assert gain is not None
    assert (gain.estimate, gain.low > 0.0) == (1.0, True)
    assert following(None, LEVEL).gain is None


@pytest.mark.parametrize(("carried", "given_up"), [(PROVEN, False), (Capital(), True)])
def test_a_proof_is_not_given_up_for_want_of_lessons_that_follow(carried, given_up):
    decision = following(LEVEL, WORSE, carried=carried, patience_nights=2, max_regressions=1.0)
    assert (decision.decision, decision.given_up) == ("undecided", given_up)
