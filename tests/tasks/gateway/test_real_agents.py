"""Programs that people run, unchanged: the same text as without the gateway, the lesson on the wire, everything measured.

Run by ``make test-agents``. None of their packages is in the test extra; where one is absent, its tests are skipped.
"""

import asyncio
import json
import os
import re
import sys
from dataclasses import replace

import pytest

from benchmarks.generated_items import LEDGER, generate_items
from tests.support.agents import steps as kit
from tests.support.agents.endpoint import SYSTEM
from tests.support.agents.upstream import OWN_HOMES, REAL_AGENTS, answer_of, direct_environment, needs, upstream
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.outcomes import Failed
from tfgrpo.tasks.actors.registry import build_actor
from tfgrpo.tasks.gateway.session import agent_environment
from tfgrpo.tasks.rollout import run_rollout

pytestmark = [pytest.mark.timeout(600), pytest.mark.untraced]

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
AGENTS = {
    "openai_chat_streamed": (CHAT, "openai"),
    "openai_azure": (CHAT, "openai"),
    "openai_responses_streamed": (RESPONSES, "openai"),
    "anthropic_streamed": (MESSAGES, "anthropic"),
    "anthropic_token": (MESSAGES, "anthropic"),
    "agents_sdk_tools": (RESPONSES, "agents"),
    "agents_sdk_streamed": (RESPONSES, "agents"),
    "mcp_tools": (RESPONSES, "agents", "mcp"),
    "pydantic_ai_chat_tools": (CHAT, "pydantic_ai", "openai"),
    "pydantic_ai_anthropic_tools": (MESSAGES, "pydantic_ai", "anthropic"),
    "agents_sdk_hosted": (RESPONSES, "agents"),
    "pydantic_ai_structured": (MESSAGES, "pydantic_ai", "anthropic"),
    "langchain_structured": (CHAT, "langchain_openai"),
    "smolagents_calling": (CHAT, "smolagents", "openai"),
    "langgraph_tools": (CHAT, "langchain", "langchain_openai"),
    "smolagents_code": (CHAT, "smolagents", "openai"),
    "dspy_predict": (CHAT, "dspy"),
    "litellm_anthropic": (MESSAGES, "litellm"),
    "agno": (CHAT, "agno"),
    "autogen": (CHAT, "apart:autogen"),
    "haystack": (CHAT, "haystack"),
    "instructor": (CHAT, "apart:instructor"),
    "ag2": (CHAT, "apart:ag2"),
    "crewai": (CHAT, "apart:crewai"),
    "strands": (CHAT, "apart:strands"),
    "aider": (CHAT, "apart:aider"),
    "gptme": (CHAT, "apart:gptme"),
    "go_http": (CHAT, "apart:go"),
    "javascript_openai_streamed": (CHAT, "node:openai"),
    "javascript_anthropic_streamed": (MESSAGES, "node:@anthropic-ai"),
    "vercel_ai_streamed": (CHAT, "node:ai"),
    "opencode": (CHAT, "bin:opencode"),
    "qwen_code": (CHAT, "bin:qwen"),
    "codex": (RESPONSES, "bin:codex"),
    "codex_by_its_own_provider": (RESPONSES, "bin:codex"),
    "codex_tools": (RESPONSES, "bin:codex", "mcp"),
    "claude_code": (MESSAGES, "bin:claude"),
    "claude_code_tools": (MESSAGES, "bin:claude", "mcp"),
}
WITH_TOOLS = tuple(name for name in AGENTS if name.endswith("_tools"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where command-line agents have their files: the same for all of a test, since they tell the model of it."""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path))
    for own in OWN_HOMES:
        monkeypatch.delenv(own, raising=False)


def lessons_of(name):
    return SYSTEM.replace("add “both” parts.", f"think of {name}.")


def world_of(name):
    return LEDGER if name in WITH_TOOLS else "arithmetic"


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_is_taught_and_measured_without_a_change(name, opened):
    path, *packages = AGENTS[name]
    python = needs(*packages)
    world = world_of(name)
    first, second = (item["prompt"] for item in generate_items(world, 4)[2:])
    async with upstream(world=world) as straight, upstream(world=world) as service, upstream(world=world) as taught:
        plain = await opened.session(opened.runtime(service.url), system="No lessons.")
        runtime = opened.runtime(taught.url)
        left, right = [await opened.session(runtime, index, lessons_of(f"arm {index}")) for index in (0, 1)]
        direct, through, one, two = await asyncio.gather(
            answer_of(name, first, direct_environment(straight.url), python),
            answer_of(name, first, agent_environment(plain, os.environ), python),
            answer_of(name, first, agent_environment(left, os.environ), python),
            answer_of(name, second, agent_environment(right, os.environ), python),
        )
    assert "Answer: " in direct or name in {"smolagents_code", "dspy_predict"}
    # Both tell the model what is of the moment: how long each tool took, what a conversation is called.
    if name not in {"codex_tools", "gptme"}:
        assert through == direct
        assert without_random_ids(bodies_of(straight)) == without_random_ids(bodies_of(service))
    assert {asked for asked, _ in service.asked} == {path}

    for session, prompt, answer, said, other in (
        (left, first, one, "think of arm 0.", "think of arm 1."),
        (right, second, two, "think of arm 1.", "think of arm 0."),
    ):
        own = [json.dumps(body, ensure_ascii=False) for _, body in taught.asked if said in json.dumps(body)]
        assert own
        assert all(text.count(said) == 1 and other not in text for text in own)
        assert all(json.dumps(prompt, ensure_ascii=False)[1:-1] in text for text in own)
        usage = session.attempt.usage
        assert usage.prompt_tokens
        assert usage.completion_tokens
        models = [frame for frame in session.attempt.frames if frame.kind == "model"]
        assert usage.calls == len(models)
        # What asks for a title, without the tools of the conversation's other calls, is not taught.
        assert sum(bool(frame.added) for frame in models) == len(own)
        assert len(models) == len(own) or name == "gptme"
        # DSPy and structured output ask for JSON. Some ask for more beside, such as a title, after the answer, too.
        answers = [said for frame in models for said in re.findall(r'Answer: ([^"}\n]+)', frame.text)[-1:]]
        assert any(said.strip() in answer for said in answers)
    assert len(taught.asked) == (left.attempt.usage.calls or 0) + (right.attempt.usage.calls or 0)
    if name in WITH_TOOLS:
        assert {event.tool.rpartition("__")[2] for event in left.attempt.tool_events} == {"ledger_entries", "add"}
        assert all(event.ok and event.tokens > 0 for event in left.attempt.tool_events)
    else:
        assert not left.attempt.tool_events


@pytest.mark.parametrize("name", ["codex", "codex_by_its_own_provider", "claude_code", "claude_code_tools"])
async def test_a_command_line_agent_that_is_started_again_repeats_no_answered_call(name, opened):
    needs(*AGENTS[name][1:])
    world = world_of(name)
    prompt = generate_items(world, 4)[2]["prompt"]
    said, asked = [], []
    async with upstream(world=world) as service:
        for _ in range(2):
            session = await opened.session(opened.runtime(service.url))
            said.append(await answer_of(name, prompt, agent_environment(session, os.environ)))
            asked.append((len(service.asked), session.attempt.usage.calls))
    assert said[0] == said[1]
    assert asked[0] == asked[1]
    assert asked[0][0] > (1 if name in WITH_TOOLS else 0)


def bodies_of(service):
    """Return what differs in nothing but the address: not the usage that a stream of chat completions is asked for."""
    return [{key: part for key, part in body.items() if key != "stream_options"} for _, body in service.asked if body]


RANDOM = {"prompt_cache_key", "id", "client_metadata", "metadata", "internal_chat_message_metadata_passthrough"}


def without_random_ids(value):
    """Replace what a client draws anew in every process."""
    if isinstance(value, dict):
        return {key: without_random_ids(part) for key, part in value.items() if key not in RANDOM}
    return [without_random_ids(part) for part in value] if isinstance(value, list) else value


async def test_an_agent_with_an_address_in_its_code_is_reported_to_bypass_the_gateway(opened):
    needs("openai")
    prompt = generate_items("arithmetic", 1)[0]["prompt"]
    async with upstream() as service:
        settings = {
            "kind": "command",
            "command": [sys.executable, str(REAL_AGENTS), "hard_wired", "{prompt}"],
            "env": [f"AGENT_UPSTREAM={service.url}"],
        }
        actor = build_actor(ActorSettings.model_validate(settings))
        runtime = replace(opened.runtime(service.url, limits=settings), actor=actor)
        rollout = await run_rollout(kit.spec(of=kit.item(prompt=prompt)), 0, runtime)
        assert len(service.asked) == 1
    assert isinstance(rollout.loss, Failed)
    assert "the agent bypassed the gateway" in rollout.loss.reason
