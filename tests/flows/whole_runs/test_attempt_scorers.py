"""A run's attempts are scored by how they were made: tool calls, cost, time and tokens, and alike when it is replayed."""

import json
import textwrap

import pytest

from tests.support.runs import running as kit
from tfgrpo.stores.files.layout import TaskPaths

SEEN = """
import json

def seen(graded):
    return {"score": 0.5, "reason": json.dumps(graded.attempt, sort_keys=True)}
"""
AGENT = """
import json, urllib.request
from examples.agents import bookkeeping

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("accounts_of", "ledger_entries", "exchange_rate", "add")
]

def agent(prompt, system, base_url, api_key):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    for _ in range(8):
        body = json.dumps({"model": "simulated", "messages": messages, "tools": TOOLS}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, headers)) as reply:
            message = json.load(reply)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            function = call["function"]
            result = getattr(bookkeeping, function["name"])(**json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
"""
QUIET = "def agent(prompt):\n    return '42'\n"
REPORTING = """
from tfgrpo.tasks.shapes import Frame, Trajectory

def agent(prompt):
    made = Frame("tool", "find", "found", 3, None, 1500.0, calls=(("find", '{"q": "tea"}'),))
    unknown = Frame("tool", "open", "opened", 3, None, 500.0)
    return Trajectory("42", (made, unknown))
"""
PARTS = [
    {"name": "cost", "weight": 0.0, "options": {"worst": 1.0}},
    {"name": "latency", "weight": 0.0, "options": {"worst": 1000.0}},
    {"name": "tokens", "weight": 0.0, "options": {"worst": 100000.0}},
]


@pytest.fixture
def attempts(at_home, tmp_path):
    """Run something small, and return what each attempt's scorers saw, with its scores, of the run or of its replay."""
    out = tmp_path / "out"
    (at_home / "seen.py").write_text(SEEN)

    def attempts(agent=None, **more):
        if agent is not None:
            (at_home / "agent.py").write_text(textwrap.dedent(agent))
            more["actor"] = "agent.py:agent"
        rewarders = json.dumps([{"name": "gt"}, {"name": "seen.py:seen", "weight": 0.0}, *PARTS])
        asked = {"dry_run": True, "sample_size": 4, "batch_size": 4, "epochs": 2, "rewarders": rewarders, **more}
        assert kit.run(out, run_id="night", allow_zero=True, **asked).status == "finished"
        return seen(TaskPaths.of(out, kit.TASK).run("night").rollouts)

    def replayed():
        assert kit.run(out, replay="night").status == "finished"
        (path,) = set(out.rglob("rollouts.jsonl")) - {TaskPaths.of(out, kit.TASK).run("night").rollouts}
        return seen(path)

    attempts.replayed = replayed
    return attempts


def seen(path):
    rows = [row for row in kit.lines(path) if row["scores"]]
    found = {}
    for row in rows:
        scores = {score["rewarder_id"]: score for score in row["scores"]}
        found[row["rollout_id"].partition(":")[2]] = (json.loads(scores.pop("seen.py:seen")["evidence"]), scores, row)
    assert found
    return found


def facts_of(found):
    return {name: facts for name, (facts, _, _) in found.items()}


@pytest.mark.parametrize(
    ("agent", "asked"),
    [(None, {**kit.BOOKS, "task_id": kit.TASK}), (AGENT, {key: kit.BOOKS[key] for key in ("world", "dataset")})],
    ids=["tools", "gateway"],
)
def test_tool_calls_of_an_attempt_are_those_that_its_model_asked_for(attempts, agent, asked):
    made = attempts(agent, **asked)
    for facts, scores, row in made.values():
        counted = [event["tool"] for event in row["tools"]]
        assert [call["name"] for call in facts["tool_calls"]] == counted != []
        assert all(isinstance(json.loads(call["arguments"]), dict) for call in facts["tool_calls"])
        assert facts["cost_usd"] == row["cost_usd"] > 0
        assert facts["latency_s"] > 0
        assert scores["cost"]["score"] == pytest.approx(1 - facts["cost_usd"])
        assert scores["latency"]["score"] == pytest.approx(1 - facts["latency_s"] / 1000)
        assert scores["tokens"]["score"] == pytest.approx(1 - row["completion_tokens"] / 100000)
    assert facts_of(attempts.replayed()) == facts_of(made)


def test_of_an_agent_whose_calls_are_not_seen_only_the_time_is_known(attempts):
    for facts, scores, _ in attempts(QUIET).values():
        assert (facts["tool_calls"], facts["cost_usd"]) == (None, None)
        assert facts["latency_s"] > 0
        assert {*scores} == {"gt", "latency"}


def test_an_agent_may_report_its_tools_with_or_without_their_arguments(attempts):
    made = attempts(REPORTING)
    for facts, _, _ in made.values():
        assert facts["tool_calls"] == [{"name": "find", "arguments": '{"q": "tea"}'}, {"name": "open", "arguments": None}]
    assert facts_of(attempts.replayed()) == facts_of(made)
