"""The service answers requests in the form that command-line coding agents send them."""

from __future__ import annotations

import json

import pytest

from benchmarks.generated_items import generate_items
from tests.support.models.simulated_calls import in_process
from tests.tasks.models.simulated.test_dialects import FUNCTIONS, LESSONS, calls_of, continued, text_of
from tfgrpo.tasks.models.simulated.worlds.ledger import run_call
from tfgrpo.tasks.models.simulated.worlds.puzzle import ToolCall

QUESTION = generate_items("ledger-tools", 3)[2]["prompt"]


def by_codex(prompt):
    """Developer messages in place of instructions, tools of an MCP server in a namespace, ids and labels."""
    items = [
        {"type": "message", "id": f"msg_{number}", "role": role, "content": [{"type": "input_text", "text": text}],
         "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
        for number, (role, text) in enumerate((("developer", "You code."), ("user", "<cwd>/tmp</cwd>"), ("user", prompt)))
    ]  # fmt: skip
    tools = [
        {"type": "function", "name": "exec_command", "description": "", "strict": False, "parameters": {}},
        {"type": "namespace", "name": "mcp__books", "description": "", "tools": [
            {"type": "function", "strict": False, **each} for each in FUNCTIONS
        ]},
        {"type": "web_search", "external_web_access": False},
    ]  # fmt: skip
    labels = {
        "prompt_cache_key": "s",
        "client_metadata": {"session_id": "s"},
        "include": ["reasoning.encrypted_content"],
    }
    return {"model": "simulated", "input": items, "tools": tools, "store": False, "tool_choice": "auto", **labels}


def by_claude_code(prompt):
    """Blocks of system text, a system message within the conversation, tools that have their server's name in front."""
    blocks = [{"type": "text", "text": "You code.", "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": f"mcp__books__{each['name']}", "input_schema": each["parameters"]} for each in FUNCTIONS]
    turns = [
        {"role": "user", "content": [{"type": "text", "text": prompt}]},
        {"role": "system", "content": "Skills: none."},
    ]
    body = {"model": "simulated", "max_tokens": 32_000, "system": blocks, "messages": turns, "tools": tools}
    return {
        **body,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "{}"},
    }


async def worked(dialect, body, wrapped):
    """Names of the calls, and the answer, of a conversation with the real tools."""
    names = []
    async with in_process(world="ledger-tools") as client:
        while True:
            reply = await client.post(f"/{dialect}", json=body)
            assert reply.status_code == 200, reply.text
            answer = reply.json()
            calls = calls_of(dialect, answer)
            if not calls:
                return names, text_of(dialect, answer)
            names += [name for _, name, _ in calls]
            done = [(key, ToolCall(name.rpartition("__")[2], given)) for key, name, given in calls]
            body = continued(dialect, body, answer, [(key, wrapped(run_call(call).result)) for key, call in done])


def with_tools_in_an_item(body):
    """As Codex asks its newest models."""
    code = {"type": "custom", "name": "exec", "format": {"type": "grammar"}}
    tools = [{"type": "namespace", "name": "functions", "tools": [code]}, *body.pop("tools")]
    return {**body, "input": [{"type": "additional_tools", "role": "developer", "tools": tools}, *body["input"]]}


@pytest.mark.parametrize("body", [by_codex(QUESTION), with_tools_in_an_item(by_codex(QUESTION))])
async def test_codex_works_a_question_with_the_tools_of_a_namespace(body):
    timed = "Wall time: 0.0033 seconds\nOutput:\n"
    names, text = await worked("responses", body, lambda result: timed + result)
    assert set(names) == {"ledger_entries", "add"}
    assert "SIMULATED" not in text


async def test_a_call_of_a_function_in_a_namespace_names_both():
    async with in_process(world="ledger-tools") as client:
        answer = (await client.post("/responses", json=by_codex(QUESTION))).json()
    (call,) = (item for item in answer["output"] if item["type"] == "function_call")
    assert (call["namespace"], call["name"]) == ("mcp__books", "ledger_entries")


async def test_claude_code_works_a_question_with_tools_that_have_their_servers_name():
    names, text = await worked("messages", by_claude_code(QUESTION), lambda result: result)
    assert set(names) == {"mcp__books__ledger_entries", "mcp__books__add"}
    assert "SIMULATED" not in text


async def test_lessons_in_a_system_message_within_the_conversation_count():
    prompt = generate_items("arithmetic", 1)[0]
    shares = []
    async with in_process() as client:
        for lessons in ("None.", LESSONS):
            body = by_claude_code(prompt["prompt"])
            body["messages"][1]["content"] = lessons
            replies = [(await client.post("/messages", json=body)).json() for _ in range(60)]
            shares.append(sum(prompt["answer"] in json.dumps(reply["content"]) for reply in replies) / 60)
    assert shares[1] > shares[0] + 0.3, shares


async def test_a_websocket_is_refused_so_that_codex_turns_to_http():
    async with in_process() as client:
        refused = await client.get("/responses")
    assert (refused.status_code, refused.json()["error"]["type"]) == (426, "invalid_request_error")
