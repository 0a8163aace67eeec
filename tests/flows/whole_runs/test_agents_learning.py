"""Agents that nobody changed learn: over HTTP, with every call, token and tool in the books. Run by ``make test-agents``."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.generated_items import LEDGER
from tests.support.agents.upstream import NODE_PROGRAMS, OWN_HOMES, needs
from tests.support.models.agent_service import agent_app
from tests.support.runs.running import BOOKS, ROOT, RUN, Server, finish, lines, paths, run, start
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.prompt_packs.stamps import holds_lessons

pytestmark = [pytest.mark.timeout(1200), pytest.mark.untraced, pytest.mark.xdist_group("prefect")]

SDK = "examples/agents/openai_agents_sdk.py:agent"
AGENTS = {
    "openai": ("openai", "agents.yaml", "arithmetic", {}),
    "agents": ("agents", "agents.yaml", LEDGER, {"dataset": BOOKS["dataset"], "actor": SDK}),
    "command": ("anthropic", "coding-agent.yaml", "arithmetic", {}),
    "codex": ("bin:codex", "codex.yaml", "arithmetic", {}),
    "claude": ("bin:claude", "claude-code.yaml", "arithmetic", {}),
}
"""Package, pipeline, world and options of each. The command needs none: it is here because it starts 500 processes."""
TASKS = {"openai": "agents", "agents": "agents", "command": "coding-agent", "codex": "codex", "claude": "claude-code"}
COMMANDS = ("command", "codex", "claude")
SIZES = {"sample_size": 50, "batch_size": 25}
# An attempt takes them half a second of a core, and tells the model day and folder: no two of these runs are alike.
FEW = {"sample_size": 10, "batch_size": 5, "group_size": 4}
SLOW = {"codex": FEW, "claude": FEW}


@pytest.fixture(params=AGENTS)
def agent(request, monkeypatch, tmp_path):
    """Name of the agent, and the keywords of a run with it; its model at the endpoint is the simulated one."""
    package, pipeline, world, options = AGENTS[request.param]
    needs(package)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{NODE_PROGRAMS}", prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for own in OWN_HOMES:
        monkeypatch.delenv(own, raising=False)
    (tmp_path / "home").mkdir()
    text = (ROOT / "examples" / "agents" / pipeline).read_text(encoding="utf-8")
    mapped = tmp_path / pipeline
    # Commands leave their temperature open, which then is 1: too hot to show a gain in so few attempts.
    sampling = str(request.param in COMMANDS).lower()
    gateway = f"actor:\n  gateway: {{models: {{'*': simulated}}, sampling: {sampling}}}\n"
    mapped.write_text(text.replace("actor:\n", gateway), encoding="utf-8")
    return request.param, {"pipeline": str(mapped), "world": world, **options}


def served(world, **options):
    return Server(SimulatedSettings(world=world, **options), make=agent_app)


def on(server, keywords):
    return {"model": "simulated", "base_url": server.url, "run_id": RUN, **SIZES, **keywords}


def test_it_learns_and_every_call_token_and_tool_is_in_the_books(tmp_path, agent):
    name, keywords = agent
    with served(keywords["world"]) as server:
        summary = run(tmp_path, **{**on(server, keywords), **SLOW.get(name, {})})
        assert summary.exit_code == 0, summary.message
    if name in SLOW:
        assert sum(map(holds_lessons, server.bodies)) >= 10  # the attempts with lessons in the sweep
    else:
        assert summary.details["decision"]["decision"] == "in force", summary.details["decision"]["explanation"]
    place = paths(tmp_path, task=TASKS[name])
    manifest = json.loads(place.manifest.read_text())
    ledger = summary.details["ledger"]
    assert ledger["calls"] == len(server.bodies) == server.answered[200]
    assert ledger["tokens"] == server.tokens
    assert ledger["lost_calls"] == ledger["unmeasured_attempts"] == 0
    rollouts = lines(place.rollouts)
    assert {row["outcome"]["name"] for row in rollouts} == {"scored"}
    assert all(row["calls"] for row in rollouts)
    told = Counter(event["tool"] for row in rollouts for event in row["tools"])
    assert bool(told) is (name == "agents")
    metrics = Counter()
    for row in lines(place.metrics):
        metrics.update({tool["tool"]: tool["calls"] for tool in row["tools"]})
    assert metrics == told
    assert {row["tool"]: row["calls"] for row in manifest["tfgrpo"]["per_tool_metrics"]} == told


def test_the_cap_on_calls_holds(tmp_path, agent):
    _, keywords = agent
    with served(keywords["world"], latency_s=0.01) as server:
        summary = run(tmp_path, **on(server, keywords), max_calls=40)
    assert (summary.status, summary.exit_code) == ("stopped", 3), summary.message
    assert 20 <= len(server.bodies) <= 40


def test_killed_and_resumed_no_answered_call_is_repeated(tmp_path, agent):
    name, keywords = agent
    named = {"sample_size": 8, "batch_size": 4, **keywords}
    arguments = [word for key, value in named.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    with served(keywords["world"], latency_s=0.05) as server:
        process = start(tmp_path, "--model", "simulated", "--base-url", server.url, "--run-id", RUN, *arguments)
        server.wait_for(14, timeout_s=300)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        process.communicate()
        server.wait_until_idle()
        code, summary, said = finish(start(tmp_path, "--resume", RUN, "--base-url", server.url), timeout_s=600)
        assert code == 0, said
    assert summary["status"] == "finished"
    answers = [row["key"] for row in lines(paths(tmp_path, task=TASKS[name]).journal) if "/agent/" not in row["key"]]
    assert len(set(answers)) == len(answers)
    # Sent, but not answered when the process was killed: at most what was in flight.
    assert 0 <= len(server.bodies) - len(answers) <= 32
