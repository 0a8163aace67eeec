"""``tool_calls``, ``cost``, ``latency`` and ``tokens``: by what is known of how an attempt was made."""

from __future__ import annotations

import json

import pytest

from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext
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


async def test_the_evidence_names_what_is_missing_and_what_is_too_much():
    verdict = await scored("tool_calls", {}, {"tool_calls": [FIND, BUY]}, answer=json.dumps([FIND, OPEN]))
    assert verdict.evidence == ('1 of 2 calls of the reference; missing: open({"page":2}); not in the reference: buy({})')


@pytest.mark.parametrize(
    ("facts", "answer", "reason"),
    [
        ({}, json.dumps([FIND]), "the tool calls of the attempt are not known"),
        (
            {"tool_calls": [{"name": "find", "arguments": None}]},
            json.dumps([FIND]),
            "arguments of the calls of find are not known",
        ),
        ({"tool_calls": []}, "", "is not a list of objects with name and arguments"),
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


@pytest.mark.parametrize(("name", "key"), [("cost", "cost_usd"), ("latency", "latency_s"), ("tokens", "completion_tokens")])
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


@pytest.mark.parametrize("options", [{}, {"worst": 0.0}, {"worst": 1, "best": 1}, {"worst": float("inf")}, {"worst": "1"}])
def test_the_ends_of_a_figure_are_checked_before_anything_is_spent(options):
    with pytest.raises(PipelineError):
        build_scorer("cost", options)
