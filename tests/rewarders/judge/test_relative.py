"""Ranking by totals, and by comparison: both orders, honest ties, bounded pairs, abstention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.judges import FakeJudge, by_order, judged, material
from tests.support.rewards.scoring import built, group, numbers
from tests.support.vectors import rows_of
from tfgrpo.rewarders.composite import judge_loads
from tfgrpo.rewarders.judge.judge import PairwiseRewarder, RelativeRewarder, chosen_pairs
from tfgrpo.rewarders.judge.model import JudgeOptions
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import BudgetRefused, ModelServerFault, PipelineError, RewardError


async def ranked(answers, outputs, options=None, variant="rank"):
    model = FakeJudge(answers)
    verdicts = await built("relative", judge=options or {}, variant=variant).call(judged(outputs, model))
    return model, verdicts


async def test_attempts_are_ranked_by_the_comparisons_of_their_outputs_in_both_orders():
    model, verdicts = await ranked(by_order("BCA"), ["A", "B", "C"])
    assert numbers(verdicts) == [0.0, 1.0, 0.5]
    shown = sorted(material(question)["first"] + material(question)["second"] for question in model.asked)
    assert shown == ["AB", "AC", "BA", "BC", "CA", "CB"]
    assert len({(question.rollout, question.turn) for question in model.asked}) == 6
    assert verdicts[1].evidence == "2 won, 0 tied, 0 lost of 2 comparisons in both orders: share 1 (rank)"
    assert verdicts[0].details["comparisons"][0]["votes"] == ({"forward": "second", "backward": "second"},)


async def test_orders_that_do_not_agree_make_ties_and_no_ranks():
    for of_a, of_b in (("first", "first"), ("second", "second"), ("tie", "first")):
        better = {"A": of_a, "B": of_b}
        answer = lambda question, said=better: {"reason": "", "better": said[material(question)["first"]]}  # noqa: E731
        assert numbers((await ranked(answer, ["A", "B"]))[1]) == [0.5, 0.5]


async def test_outputs_that_are_the_same_tie_without_a_call():
    model, verdicts = await ranked(by_order("AB"), ["A", "A"])
    assert (numbers(verdicts), model.asked) == ([0.5, 0.5], [])
    assert verdicts[0].evidence == "all outputs are the same"
    model, verdicts = await ranked(by_order("AB"), ["B", "A", "B"])
    assert numbers(verdicts) == [0.25, 1.0, 0.25]
    assert len(model.asked) == 2
    assert verdicts[2].details["same_as"] == "r0"


async def test_a_comparison_counts_only_when_both_orders_were_answered():
    def answer(question):
        shown = material(question)
        return ModelServerFault("503") if shown["first"] == "C" else by_order("ABC")(question)

    _, verdicts = await ranked(answer, ["A", "B", "C"])
    assert numbers(verdicts) == [1.0, 0.0, None]
    assert isinstance(verdicts[2], Abstained)
    assert "503" in verdicts[2].reason


async def test_votes_on_a_pair_add_up():
    def answer(question):
        vote = question.turn % 100 // 2
        return {"reason": "", "better": by_order("AB" if vote < 2 else "BA")(question)["better"]}

    model, verdicts = await ranked(answer, ["A", "B"], {"votes": 3}, "centered")
    assert len(model.asked) == 6
    assert numbers(verdicts) == pytest.approx([1 / 6, -1 / 6])


async def test_large_groups_are_compared_in_a_bounded_number_of_pairs():
    outputs = [chr(ord("A") + index) for index in range(20)]
    model, verdicts = await ranked(by_order("".join(outputs)), outputs, {"max_pairs": 30})
    assert len(model.asked) == 60
    assert None not in numbers(verdicts)
    (load,) = judge_loads(built("relative", judge={"max_pairs": 30, "retries": 0}), 20)
    assert (load.calls_low, load.calls_high, load.shown) == (0, 60, 2)


async def test_one_attempt_is_not_ranked_and_no_budget_passes_through():
    with pytest.raises(RewardError, match="at least two"):
        await ranked(by_order("A"), ["A"])
    with pytest.raises(BudgetRefused):
        await ranked(lambda _: BudgetRefused("cap"), ["A", "B"])


def test_relative_ranks_totals_unless_it_is_given_a_judge():
    assert built("relative", variant="zscore").made_from == RelativeRewarder("zscore")
    by_judge = built("relative", judge={"votes": 2}, variant="centered")
    assert by_judge.made_from == PairwiseRewarder(JudgeOptions(votes=2), "centered")
    with pytest.raises(PipelineError) as caught:
        built("relative", judge={"pairs": 3}, variant="x", by=1)
    assert len(caught.value.problems) == 3
    assert "options.variant: got 'x'; accepted: rank, centered, zscore" in str(caught.value)
    with pytest.raises(PipelineError, match="options of a judge"):
        built("relative", judge=True)


@given(st.integers(0, 40), st.integers(1, 60))
def test_chosen_pairs_are_distinct_connected_and_evenly_spread(count, most):
    pairs = chosen_pairs(count, most)
    assert len(set(pairs)) == len(pairs)
    assert all(0 <= one < other < count for one, other in pairs)
    assert len(pairs) == min(count * (count - 1) // 2, max(most, count - 1))
    seen = [sum(place in pair for pair in pairs) for place in range(count)]
    assert not seen or max(seen) - min(seen) <= 2
    reached = {0}
    for _ in range(count):
        reached |= {place for pair in pairs if reached & set(pair) for place in pair}
    assert count == 0 or reached == set(range(count))


def by_totals(totals, variant="rank", attempts=3):
    prior = {f"r{index}": total for index, total in enumerate(totals) if total is not None}
    return built("relative", variant=variant).call(group(*"abc"[:attempts], prior_scores=prior))


def test_attempts_are_ranked_by_their_totals_ties_are_ties_and_what_has_none_has_no_rank():
    table = "attempts_are_ranked_by_their_totals_ties_are_ties_and_what_has_none_has_no_rank"
    for totals, variant, values in rows_of("judge_relative", table):
        found = numbers(by_totals(totals, variant, len(totals)))
        assert found == [None if value is None else pytest.approx(value, abs=1e-7) for value in values]
    assert by_totals([0.5, 1.0, 0.5])[0].evidence == "total 0.5: 1 of 3 better, 1 equal (rank)"


def test_fewer_than_two_totals_and_what_is_no_number_are_refused():
    for totals, why in (([], "at least two"), ([1.0], "at least two"), ([float("nan"), 1.0], "finite")):
        with pytest.raises(RewardError, match=why):
            by_totals(totals)
