"""Requests as they leave, and what is read from the replies that come, those of vendors in their own shapes."""

import contextlib
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message, TokenUsage, ToolCall, ToolSpec
from tfgrpo.tasks.models.wire import decode_reply, decode_usage, encode_request, repeats_empty, request_digest

SCHEMA = AnswerSchema("lessons", {"type": "object", "properties": {"a": {"type": "integer"}}})
SYSTEM, USER = Message("system", "Be brief."), Message("user", "2+2?")
TOOL = ToolSpec("add", "Adds.", {"type": "object"})
PLAIN = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
    "temperature": 0.7,
    "max_tokens": 64,
}


def asked(**changes):
    return ChatRequest(**{"model": "m", "messages": (SYSTEM, USER), "temperature": 0.7, "max_tokens": 64, **changes})


def sent(request, **options):
    return json.loads(encode_request(request, ModelSettings(**options)))


FORMAT = {"type": "json_schema", "json_schema": {"name": "lessons", "strict": True, "schema": SCHEMA.schema}}
LIMITED = {**{key: part for key, part in PLAIN.items() if key != "max_tokens"}, "max_completion_tokens": 64}


@pytest.mark.parametrize(("request_", "options", "body"), [
    (asked(seed=7), {}, {**PLAIN, "seed": 7}), (asked(seed=7), {"send_seed": False}, PLAIN),
    (asked(), {"max_tokens_field": "max_completion_tokens"}, LIMITED),
    (asked(), {"send_temperature": False}, {key: part for key, part in PLAIN.items() if key != "temperature"}),
    (asked(logprobs=True), {}, {**PLAIN, "logprobs": True}),
    (asked(answer_schema=SCHEMA), {}, {**PLAIN, "response_format": FORMAT}),
    (asked(tools=(TOOL,)), {}, {**PLAIN, "tools": [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    ]}),
])  # fmt: skip
def test_a_request_has_exactly_the_fields_of_the_protocol(request_, options, body):
    assert sent(request_, **options) == body


@pytest.mark.parametrize("structured", ["json_object", "none"])
def test_without_structured_output_the_schema_is_in_the_system_prompt(structured):
    body = sent(asked(answer_schema=SCHEMA), structured=structured)
    assert body.get("response_format") == ({"type": "json_object"} if structured == "json_object" else None)
    assert body["messages"][0]["content"].startswith("Be brief.\n\n")
    assert body["messages"][0]["content"].endswith(json.dumps(SCHEMA.schema))
    alone = sent(asked(messages=(USER,), answer_schema=SCHEMA), structured=structured)["messages"]
    assert [message["role"] for message in alone] == ["system", "user"]


THOUGHT = Message(
    "assistant",
    None,
    tool_calls=(
        ToolCall("c1", "add", '{ "a":2}', '{"extra_content":{"google":{"thought_signature":"s"}}}'),
        ToolCall("c2", "add", "{}"),
    ),
    extra='{"reasoning_content":""}',
)
RESULT = Message("tool", "4", tool_call_id="c1")


def test_calls_and_results_are_echoed_with_their_reasoning():
    request = asked(messages=(USER, THOUGHT, RESULT))
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{ "a":2}'}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
    ]
    plain = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "content": "4", "tool_call_id": "c1"}
    thoughtful = [{**calls[0], "extra_content": {"google": {"thought_signature": "s"}}}, calls[1]]
    assert sent(request)["messages"][1:] == [{**plain, "reasoning_content": "", "tool_calls": thoughtful}, result]
    bare = replace(THOUGHT, extra="", tool_calls=tuple(replace(call, extra="") for call in THOUGHT.tool_calls))
    assert request_digest(request) != request_digest(asked(messages=(USER, bare, RESULT)))
    said = Message("assistant", "4", extra='{"reasoning":"2+2"}')
    assert sent(asked(messages=(USER, said)))["messages"][1] == {"role": "assistant", "content": "4"}


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', "null", "", '{"a": "' + "[" * 5000])
def test_malformed_tool_calls_are_echoed_in_a_form_that_every_endpoint_accepts(arguments):
    wrong = Message("assistant", None, tool_calls=(ToolCall("c1", "tools/add!", arguments),))
    called = sent(asked(messages=(USER, wrong, RESULT)))["messages"][1]["tool_calls"][0]["function"]
    assert (called["name"], json.loads(called["arguments"])) == ("tools_add_", {"malformed": arguments})


@given(st.text(alphabet=st.characters(), max_size=50))
def test_any_text_can_be_sent_and_digested_even_lone_surrogates(text):
    request = asked(messages=(Message("user", text),))
    assert sent(request)["messages"][0]["role"] == "user"
    assert len(request_digest(request)) == 16


def test_the_digest_depends_on_every_field_of_a_request():
    changes = {
        "model": "n", "messages": (USER,), "temperature": 0.3, "max_tokens": 65, "seed": 0, "tools": (TOOL,),
        "answer_schema": SCHEMA, "logprobs": True,
    }  # fmt: skip
    variants = [asked(), *(asked(**{name: value}) for name, value in changes.items())]
    assert len({request_digest(request) for request in variants}) == len(variants)
    assert request_digest(asked()) == request_digest(asked())


# Replies


def answered(message, finish="stop", **choice):
    return {"choices": [{"message": message, "finish_reason": finish, **choice}]}


CALL = {"id": "call_x", "index": 0, "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}
PARTS = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "4"}, {"type": "text", "text": "2"}, "stray"]


@pytest.mark.parametrize(("message", "finish", "content", "reason"), [
    ({"content": "4", "refusal": None, "annotations": []}, "stop", "4", "stop"),  # OpenAI
    ({"content": "\n\n4", "reasoning_content": "Two...", "tool_calls": [], "function_call": None}, "stop", "\n\n4", "stop"),
    ({"content": "4", "reasoning": "Hm.", "reasoning_details": []}, "stop", "4", "stop"),  # OpenRouter
    ({"content": "", "tool_calls": [CALL]}, "stop", None, "tool_calls"),  # Ollama
    ({"content": None, "tool_calls": [CALL]}, "length", None, "length"),
    ({"content": PARTS}, "stop", "42", "stop"),
    ({"content": None, "refusal": "I cannot."}, "stop", "I cannot.", "content_filter"),
    *(({"content": "x"}, reason, "x", meant) for reason, meant in (
        ("length", "length"), ("MAX_TOKENS", "length"), ("end_turn", "stop"), ("content_filter", "content_filter"),
        ("a_reason_of_its_own", "other"), (None, "other"),
    )),
    ({"content": "a\ud800b \U0001f600"}, "stop", "a\ufffdb \U0001f600", "stop"),
])  # fmt: skip
def test_each_vendors_answer_is_read_for_its_meaning_without_its_reasoning(message, finish, content, reason):
    answer = decode_reply({"id": "x", "model": "served", "service_tier": "default", **answered(message, finish)})
    assert (answer.message.content, answer.finish_reason) == (content, reason)
    assert (answer.model, answer.response_id, answer.token_logprobs) == ("served", "x", None)
    calls = (ToolCall("call_x", "add", '{"a":2}'),) if message.get("tool_calls") else ()
    assert answer.message.tool_calls == calls


def test_tool_calls_with_known_deviations_of_vendors_are_read():
    calls = [
        {"function": {"name": "add", "arguments": {"a": 1}}},
        {"id": "", "function": {"name": "add", "arguments": ""}},
        {"id": "k", "type": "function", "function": {"name": "get"}},
        {"id": "k", "type": "function", "function": {"name": "get", "arguments": "not json"}},
    ]
    answer = decode_reply(answered({"content": "", "tool_calls": calls}))
    assert [call.arguments for call in answer.message.tool_calls] == ['{"a": 1}', "{}", "{}", "not json"]
    ids = [call.id for call in answer.message.tool_calls]
    assert (len(set(ids)), ids[2]) == (4, "k")
    assert ids[0].isalnum()
    assert len(ids[0]) == 9, "which every vendor accepts"
    assert decode_reply(answered({"content": "", "tool_calls": calls})) == answer


def test_reasoning_fields_are_kept_with_tool_calls_only():
    thoughts = {"reasoning_content": "", "reasoning": None, "reasoning_details": [{"text": "é"}]}
    call = {**CALL, "extra_content": {"google": {"a": 1}}}
    message = decode_reply(answered({"content": None, "tool_calls": [call], **thoughts})).message
    assert json.loads(message.extra) == {"reasoning_content": "", "reasoning_details": [{"text": "é"}]}
    assert json.loads(message.tool_calls[0].extra) == {"extra_content": {"google": {"a": 1}}}
    assert decode_reply(answered({"content": "4", **thoughts})).message == Message("assistant", "4")


@pytest.mark.parametrize("body", [
    {}, {"choices": []}, {"choices": "no"}, {"choices": [{"finish_reason": "stop"}]}, {"error": {"message": "overloaded"}},
    answered({"content": ""}), answered({"content": " \n"}), answered({"content": None}), answered({"content": 7}),
    answered({"content": None, "tool_calls": []}), answered({"content": "x", "tool_calls": {"a": 1}}),
    answered({"content": "x", "tool_calls": [{"function": {"arguments": "{}"}}]}),
    *(answered({"content": "4"}, reason) for reason in ("error", "abort", "insufficient_system_resource")),
])  # fmt: skip
def test_a_reply_without_a_whole_answer_is_malformed(body):
    with pytest.raises(ModelReplyMalformed):
        decode_reply(body)


KEYS = ["choices", "message", "content", "tool_calls", "function", "name", "logprobs", "usage"]
ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(ANY)
def test_no_reply_breaks_the_decoder(body):
    shape = body if isinstance(body, dict) else {"choices": [{"message": body}]}
    repeats_empty(shape)
    decode_usage(shape)
    with contextlib.suppress(ModelReplyMalformed):
        decode_reply(shape)


def counts(prompt, completion=None, total=None, **more):
    known = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return {**{name: value for name, value in known.items() if value is not None}, **more}


@pytest.mark.parametrize(("usage", "meant"), [
    (counts(3, 4), TokenUsage(3, 4)), (counts(3, None, 7), TokenUsage(3, 4)), (counts(3, None, 3), TokenUsage(3, 0)),
    (counts(3, 4, prompt_tokens_details=None), TokenUsage(3, 4)),
    (counts(1117, 46, 1163, prompt_tokens_details={"cached_tokens": 1024, "audio_tokens": 0},
            completion_tokens_details={"reasoning_tokens": 40}), TokenUsage(1117, 46, cached=1024, reasoning=40)),
    (counts(1, 1, prompt_tokens_details={"cached_tokens": 5}), TokenUsage(1, 1, 1)),
    (counts(20, 2, 22, prompt_cache_hit_tokens=16, prompt_cache_miss_tokens=4), TokenUsage(20, 2, cached=16)),  # DeepSeek
    (counts(9, 80, 89, cost=0.00012, is_byok=False), TokenUsage(9, 80)),  # OpenRouter
    (counts(10, 50, 560), TokenUsage(10, 550)),
    (counts(21, 0, 81, completion_tokens_details={"reasoning_tokens": 60}), TokenUsage(21, 60, reasoning=60)),
    *((usage, None) for usage in (
        counts(0, 0), counts(10**400, 3), counts(3, 1e300), counts(3), counts(None, 3, 3), counts(-1, 3), counts(True, 3),
        counts(math.nan, 3), None, [],
    )),
])  # fmt: skip
def test_usage_is_read_or_unknown_and_never_made_up(usage, meant):
    assert decode_usage({"usage": usage}) == meant


@pytest.mark.parametrize(("content", "meant"), [
    ([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": 0}], (-0.5, 0.0)),
    ([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -9999.0}], None),
    *(([{"token": "a", "logprob": value}], None) for value in (-math.inf, None, -(10**400), 10**400)),
    ([{"token": "a"}], None), ([], None), (None, None),
])  # fmt: skip
def test_incomplete_logprobs_are_none_at_all(content, meant):
    assert decode_reply(answered({"content": "x"}, logprobs={"content": content})).token_logprobs == meant
