"""What is measured of an agent's tools behind the gateway is what the tools actor measures on the same world."""

from __future__ import annotations

import json

import pytest

from tests.support.agents.upstream import needs
from tests.support.runs.running import ROOT, lines, paths, run

ACTORS = {"by_hand": (), "sdk_tools": ("agents",), "pydantic_tools": ("pydantic_ai", "openai")}


def measured(out, **actor):
    """Calls, tokens and errors of each tool, and outputs by item, of a run without learning at temperature 0."""
    summary = run(
        out, run_id="night", pipeline="ledger-tools", dry_run=True, sample_size=16, batch_size=8, epochs=2,
        train_temp=0.0, eval_temp=0.0, env={"FEATURE_TFGRPO_GROUP": "0"}, **actor,
    )  # fmt: skip
    assert summary.exit_code == 0, summary.message
    place = paths(out, task="ledger-tools")
    tools = json.loads(place.manifest.read_text())["tfgrpo"]["per_tool_metrics"]
    answers = {(row["epoch"], row["arm"], row["item_id"]): row["outcome"] for row in lines(place.rollouts)}
    timeless = [
        {key: value for key, value in row.items() if key not in {"latency_ms", "tool_cost_usd"}} for row in tools
    ]
    return sorted(timeless, key=lambda row: row["tool"]), {key: found.get("reward") for key, found in answers.items()}


@pytest.mark.parametrize("name", ACTORS)
def test_an_agents_tools_are_measured_as_those_of_the_tools_actor(name, tmp_path, monkeypatch):
    needs(*ACTORS[name])
    monkeypatch.chdir(ROOT)
    expected, rewards = measured(tmp_path / "tools")
    agent = {"actor__kind": f"tests/tasks/gateway/tool_agents.py:{name}", "actor__tools": "[]"}
    found, same = measured(tmp_path / "agent", **agent)
    assert len(expected) == 4
    assert all(row["calls"] > 0 and row["tokens"] > 0 for row in expected)
    assert found == expected
    assert same == rewards
