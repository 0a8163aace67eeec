"""Composites and the graders of a mix: weights, gates, abstentions, what is asked and what is kept."""

import math
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.judges import FakeJudge, by_order
from tests.support.rewards.scoring import group, numbers
from tests.support.vectors import rows_of
from tfgrpo.rewarders.composite import ByDataset, Composite, check_scorers, judge_loads
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Scorer, Weighted
from tfgrpo.stores.errors import PipelineError
from tfgrpo.stores.outcomes import RewardScore


@dataclass
class Scripted:
    """Gives each output what the script has for it; None abstains, an exception is raised."""

    script: Any
    asked: list[str] = field(default_factory=list)

    def __call__(self, context):
        self.asked += [attempt.output for attempt in context.outputs]
        if isinstance(self.script, Exception):
            raise self.script
        scores = [self.script[each.output] if isinstance(self.script, dict) else self.script for each in context.outputs]
        return [Abstained("", "no idea") if score is None else RewardScore("", score, "seen") for score in scores]


def scripted(name, script) -> Scorer:
    return Scorer(name, Scripted(script), scope="group")


def part(name, script, weight=1.0) -> Weighted:
    return Weighted(scripted(name, script), weight)


async def scored(composite, outputs=("A",), judge=None, timeout_s=None):
    with ScoreRunner() as runner:
        (found,) = await runner.score(composite, [group(*outputs, judge=judge)], timeout_s)
    return found


async def test_the_score_is_the_weighted_mean_of_the_parts_which_are_kept_and_one_of_weight_zero_is_not_asked():
    (verdict,) = await scored(Composite((part("a", 1.0, 0.7), part("b", 0.5, 0.3))))
    assert (verdict.score, verdict.evidence) == (0.85, "(0.7 * a 1 + 0.3 * b 0.5) / 1")
    rows = [(row["name"], row["weight"], row["score"], row["evidence"]) for row in verdict.details["parts"]]
    assert rows == [("a", 0.7, 1.0, "seen"), ("b", 0.3, 0.5, "seen")]
    unused = part("unused", ValueError("would poison"), 0.0)
    assert numbers(await scored(Composite((part("a", 0.4), unused)))) == [0.4]
    assert unused.scorer.call.asked == []


async def test_gates_multiply_and_parts_are_not_asked_about_what_a_gate_closed_on():
    costly, gate = part("costly", 0.8), scripted("form", {"A": 1.0, "B": 0.0, "C": 0.5})
    found = await scored(Composite((costly,), (gate,)), "ABC")
    assert numbers(found) == [0.8, 0.0, 0.4]
    assert costly.scorer.call.asked == ["A", "C"]
    assert [verdict.evidence for verdict in found[1:]] == ["closed by form", "(1 * costly 0.8) / 1 * form 0.5"]
    assert [row["score"] for row in found[1].details["gates"]] == [0.0]
    assert found[1].details["parts"] == ()
    (fault,) = await scored(Composite((part("a", 1.0),), (scripted("gate", 1.5),)))
    assert fault == Abstained("composite", "the gate gate gave 1.5, expected from 0 to 1", broke=True)


async def test_a_part_is_not_asked_about_a_group_of_which_a_gate_closed_on_every_attempt():
    calls = []

    async def judge(context):
        calls.append(context)
        return []

    part_of_model = Weighted(Scorer("judge", judge, scope="group", place="loop", asks_model=True))
    assert numbers(await scored(Composite((part_of_model,), (scripted("form", 0.0),)), "AB")) == [0.0, 0.0]
    assert calls == []


async def test_the_options_decide_what_an_abstention_means_and_no_gate_opens_by_one():
    rows = rows_of("composite", "the_options_decide_what_an_abstention_means_and_no_gate_opens_by_one")
    for policy, parts, gates, score in rows:
        members = tuple(part(f"p{at}", value, 3.0 if at == 0 else 1.0) for at, value in enumerate(parts))
        closing = tuple(scripted(f"g{at}", value) for at, value in enumerate(gates))
        assert numbers(await scored(Composite(members, closing, policy))) == [score], (policy, parts, gates)


async def test_a_part_that_hangs_makes_the_composite_late_and_is_named():
    release = threading.Event()
    hanging = Weighted(Scorer("hanging", lambda _: release.wait(60), place="thread"))
    (verdict,) = await scored(Composite((part("a", 0.5), hanging)), timeout_s=0.05)
    release.set()
    assert verdict == Abstained("composite", "hanging abstained: no score within 0.05 s", late=True)


async def test_parts_that_compare_see_the_whole_group_whatever_the_gates_say():
    pairs = Weighted(build_scorer("relative", {"judge": {}}))
    composite = Composite((pairs,), (scripted("gate", {"A": 1.0, "B": 0.0}),))
    assert numbers(await scored(composite, "AB", FakeJudge(by_order("AB")))) == [1.0, 0.0]
    check_scorers([Weighted(composite)], group_size=2)
    with pytest.raises(PipelineError, match="groups of 1"):
        check_scorers([Weighted(composite)], group_size=1)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1e300)), min_size=1, max_size=6))
def test_a_mean_lies_between_its_parts(pairs):
    composite = Composite(tuple(part(f"p{at}", score, weight) for at, (score, weight) in enumerate(pairs)))
    verdict = composite.verdict((), [RewardScore(f"p{at}", score, "") for at, (score, _) in enumerate(pairs)])
    low, high = min(score for score, _ in pairs), max(score for score, _ in pairs)
    assert low - 1e-12 <= verdict.score <= high + 1e-12


def test_weights_and_members_are_checked_once():
    for parts, problem in (
        ((part("a", 1.0, 0.0),), "weight above 0"),
        ((part("a", 1.0, 1.7e308), part("b", 1.0, 1.7e308)), "sum to infinity"),
        ((), "weight above 0"),
        ((part("a", 1.0), part("a", 1.0)), "more than once"),
        ((Weighted(build_scorer("relative")),), "ranks totals"),
        ((replace(part("a", 1.0), timeout_s=5.0),), "a part with a time limit"),
    ):
        with pytest.raises(ValueError, match=problem):
            Composite(parts)
    with pytest.raises(ValueError, match="on_abstain"):
        Composite((part("a", 1.0),), on_abstain="maybe")


def built(**options):
    return build_scorer("composite", options, source="rewarders.1")


def test_members_of_a_composite_can_decline_isolation():
    wild = {"name": "tests.support.rewards.wild:score"}
    composite = built(parts=[{**wild, "isolate": False}, {**wild, "options": {"rewarder_id": "other"}}])
    assert [each.scorer.place for each in composite.parts] == ["thread", "process"]
    with pytest.raises(PipelineError, match=r"parts\.0\.isolate: got 'no'; accepted: true or false"):
        built(parts=[{**wild, "isolate": "no"}])


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
    base = "rewarders.1: composite: options"
    assert {problem.source for problem in caught.value.problems} == {
        f"{base}.parts.0: judge: options.votes",
        *(f"{base}.parts.{place}" for place in ("1.weight", "1: name", "2.extra", "2.name", "2.options", "2.weight", "3")),
        *(f"{base}.{place}" for place in ("gates.0.weight", "on_abstain", "other")),
    }


STARS = {"name": "tests.rewarders.test_composite:Stars"}
HALF = {"name": "label_match", "score_range": [0.4, 0.6]}


class Stars:
    rewarder_id = "stars"
    score_range = (1, 5)

    def score(self, context):
        return [5.0 for _ in context.outputs]


RANGES = [
    ({"parts": [{"name": "gt"}, HALF]}, (0.2, 0.8)),
    ({"parts": [{"name": "gt", "weight": 3}, STARS]}, (0.25, 2.0)),
    ({"parts": [{"name": "gt"}, STARS], "on_abstain": "skip"}, (0.0, 5.0)),
    ({"parts": [HALF], "on_abstain": "zero"}, (0.0, 0.6)),
    ({"parts": [HALF], "gates": [{"name": "json_valid"}]}, (0.0, 0.6)),
    ({"parts": [{"name": "composite", "options": {"parts": [HALF]}}]}, (0.4, 0.6)),
]


def test_the_range_of_a_composite_follows_from_its_parts():
    for options, expected in RANGES:
        assert built(**options).score_range == pytest.approx(expected), options


def test_a_range_that_is_none_is_refused_where_it_is_written():
    for score_range in ([1, 0], [0, 0], [0], "01", [0, "1"], [0, float("inf")], 1, [False, True]):
        with pytest.raises(PipelineError, match=r"parts\.0\.score_range: got .*accepted: two finite numbers"):
            built(parts=[{"name": "gt", "score_range": score_range}])


def test_a_problem_of_a_composite_has_one_accepted_text_and_composites_do_not_nest_without_end():
    for options, problem in rows_of("composite", "a_problem_of_a_composite_has_one_accepted_text"):
        with pytest.raises(PipelineError) as caught:
            built(**options)
        assert [str(each) for each in caught.value.problems] == [f"rewarders.1: composite: options{problem}"]
    nested: dict[str, Any] = {"parts": [{"name": "gt"}]}
    for _ in range(12):
        nested = {"parts": [{"name": "composite", "options": nested}]}
    with pytest.raises(PipelineError, match="within each other"):
        built(**nested)


def test_what_the_judges_of_a_composite_take_is_known_beforehand():
    parts = [{"name": "judge", "options": {"votes": 2}}, {"name": "gt"}]
    (load,) = judge_loads(built(parts=parts), 2)
    assert (load.calls_low, load.calls_high) == (2, 8)
    (gated,) = judge_loads(built(parts=parts, gates=[{"name": "json_valid"}]), 2)
    assert (gated.calls_low, gated.calls_high) == (0, 8)  # gates may close on everything


def mix(*parts, gates=()) -> Composite:
    return Composite(parts, gates, rewarder_id="graders", whole=True)


async def mixed(composite: Composite, *outputs: str):
    """Return the verdict of a mix on each output, and the scores of its graders, gates first."""
    dataset = ByDataset("mix", lambda context: (composite, context), (composite,))
    with ScoreRunner(timeout_s=30.0) as runner:
        (found,) = await runner.score(dataset, [group(*(outputs or "A"))])
        (rows,) = await runner.rows(composite.members, [group(*(outputs or "A"))])
    return found, [numbers(row) for row in rows]


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.001, 10)), min_size=1, max_size=5), st.lists(st.floats(-2, 2), max_size=3)
)
def test_the_reward_of_a_mix_is_the_weighted_mean_times_every_gate_and_is_not_clamped(parts, gates):
    composite = mix(
        *(part(f"p{at}", *each) for at, each in enumerate(parts)), gates=tuple(scripted("g", each) for each in gates)
    )
    row = [RewardScore("", score, "") for score in (*gates, *(score for score, _ in parts))]
    whole = math.fsum(weight for _, weight in parts)
    expected = sum(value * weight for value, weight in parts) / whole * math.prod(gates)
    assert composite.reward(row) == pytest.approx(expected, abs=1e-9)


async def test_a_missing_score_leaves_its_item_of_a_mix_ungraded_and_no_other():
    sure, picky = part("a", 1.0), part("picky", {"A": 1.0, "B": None, "C": 1.0})
    for composite in (mix(sure, picky), mix(sure, gates=(picky.scorer,)), mix(sure, replace(picky, weight=0.0))):
        found, _ = await mixed(composite, *"ABC")
        assert (numbers(found), found[1]) == ([1.0, None, 1.0], Abstained("mix", "picky: no idea"))


async def test_a_reward_of_a_mix_that_is_beyond_those_of_scorers_and_an_item_of_no_dataset_are_ungraded():
    for gates in ([9e99] * 4, [2.0]):
        found, _ = await mixed(mix(part("a", 9e99), gates=tuple(scripted("g", each) for each in gates)))
        assert found == (Abstained("mix", "the combined reward is no finite number of at most 1e+100"),)

    def route(context):
        raise ValueError("no such dataset")

    with ScoreRunner() as runner:
        ((verdict,),) = await runner.score(ByDataset("mix", route, ()), [group("A")])
    assert (verdict.rewarder_id, verdict.reason) == ("mix", "ValueError: no such dataset")
