"""What docs/experience-batches.md shows is what the program does: its code runs, its tables are the program's."""

from __future__ import annotations

import json
from typing import get_args

import httpx
import pytest

from tests.support.agents.endpoint import Endpoint
from tests.support.runs.pages import blocks, page, table
from tfgrpo.rewarders.advantages.batch import ESTIMATORS, PRESET_ALIASES, batch_advantages
from tfgrpo.stores.batch.batch import RaggedPolicy
from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.tasks.collector import ExperienceCollector

PAGE = "docs/experience-batches.md"


def test_the_code_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block.text for block in blocks(PAGE, "python"))
    exec(compile(code, PAGE, "exec"), {"__name__": "page"})
    assert (tmp_path / "groups.parquet").exists()


async def test_the_endpoint_of_the_page_answers_a_group_with_one_request():
    names: dict = {"LogProbs": LogProbs}
    (shown,) = (block.text for block in blocks(PAGE, "python") if "class ChatPolicy" in block.text)
    exec(compile(shown, PAGE, "exec"), names)
    choice = {"message": {"content": "42"}, "logprobs": {"content": [{"token": "42", "logprob": -0.5}]}}
    async with Endpoint() as endpoint:
        endpoint.answer = lambda request, raw: {"choices": [choice] * json.loads(raw)["n"]}
        policy = names["ChatPolicy"](endpoint.url, "m", "sk-secret-123456")
        async with policy.http:
            batch = (await ExperienceCollector(policy, lambda state, text: 1.0, 8).collect(["6 * 7?"])).batch
    (asked,) = endpoint.asked
    assert httpx.Headers(asked.headers)["authorization"] == "Bearer sk-secret-123456"
    assert [(each.completion, each.logprob.total, each.logprob.complete) for each in batch.rollouts()] == [
        ("42", -0.5, True)
    ] * 8


def test_every_estimator_is_in_the_table_with_its_names_formula_and_needs():
    shown = {row[0].strip("`"): row[1:] for row in table(page(PAGE), "estimator")}
    assert list(shown) == list(ESTIMATORS)
    for name, (aliases, formula, needs, alone) in shown.items():
        estimator = ESTIMATORS[name]
        assert [alias.strip("`") for alias in aliases.split(", ") if alias != "–"] == [
            alias for alias, target in PRESET_ALIASES.items() if target == name
        ]
        assert formula == estimator.formula
        assert ("token lengths" in needs) == ("token_lengths" in estimator.needs)
        assert ("greedy" in needs) == ("greedy" in estimator.needs)
        assert ("the batch" in needs) == ("batch" in estimator.needs)
        assert alone == alone_in_the_batch(name), name


def alone_in_the_batch(name):
    """What a reward gets that is alone in its group, beside another group, as the column says it."""
    groups, more = [[0.75], [1.0, 0.0, 0.5]], {"token_lengths": [[3], [2, 4, 5]], "greedy": [0.5, 0.5]}
    if ESTIMATORS[name].singleton == "refuse":
        with pytest.raises(ValueError, match="has a single reward"):
            batch_advantages(groups, estimator=name, **more)
        return "refuse"
    value = batch_advantages(groups, estimator=name, **more)[0, 0]
    known = {0.0: "zero", 0.75: "r", 0.75 / (1 + 1e-6): "r / (1 + 1e-6)"}
    return known.get(value, "by the formula")


def test_every_policy_for_ragged_groups_is_in_the_table():
    rows = table(page(PAGE), "policy")
    assert [row[0].strip("`") for row in rows] == list(get_args(RaggedPolicy))
