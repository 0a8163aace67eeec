"""Composites: weights, gates, abstentions, what is asked and what is kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfgrpo.rewarders.scoring import Weighted, check_scorers, score_group

from tests.support.rewards.judges import FakeJudge, by_order, by_output, judged
from tfgrpo.rewarders.composite import Composite
from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.judge.judge import JudgeRewarder
from tfgrpo.rewarders.judge.model import judge_loads
from tfgrpo.rewarders.judge.options import JudgeOptions
from tfgrpo.rewarders.judge.pairs import PairwiseRewarder
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.relative import RelativeRewarder
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError
from tfgrpo.stores.outcomes import RewardScore


@dataclass
class Scripted:
    """Gives each output what the script says; None abstains, an exception is raised."""

    rewarder_id: str
    script: Any
    asked: list[str] = field(default_factory=list)

    def score(self, context):
        self.asked += [attempt.output for attempt in context.outputs]
        if isinstance(self.script, Exception):
            raise self.script
        given = [
            self.script[attempt.output] if isinstance(self.script, dict) else self.script for attempt in context.outputs
        ]
        return [
            Abstained(self.rewarder_id, "no idea") if score is None else RewardScore(self.rewarder_id, score, "said so")
            for score in given
        ]


def part(name, script, weight=1.0):
    return Weighted(Scripted(name, script), weight)


async def scored(composite, outputs=("A",), judge=None, timeout_s=None):
    with RewarderThreads() as threads:
        given = await score_group([Weighted(composite, 1.0, timeout_s)], judged(list(outputs), judge), threads)
    return [verdicts[0] for verdicts in given.verdicts], given


async def test_the_score_is_the_weighted_mean_of_the_parts_and_the_parts_are_kept():
    composite = Composite((part("a", 1.0, 0.7), part("b", 0.5, 0.3)))
    (verdict,), _ = await scored(composite)
    assert verdict.score == 0.85
    assert verdict.evidence == "(0.7 * a 1 + 0.3 * b 0.5) / 1"
    rows = [(row["name"], row["weight"], row["score"], row["evidence"]) for row in verdict.details["parts"]]
    assert rows == [("a", 0.7, 1.0, "said so"), ("b", 0.3, 0.5, "said so")]


async def test_a_part_of_weight_zero_is_not_asked():
    unused = Scripted("unused", ValueError("would poison"))
    (verdict,), _ = await scored(Composite((part("a", 0.4), Weighted(unused, 0.0))))
    assert verdict.score == 0.4
    assert unused.asked == []


async def test_gates_multiply_and_parts_are_not_asked_about_what_a_gate_closed_on():
    costly = Scripted("costly", 0.8)
    gate = Scripted("form", {"A": 1.0, "B": 0.0, "C": 0.5})
    verdicts, _ = await scored(Composite((Weighted(costly),), (gate,)), "ABC")
    assert [verdict.score for verdict in verdicts] == [0.8, 0.0, 0.4]
    assert costly.asked == ["A", "C"]
    assert verdicts[1].evidence == "closed by form"
    assert verdicts[2].evidence == "(1 * costly 0.8) / 1 * form 0.5"
    assert [row["score"] for row in verdicts[1].details["gates"]] == [0.0]
    assert verdicts[1].details["parts"] == ()


@pytest.mark.parametrize(("policy", "score"), [("fail", None), ("skip", 0.9), ("zero", 0.675)])
async def test_the_options_decide_what_an_abstention_means(policy, score):
    composite = Composite((part("a", 0.9, 3.0), part("b", None)), on_abstain=policy)
    (verdict,), _ = await scored(composite)
    assert getattr(verdict, "score", None) == score


@pytest.mark.parametrize(("policy", "score"), [("fail", None), ("skip", None), ("zero", 0.0)])
async def test_a_gate_that_abstains_never_stands_open(policy, score):
    composite = Composite((part("a", 0.9),), (Scripted("gate", None),), policy)
    (verdict,), _ = await scored(composite)
    assert getattr(verdict, "score", None) == score


async def test_skipping_everything_is_no_score():
    (verdict,), _ = await scored(Composite((part("a", None),), on_abstain="skip"))
    assert verdict == Abstained("composite", "every part abstained")


async def test_a_part_that_raises_abstains_and_the_others_count():
    composite = Composite((part("a", 0.5), part("b", KeyError("x"))), on_abstain="skip")
    verdicts, given = await scored(composite, "AB")
    assert [verdict.score for verdict in verdicts] == [0.5, 0.5]
    assert given.timed_out is None


async def test_a_part_that_hangs_is_named_and_the_group_is_told():
    release = threading.Event()

    class Hanging:
        rewarder_id = "hanging"

        def score(self, context):
            release.wait(30)
            return []

    composite = Composite((part("a", 0.5), Weighted(Hanging())))
    verdicts, given = await scored(composite, timeout_s=0.05)
    release.set()
    assert given.timed_out == "hanging: no verdict within 0.05 s"
    assert isinstance(verdicts[0], Abstained)


async def test_a_gate_outside_its_range_is_a_fault_and_no_reward():
    (verdict,), given = await scored(Composite((part("a", 1.0),), (Scripted("gate", 1.5),)))
    assert isinstance(verdict, Abstained)
    assert "from 0 to 1" in given.faults["composite"]


async def test_judges_plain_functions_and_composites_work_together():
    judge = FakeJudge(by_output({"A": 0.6, "B": 0.2}))
    inner = Composite((Weighted(JudgeRewarder()),), rewarder_id="inner")
    composite = Composite((Weighted(inner, 0.5), Weighted(GroundTruth(), 0.5)))
    verdicts, _ = await scored(composite, "AB", judge)
    assert [verdict.score for verdict in verdicts] == [0.3, 0.1]
    assert composite.asks_model
    assert not Composite((part("a", 1.0), Weighted(JudgeRewarder(), 0.0))).asks_model


async def test_parts_that_compare_see_the_whole_group_whatever_the_gates_say():
    gate = Scripted("gate", {"A": 1.0, "B": 0.0})
    composite = Composite((Weighted(PairwiseRewarder()),), (gate,))
    verdicts, _ = await scored(composite, "AB", FakeJudge(by_order("AB")))
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0]
    assert composite.compares


async def test_a_composite_can_be_asked_directly():
    composite = Composite((part("a", 0.5), Weighted(JudgeRewarder())))
    context = judged(["A"], FakeJudge(by_output({"A": 1.0})))
    assert [verdict.score for verdict in await composite.score(replace(context, time_limit_s=5.0))] == [0.75]
    assert list(await composite.score(replace(context, outputs=()))) == []


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((part("a", 1.0, 0.0),), "weight above 0"),
        ((part("a", 1.0, 1.7e308), part("b", 1.0, 1.7e308)), "sum to infinity"),
        ((), "weight above 0"),
        ((part("a", 1.0), part("a", 1.0)), "more than once"),
        ((Weighted(RelativeRewarder()),), "ranks totals"),
        ((Weighted(GroundTruth(), timeout_s=5.0),), "a part with a time limit"),
    ],
)
def test_weights_and_members_are_checked_once(parts, problem):
    with pytest.raises(ValueError, match=problem):
        Composite(parts)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_is_finite_and_not_below_zero(weight):
    with pytest.raises(ValueError, match="finite"):
        part("a", 1.0, weight)


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="on_abstain"):
        Composite((part("a", 1.0),), on_abstain="maybe")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1e300)), min_size=1, max_size=6))
def test_a_mean_lies_between_its_parts(pairs):
    parts = tuple(part(f"p{place}", score, weight) for place, (score, weight) in enumerate(pairs))
    composite = Composite(parts)
    said = [RewardScore(each.rewarder.rewarder_id, each.rewarder.script, "") for each in parts]
    mean = composite._mean(said)
    low, high = min(score for score, _ in pairs), max(score for score, _ in pairs)
    assert low - 1e-12 <= mean <= high + 1e-12


def built(**options):
    return build_scorer("composite", options, source="rewarders.1")


def test_a_composite_is_read_from_nested_options():
    composite = built(
        parts=[
            {"name": "judge", "weight": 0.7, "options": {"votes": 3}},
            {"name": "composite", "options": {"parts": [{"name": "gt"}]}},
        ],
        gates=[{"name": "gt", "options": {"rewarder_id": "form"}}],
        on_abstain="zero",
        rewarder_id="mix",
    )
    assert [(each.rewarder.rewarder_id, each.weight) for each in composite.parts] == [
        ("judge", 0.7),
        ("composite", 1.0),
    ]
    assert [gate.rewarder_id for gate in composite.gates] == ["form"]
    assert (composite.on_abstain, composite.rewarder_id) == ("zero", "mix")
    assert composite.parts[0].rewarder == JudgeRewarder(JudgeOptions(votes=3))


def test_all_problems_of_a_composite_are_reported_at_once_with_their_location():
    with pytest.raises(PipelineError) as caught:
        built(
            parts=[
                {"name": "judge", "options": {"votes": 0}},
                {"name": "nobody", "weight": float("nan")},
                {"weight": 10**400, "options": 3, "extra": 1},
                "gt",
            ],
            gates=[{"name": "gt", "weight": 1}],
            on_abstain="no",
            other=1,
        )
    places = {problem.source for problem in caught.value.problems}
    base = "rewarders.1: composite: options"
    assert places == {
        f"{base}.parts.0: judge: options.votes",
        f"{base}.parts.1.weight",
        f"{base}.parts.1: name",
        f"{base}.parts.2.extra",
        f"{base}.parts.2.name",
        f"{base}.parts.2.options",
        f"{base}.parts.2.weight",
        f"{base}.parts.3",
        f"{base}.gates.0.weight",
        f"{base}.on_abstain",
        f"{base}.other",
    }


@pytest.mark.parametrize(
    "options",
    [{}, {"parts": []}, {"parts": 3}, {"parts": [{"name": "gt", "weight": 0}]}, {"parts": [{"name": "gt", "weight": True}]},
     {"parts": [{"name": "gt"}], "gates": {}}, {"parts": [{"name": "relative"}]}],
)  # fmt: skip
def test_a_composite_that_could_give_no_score_is_refused(options):
    with pytest.raises(PipelineError):
        built(**options)


class Stars:
    rewarder_id = "stars"
    score_range = (1, 5)

    def score(self, context):
        return [RewardScore("stars", 5.0, "") for _ in context.outputs]


HALF = {"name": "label_match", "score_range": [0.4, 0.6]}
STARS = {"name": "tests.rewarders.test_composite:Stars"}
RANGES = [
    ({"parts": [{"name": "gt"}]}, (0.0, 1.0)),
    ({"parts": [{"name": "gt"}, HALF]}, (0.2, 0.8)),
    ({"parts": [{"name": "gt", "weight": 3}, STARS]}, (0.25, 2.0)),
    ({"parts": [{**STARS, "score_range": [2, 4]}]}, (2.0, 4.0)),
    ({"parts": [{"name": "gt"}, STARS], "on_abstain": "skip"}, (0.0, 5.0)),
    ({"parts": [HALF], "on_abstain": "zero"}, (0.0, 0.6)),
    ({"parts": [HALF], "gates": [{"name": "json_valid"}]}, (0.0, 0.6)),
    ({"parts": [{"name": "composite", "options": {"parts": [HALF]}}]}, (0.4, 0.6)),
    ({"parts": [HALF, {**STARS, "weight": 0}]}, (0.4, 0.6)),
]


@pytest.mark.parametrize(("options", "expected"), RANGES)
def test_the_range_of_a_composite_follows_from_its_parts(options, expected):
    assert built(**options).score_range == pytest.approx(expected)


@pytest.mark.parametrize(
    "given", [[1, 0], [0, 0], [0], "01", [0, "1"], [0, float("inf")], "; accepted: " * 2, 1, [False, True]]
)
def test_a_range_that_is_none_is_refused_where_it_is_written(given):
    with pytest.raises(PipelineError, match=r"parts\.0\.score_range: got .*accepted: two finite numbers"):
        built(parts=[{"name": "gt", "score_range": given}])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"parts": []},
            ".parts: got []; accepted: a list of at least one mapping with name, options, score_range, weight",
        ),
        ({"parts": [{"name": "gt"}], "gates": {}}, ".gates: got {}; accepted: a list of mappings with name, options"),
        ({"parts": [{"weight": 1}]}, ".parts.0.name: got nothing; accepted: the name of a rewarder"),
        (
            {"parts": [{"name": "gt", "weight": 0}]},
            ": got no part has a weight above 0; accepted: at least one that has",
        ),
        (
            {"parts": [{"name": "gt", "weight": 1.7e308}, {"name": "number_match", "weight": 1.7e308}]},
            ": got weights are [1.7e+308, 1.7e+308], which sum to infinity; accepted: smaller weights",
        ),
        ({"parts": [{"name": "gt"}] * 2}, ": got gt more than once; accepted: a rewarder_id of its own for each"),
    ],
)
def test_a_problem_of_a_composite_has_one_accepted_text(options, told):
    with pytest.raises(PipelineError) as caught:
        built(**options)
    assert [str(problem) for problem in caught.value.problems] == [f"rewarders.1: composite: options{told}"]


def test_composites_do_not_nest_without_end():
    options: dict[str, Any] = {"parts": [{"name": "gt"}]}
    for _ in range(12):
        options = {"parts": [{"name": "composite", "options": options}]}
    with pytest.raises(PipelineError, match="within each other"):
        built(**options)


def test_what_the_judges_of_a_composite_take_is_known_beforehand():
    parts = (Weighted(JudgeRewarder(JudgeOptions(votes=2))), part("a", 1.0))
    (load,) = judge_loads(Composite(parts), 2)
    assert (load.calls_low, load.calls_high) == (2, 8)
    (gated,) = judge_loads(Composite(parts, (Scripted("gate", 1.0),)), 2)
    assert (gated.calls_low, gated.calls_high) == (0, 8)


def test_comparing_alone_is_refused_where_it_counts():
    composite = Composite((Weighted(PairwiseRewarder()),))
    check_scorers([Weighted(composite)], group_size=2)
    with pytest.raises(PipelineError, match="groups of 1"):
        check_scorers([Weighted(composite)], group_size=1)


async def test_a_judge_without_a_model_breaks_only_itself():
    _, given = await scored(Composite((Weighted(JudgeRewarder()), part("a", 0.5)), on_abstain="skip"))
    assert given.totals == {"r0": 0.5}
    lost, _ = given.verdicts[0][0].details["parts"]
    assert (lost["name"], lost["score"], "no model" in lost["evidence"]) == ("judge", None, True)
