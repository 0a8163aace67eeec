"""Requests as they leave, and what is read from the replies that come."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message, TokenUsage, ToolCall, ToolSpec
from tfgrpo.tasks.models.wire import (
    decode_reply,
    decode_usage,
    encode_request,
    repeats_empty,
    request_digest,
)

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


def answered(message: dict[str, Any], finish: str | None = "stop", **choice: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish, **choice}]}


def test_an_ordinary_reply_is_read() -> None:
    body = {"id": "x", "model": "served", **answered({"role": "assistant", "content": "4"})}
    answer = decode_reply(body)
    assert answer.message == Message("assistant", "4")
    assert (answer.finish_reason, answer.model, answer.response_id) == ("stop", "served", "x")
    assert answer.token_logprobs is None


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("end_turn", "stop"),
        ("content_filter", "content_filter"),
        ("a_reason_of_its_own", "other"),
        (None, "other"),
    ],
)
def test_finish_reasons_of_vendors_are_mapped(reason: str | None, meant: str) -> None:
    assert decode_reply(answered({"content": "x"}, reason)).finish_reason == meant


def test_tool_calls_with_known_deviations_of_vendors_are_read() -> None:
    calls = [
        {"function": {"name": "add", "arguments": {"a": 1}}},
        {"id": "", "function": {"name": "add", "arguments": ""}},
        {"id": "k", "type": "function", "function": {"name": "get"}},
        {"id": "k", "type": "function", "function": {"name": "get", "arguments": "not json"}},
    ]
    answer = decode_reply(answered({"content": "", "tool_calls": calls}))
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    assert [call.arguments for call in answer.message.tool_calls] == ['{"a": 1}', "{}", "{}", "not json"]
    assert len({call.id for call in answer.message.tool_calls}) == 4
    assert answer.message.tool_calls[2].id == "k"
    assert decode_reply(answered({"content": "", "tool_calls": calls})) == answer


def test_a_reply_cut_off_among_tool_calls_says_so() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}]
    assert decode_reply(answered({"content": None, "tool_calls": calls}, "length")).finish_reason == "length"


def test_content_given_as_parts_is_joined_without_the_thinking() -> None:
    parts = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "4"}, {"type": "text", "text": "2"}, "stray"]
    assert decode_reply(answered({"content": parts})).message.content == "42"


def test_a_refusal_is_an_answer_that_was_filtered() -> None:
    answer = decode_reply(answered({"content": None, "refusal": "I cannot."}))
    assert (answer.message.content, answer.finish_reason) == ("I cannot.", "content_filter")


def test_lone_surrogates_of_a_reply_are_replaced_and_pairs_kept() -> None:
    body = json.loads(b'{"choices":[{"message":{"content":"a\\ud800b \\ud83d\\ude00"}}]}')
    assert decode_reply(body).message.content == "a\ufffdb \U0001f600"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": "no"},
        {"choices": [{"finish_reason": "stop"}]},
        {"error": {"message": "overloaded"}},
        answered({"content": ""}),
        answered({"content": " \n"}),
        answered({"content": None}),
        answered({"content": None, "tool_calls": []}),
        answered({"content": 7}),
        answered({"content": "x", "tool_calls": {"a": 1}}),
        answered({"content": "x", "tool_calls": [{"function": {"arguments": "{}"}}]}),
    ],
)
def test_a_reply_without_an_answer_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(ModelReplyMalformed):
        decode_reply(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "message", "content", "tool_calls", "function", "name", "logprobs", "usage"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_no_reply_breaks_the_decoder(body: Any) -> None:
    shape = body if isinstance(body, dict) else {"choices": [{"message": body}]}
    repeats_empty(shape)
    decode_usage(shape)
    with contextlib.suppress(ModelReplyMalformed):
        decode_reply(shape)


@pytest.mark.parametrize(
    ("usage", "meant"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, TokenUsage(3, 4)),
        ({"prompt_tokens": 3, "total_tokens": 7}, TokenUsage(3, 4)),
        ({"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": None}, TokenUsage(3, 4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            TokenUsage(9, 4, cached=8, reasoning=2),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 5}},
            TokenUsage(1, 1, 1),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 560}, TokenUsage(10, 550)),
        (
            {
                "prompt_tokens": 21,
                "completion_tokens": 0,
                "total_tokens": 81,
                "completion_tokens_details": {"reasoning_tokens": 60},
            },
            TokenUsage(21, 60, reasoning=60),
        ),
        ({"prompt_tokens": 3, "total_tokens": 3}, TokenUsage(3, 0)),
        ({"prompt_tokens": 10**400, "completion_tokens": 3}, None),
        ({"prompt_tokens": 3, "completion_tokens": 1e300}, None),
        ({"prompt_tokens": 3}, None),
        ({"completion_tokens": 3, "total_tokens": 3}, None),
        ({"prompt_tokens": -1, "completion_tokens": 3}, None),
        ({"prompt_tokens": True, "completion_tokens": 3}, None),
        ({"prompt_tokens": math.nan, "completion_tokens": 3}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_is_read_or_unknown_and_never_made_up(usage: Any, meant: TokenUsage | None) -> None:
    assert decode_usage({"usage": usage}) == meant


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        ([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": 0}], (-0.5, 0.0)),
        ([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -9999.0}], None),
        ([{"token": "a", "logprob": -math.inf}], None),
        ([{"token": "a", "logprob": None}], None),
        ([{"token": "a", "logprob": -(10**400)}], None),
        ([{"token": "a", "logprob": 10**400}], None),
        ([{"token": "a"}], None),
        ([], None),
        (None, None),
    ],
)
def test_incomplete_logprobs_are_none_at_all(content: Any, meant: tuple[float, ...] | None) -> None:
    assert decode_reply(answered({"content": "x"}, logprobs={"content": content})).token_logprobs == meant


@pytest.mark.parametrize(
    ("finish", "spent"), [("length", True), ("content_filter", True), ("stop", False), (None, False)]
)
def test_an_empty_reply_that_would_repeat_is_recognised(finish: str | None, spent: bool) -> None:
    assert repeats_empty(answered({"content": ""}, finish)) is spent
    assert repeats_empty({}) is False


def test_reasoning_fields_are_kept_with_tool_calls_only() -> None:
    call = {"id": "c", "function": {"name": "add", "arguments": "{}"}, "extra_content": {"google": {"a": 1}}}
    thoughts = {"reasoning_content": "", "reasoning": None, "reasoning_details": [{"text": "é"}]}
    message = decode_reply(answered({"content": None, "tool_calls": [call], **thoughts})).message
    assert json.loads(message.extra) == {"reasoning_content": "", "reasoning_details": [{"text": "é"}]}
    assert json.loads(message.tool_calls[0].extra) == {"extra_content": {"google": {"a": 1}}}
    assert decode_reply(answered({"content": "4", **thoughts})).message == Message("assistant", "4")


def test_a_missing_call_id_becomes_one_that_every_vendor_accepts() -> None:
    calls = [{"function": {"name": "add", "arguments": "{}"}}]
    (call,) = decode_reply(answered({"content": "", "tool_calls": calls})).message.tool_calls
    assert call.id.isalnum()
    assert len(call.id) == 9
