"""``tool_calls``, ``cost``, ``latency`` and ``tokens``: by what is known of how an attempt was made."""

from __future__ import annotations

import json

import pytest

from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, GraderInput, RewardContext
from tfgrpo.stores.errors import PipelineError

FIND = {"name": "find", "arguments": {"q": "tea", "most": 3}}
OPEN = {"name": "open", "arguments": {"page": 2}}
BUY = {"name": "buy", "arguments": {}}


async def scored(name, options, facts, *, answer="", metadata=None, tokens=7):
    attempts = (Attempt("r0", 0, "done", tokens, facts),)
    context = RewardContext("f#q", "q", "p", answer, attempts, metadata=metadata or {})
    with ScoreRunner() as runner:
        ((verdict,),) = await runner.score(build_scorer(name, options), [context])
    return verdict


async def shares(made, reference, **options):
    found = {}
    for mode in ("exact", "any_order", "subset"):
        verdict = await scored(
            "tool_calls", {"mode": mode, **options}, {"tool_calls": made}, answer=json.dumps(reference)
        )
        found[mode] = verdict.score
    return found


@pytest.mark.parametrize(
    ("made", "exact", "any_order", "subset"),
    [
        ([FIND, OPEN], 1.0, 1.0, 1.0),
        ([OPEN, FIND], 0.0, 1.0, 1.0),
        ([FIND], 0.5, 0.5, 0.5),
        ([], 0.0, 0.0, 0.0),
        ([FIND, OPEN, BUY], 2 / 3, 2 / 3, 1.0),
        ([BUY, FIND, OPEN], 0.0, 2 / 3, 1.0),
        ([FIND, FIND], 0.5, 0.5, 0.5),
        ([FIND, {"name": "open", "arguments": {"page": 3}}], 0.5, 0.5, 0.5),
        ([FIND, {"name": "Open", "arguments": {"page": 2}}], 0.5, 0.5, 0.5),
    ],
)
async def test_the_share_of_calls_that_are_as_in_the_reference(made, exact, any_order, subset):
    found = await shares(made, [FIND, OPEN])
    assert list(found.values()) == pytest.approx([exact, any_order, subset])
    whole = await shares(made, [FIND, OPEN], all=True)
    assert whole == {mode: float(share == 1.0) for mode, share in found.items()}


async def test_no_call_is_right_where_the_reference_is_an_empty_list():
    assert await shares([], []) == {"exact": 1.0, "any_order": 1.0, "subset": 1.0}
    assert await shares([BUY], []) == {"exact": 0.0, "any_order": 0.0, "subset": 1.0}


@pytest.mark.parametrize(
    "made",
    [
        {"name": "find", "arguments": '{"most": 3.0, "q": "tea"}'},
        {"function": {"name": "find", "arguments": '{"q": "tea", "most": 3}'}, "id": "c1", "type": "function"},
    ],
)
async def test_arguments_are_compared_as_values_in_any_spelling(made):
    assert (await shares([made], [FIND]))["exact"] == 1.0
    assert (await shares([made], [{"name": "find"}]))["exact"] == 1.0
    assert (await shares([made], [{"function": {"name": "find", "arguments": '{"q":"tea","most":3}'}}]))["exact"] == 1.0
    for other in ({"q": "tea"}, {"q": "tea", "most": True}, {"q": "Tea", "most": 3}):
        assert (await shares([made], [{"name": "find", "arguments": other}]))["exact"] == 0.0


async def test_a_call_with_named_arguments_is_found_before_one_that_fits_any():
    assert (await shares([FIND, BUY, {"name": "find", "arguments": {}}], [{"name": "find"}, FIND, BUY]))[
        "any_order"
    ] == 1.0


async def test_the_reference_may_be_in_the_metadata_and_be_one_of_several():
    facts = {"tool_calls": [OPEN]}
    assert (await scored("tool_calls", {}, facts, answer="42", metadata={"tool_calls": [OPEN]})).score == 1.0
    assert (
        await scored("tool_calls", {}, facts, answer="42", metadata={"tool_calls": json.dumps([FIND])})
    ).score == 0.0
    one = build_scorer("tool_calls")
    record = {"answer": [json.dumps([FIND]), json.dumps([OPEN])]}
    assert one.call(GraderInput("s", record, "", None, None, attempt=facts)).score == 1.0
    assert (
        one.call(GraderInput("s", {"answer": [FIND, OPEN]}, "", None, None, attempt={"tool_calls": [FIND, OPEN]})).score
        == 1.0
    )


async def test_the_evidence_names_what_is_missing_and_what_is_too_much():
    verdict = await scored("tool_calls", {}, {"tool_calls": [FIND, BUY]}, answer=json.dumps([FIND, OPEN]))
    assert verdict.evidence == (
        '1 of 2 calls of the reference; missing: open({"page":2}); not in the reference: buy({})'
    )


@pytest.mark.parametrize(
    ("facts", "answer", "reason"),
    [
        ({}, json.dumps([FIND]), "the tool calls of the attempt are not known"),
        ({"tool_calls": None}, json.dumps([FIND]), "the tool calls of the attempt are not known"),
        (
            {"tool_calls": [{"name": "find", "arguments": None}]},
            json.dumps([FIND]),
            "arguments of the calls of find are not known",
        ),
        ({"tool_calls": []}, "", "is not a list of objects with name and arguments"),
        ({"tool_calls": []}, "42", "is not a list of objects"),
        ({"tool_calls": []}, '["find"]', "is no object with name and arguments"),
    ],
)
async def test_what_is_not_known_leaves_the_attempt_ungraded(facts, answer, reason):
    verdict = await scored("tool_calls", {}, facts, answer=answer)
    assert isinstance(verdict, Abstained)
    assert reason in verdict.reason
    assert not verdict.broke


def test_records_without_a_usable_reference_are_counted_beforehand():
    check = build_scorer("tool_calls").unusable
    assert "is not a list" in check({"answer": "42"})
    assert check({"answer": "42", "metadata": {"tool_calls": [FIND]}}) is None
    assert check({"answer": json.dumps([FIND])}) is None


@pytest.mark.parametrize(
    ("name", "key", "options", "figure", "score"),
    [
        ("cost", "cost_usd", {"worst": 0.1}, 0.0, 1.0),
        ("cost", "cost_usd", {"worst": 0.1}, 0.025, 0.75),
        ("cost", "cost_usd", {"worst": 0.1}, 5.0, 0.0),
        ("cost", "cost_usd", {"worst": 0.1, "best": 0.05}, 0.01, 1.0),
        ("latency", "latency_s", {"worst": 10, "best": 5}, 6.0, 0.8),
        ("latency", "latency_s", {"worst": 10, "best": 20}, 15, 0.5),
        ("tokens", "completion_tokens", {"worst": 100}, 25, 0.75),
    ],
)
async def test_a_figure_is_scored_from_best_to_worst(name, key, options, figure, score):
    verdict = await scored(name, options, {key: figure}, tokens=figure if name == "tokens" else None)
    assert verdict.score == pytest.approx(score)


@pytest.mark.parametrize(
    ("name", "key"), [("cost", "cost_usd"), ("latency", "latency_s"), ("tokens", "completion_tokens")]
)
async def test_an_unknown_figure_is_ungraded_and_never_zero(name, key):
    for facts in ({}, {key: None}, {key: float("nan")}, {key: -1.0}, {key: "0.1"}):
        verdict = await scored(name, {"worst": 1.0}, facts, tokens=None)
        assert isinstance(verdict, Abstained), facts
        assert verdict.reason.endswith(f"the {key} of the attempt is not known")


async def test_cost_is_a_part_of_a_composite_whose_policy_decides_what_unknown_means():
    parts = [{"name": "gt", "weight": 3.0}, {"name": "cost", "weight": 1.0, "options": {"worst": 0.1}}]
    for policy, known, unknown in (("fail", 0.875, None), ("skip", 0.875, 1.0)):
        options = {"parts": parts, "on_abstain": policy}
        assert (await scored("composite", options, {"cost_usd": 0.05}, answer="done")).score == known
        assert getattr(await scored("composite", options, {}, answer="done"), "score", None) == unknown


@pytest.mark.parametrize(
    "options", [{}, {"worst": 0.0}, {"worst": 1, "best": 1}, {"worst": float("inf")}, {"worst": "1"}]
)
def test_the_ends_of_a_figure_are_checked_before_anything_is_spent(options):
    with pytest.raises(PipelineError):
        build_scorer("cost", options)
