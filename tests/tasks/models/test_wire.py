from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message, ToolCall, ToolSpec
from tfgrpo.tasks.models.wire import encode_request, request_digest

SCHEMA = AnswerSchema("lessons", {"type": "object", "properties": {"a": {"type": "integer"}}})
SYSTEM, USER = Message("system", "Be brief."), Message("user", "2+2?")


def asked(**changes: Any) -> ChatRequest:
    fields: dict[str, Any] = {"model": "m", "messages": (SYSTEM, USER), "temperature": 0.7, "max_tokens": 64}
    return ChatRequest(**{**fields, **changes})


def sent(request: ChatRequest, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_request(request, ModelSettings(**options)))
    return body


def test_a_minimal_request_has_exactly_the_fields_of_the_protocol() -> None:
    assert sent(asked(seed=7)) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
        "temperature": 0.7,
        "max_tokens": 64,
        "seed": 7,
    }


def test_tools_calls_and_tool_results_are_encoded_as_the_protocol_has_them() -> None:
    history = (
        USER,
        Message("assistant", None, tool_calls=(ToolCall("c1", "add", '{"a":2}'),)),
        Message("tool", "4", tool_call_id="c1"),
    )
    tool = ToolSpec("add", "Adds.", {"type": "object"})
    body = sent(asked(messages=history, tools=(tool,)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    ]
    assert "tool_choice" not in body
    function = {"name": "add", "arguments": '{"a":2}'}
    assert body["messages"][1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert body["messages"][2] == {"role": "tool", "content": "4", "tool_call_id": "c1"}


def test_each_wire_option_changes_the_body() -> None:
    request = asked(seed=1, answer_schema=SCHEMA)
    assert sent(request, max_tokens_field="max_completion_tokens")["max_completion_tokens"] == 64
    assert "max_tokens" not in sent(request, max_tokens_field="max_completion_tokens")
    assert "seed" not in sent(request, send_seed=False)
    assert sent(request)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "lessons", "strict": True, "schema": SCHEMA.schema},
    }
    assert sent(request, structured="json_object")["response_format"] == {"type": "json_object"}
    assert "response_format" not in sent(request, structured="none")
    assert sent(asked(logprobs=True))["logprobs"] is True


@pytest.mark.parametrize("structured", ["json_object", "none"])
def test_without_structured_output_the_schema_is_in_the_system_prompt(structured: str) -> None:
    told = sent(asked(answer_schema=SCHEMA), structured=structured)["messages"]
    assert told[0]["content"].startswith("Be brief.\n\n")
    assert told[0]["content"].endswith(json.dumps(SCHEMA.schema))
    assert told[1] == {"role": "user", "content": "2+2?"}
    without_system = sent(asked(messages=(USER,), answer_schema=SCHEMA), structured=structured)["messages"]
    assert [message["role"] for message in without_system] == ["system", "user"]


@given(st.text(alphabet=st.characters(), max_size=50))
def test_any_text_can_be_sent_and_digested_even_lone_surrogates(text: str) -> None:
    request = asked(messages=(Message("user", text),))
    assert sent(request)["messages"][0]["role"] == "user"
    assert len(request_digest(request)) == 16


def test_the_digest_depends_on_every_field_of_a_request() -> None:
    variants = [
        asked(),
        asked(model="n"),
        asked(messages=(USER,)),
        asked(temperature=0.3),
        asked(max_tokens=65),
        asked(seed=0),
        asked(tools=(ToolSpec("t", "d", {}),)),
        asked(answer_schema=SCHEMA),
        asked(logprobs=True),
    ]
    assert len({request_digest(request) for request in variants}) == len(variants)
    assert request_digest(asked()) == request_digest(asked())


THOUGHT = Message(
    "assistant",
    None,
    tool_calls=(
        ToolCall("c1", "add", "{}", '{"extra_content":{"google":{"thought_signature":"s"}}}'),
        ToolCall("c2", "add", "{}"),
    ),
    extra='{"reasoning_content":""}',
)


def test_reasoning_fields_of_a_tool_call_are_echoed_unless_disabled() -> None:
    request = asked(messages=(USER, THOUGHT))
    echoed = sent(request)["messages"][1]
    assert echoed["reasoning_content"] == ""
    assert echoed["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    assert set(echoed["tool_calls"][1]) == {"id", "type", "function"}
    plain = sent(request, send_reasoning=False)["messages"][1]
    assert set(plain) == {"role", "content", "tool_calls"}
    assert set(plain["tool_calls"][0]) == {"id", "type", "function"}
    bare = replace(THOUGHT, extra="", tool_calls=tuple(replace(call, extra="") for call in THOUGHT.tool_calls))
    assert request_digest(request) != request_digest(asked(messages=(USER, bare)))


def test_reasoning_without_a_tool_call_is_not_echoed() -> None:
    said = Message("assistant", "4", extra='{"reasoning":"2+2"}')
    assert sent(asked(messages=(USER, said)))["messages"][1] == {"role": "assistant", "content": "4"}
