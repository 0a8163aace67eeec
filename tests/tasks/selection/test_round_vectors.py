"""A round with only syntax repaired chooses what earlier systems choose; by default it repairs more."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from tests.support.agents.rounds import FOOTPRINT, GOOD, by_index, run, spec
from tests.support.agents.steps import ScriptedModel, item, weighted
from tests.support.vectors import read_vectors
from tfgrpo.stores.errors import SelectionFailed
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.selection.formats import PowlFormat

# The policy of earlier systems.


@pytest.mark.parametrize(
    "case", [case for case in read_vectors("candidate_sampler") if case["k"] > 0], ids=lambda c: c["name"]
)
def test_calls_and_candidates_are_those_of_earlier_systems_when_only_syntax_is_repaired(tmp_path, case):
    seen = defaultdict(int)

    def answer(request, key):
        name = str(request.temperature)
        replies = case["replies_by_temperature"].get(name, case["replies_by_temperature"]["*"])
        seen[name] += 1
        return replies[min(seen[name], len(replies)) - 1]

    model = ScriptedModel(answer)
    asked = spec(k=case["k"], format=PowlFormat("syntax"), item=item(answer=GOOD))
    selection = run(tmp_path, model, asked, rewarders=FOOTPRINT)
    assert Counter(str(request.temperature) for request, _ in model.requests) == case["calls_by_temperature"]
    assert len(model.requests) == case["total_calls"]
    valid = [candidate.index for candidate in selection.candidates if candidate.valid]
    assert valid == case.get("returned_candidate_indices", [])
    if "error_type" in case:
        with pytest.raises(SelectionFailed, match="parse_error"):
            _ = selection.best


def test_by_default_every_mistake_is_repaired_where_earlier_systems_dropped_the_candidate(tmp_path):
    case = next(case for case in read_vectors("candidate_sampler") if case["name"] == "k2_loop_arity_not_retried")
    table = case["replies_by_temperature"]
    seen = defaultdict(int)

    def answer(request, key):
        replies = table.get(str(request.temperature), table["*"])
        seen[request.temperature] += 1
        return replies[seen[request.temperature] - 1]

    selection = run(
        tmp_path, ScriptedModel(answer), spec(k=2, format=PowlFormat(), item=item(answer=GOOD)), rewarders=FOOTPRINT
    )
    assert [candidate.valid for candidate in selection.candidates] == [True, True]


@pytest.mark.parametrize("case", read_vectors("best_of_k"), ids=lambda case: case["name"])
def test_scored_candidates_and_choice_are_those_of_earlier_systems(tmp_path, case):
    texts = [json.dumps(each["model_json"]) for each in case["candidates"]]
    rewards = dict(zip(texts, (each["reward"] for each in case["candidates"]), strict=True))

    class Table:
        rewarder_id = "table"

        def score(self, context):
            found = [rewards[attempt.output] for attempt in context.outputs]
            assert "!raise" not in found
            return [RewardScore("table", float(reward), "") for reward in found]

    asked = spec(k=len(texts), format=PowlFormat("syntax"), none_valid="best_effort")
    selection = run(tmp_path, by_index(*texts), asked, rewarders=(weighted(Table()),))
    assert sorted(selection.grades) == case["scored_indices"]
    assert selection.choice.index == case["best_index"]
