"""Replies of real endpoints in their own shapes: read for their meaning, or refused with advice.

The bodies are shortened recordings and documented examples of each vendor.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.models.calls import client
from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.errors import (
    ConfigError,
    ModelCallError,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
)
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import SHORTENED
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.endpoint import Endpoint, endpoint_of
from tfgrpo.tasks.models.preflight import check_endpoint
from tfgrpo.tasks.models.structured import parse_answer
from tfgrpo.tasks.models.wire import encode_request

KEY = CallKey(GroupKey(1, "train", "train", 0, "q1"), 0, 0, "rollout")
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64, seed=7)

OPENAI = {
    "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
    "object": "chat.completion",
    "created": 1741570283,
    "model": "gpt-4.1-2025-04-14",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "4", "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 1117,
        "completion_tokens": 46,
        "total_tokens": 1163,
        "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 40, "audio_tokens": 0, "accepted_prediction_tokens": 0},
    },
    "service_tier": "default",
    "system_fingerprint": "fp_fc9f1d7035",
}
AZURE = {
    "choices": [
        {
            "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}},
            "finish_reason": "stop",
            "index": 0,
            "logprobs": None,
            "message": {"content": "4", "role": "assistant"},
        }
    ],
    "model": "gpt-4o-2024-11-20",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
    "usage": {"completion_tokens": 1, "prompt_tokens": 12, "total_tokens": 13},
}
VLLM_REASONING = {
    "id": "chatcmpl-2f5b6b",
    "model": "Qwen/Qwen3-8B",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "\n\n4",
                "reasoning_content": "Two and two...",
                "tool_calls": [],
                "function_call": None,
            },
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": None,
        }
    ],
    "usage": {"prompt_tokens": 15, "total_tokens": 200, "completion_tokens": 185, "prompt_tokens_details": None},
    "prompt_logprobs": None,
    "kv_transfer_params": None,
}
OLLAMA_TOOLS = {
    "id": "chatcmpl-292",
    "object": "chat.completion",
    "model": "llama3.1",
    "system_fingerprint": "fp_ollama",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_x",
                        "index": 0,
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a":2}'},
                    }
                ],
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 165, "completion_tokens": 27, "total_tokens": 192},
}
LLAMA_CPP = {
    "choices": [{"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "4"}}],
    "created": 1744000000,
    "model": "gpt-3.5-turbo",
    "system_fingerprint": "b5000-abc",
    "object": "chat.completion",
    "usage": {"completion_tokens": 2, "prompt_tokens": 14, "total_tokens": 16},
    "id": "chatcmpl-Zk",
    "timings": {"prompt_n": 14, "prompt_ms": 20.1, "predicted_n": 2},
}
OPENROUTER = {
    "id": "gen-1741570283",
    "provider": "DeepInfra",
    "model": "deepseek/deepseek-r1",
    "object": "chat.completion",
    "choices": [
        {
            "logprobs": None,
            "finish_reason": "stop",
            "native_finish_reason": "stop",
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "4",
                "refusal": None,
                "reasoning": "Hm.",
                "reasoning_details": [],
            },
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 80, "total_tokens": 89, "cost": 0.00012, "is_byok": False},
}
DEEPSEEK = {
    **LLAMA_CPP,
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 2,
        "total_tokens": 22,
        "prompt_cache_hit_tokens": 16,
        "prompt_cache_miss_tokens": 4,
    },
}


async def ask(server: Any, retries: int = 0, request: ChatRequest = REQUEST) -> ChatReply:
    use = client(server.root, retries)
    try:
        return await use.complete(request, KEY)
    finally:
        await use.aclose()


@pytest.mark.parametrize(
    ("body", "text", "usage"),
    [
        (OPENAI, "4", TokenUsage(1117, 46, cached=1024, reasoning=40)),
        (AZURE, "4", TokenUsage(12, 1)),
        (VLLM_REASONING, "\n\n4", TokenUsage(15, 185)),
        (LLAMA_CPP, "4", TokenUsage(14, 2)),
        (OPENROUTER, "4", TokenUsage(9, 80)),
        (DEEPSEEK, "4", TokenUsage(20, 2, cached=16)),
    ],
    ids=["openai", "azure", "vllm", "llama.cpp", "openrouter", "deepseek"],
)
async def test_each_vendors_answer_is_read_without_its_reasoning(
    server: Any, act: Any, body: Any, text: str, usage: TokenUsage
) -> None:
    server.acts = [act(body=body)]
    reply = await ask(server)
    assert (reply.message.content, reply.finish_reason, reply.usage) == (text, "stop", usage)


async def test_a_tool_call_with_finish_reason_stop_is_a_tool_call(server: Any, act: Any) -> None:
    server.acts = [act(body=OLLAMA_TOOLS)]
    reply = await ask(server)
    assert reply.message == Message("assistant", None, tool_calls=(ToolCall("call_x", "add", '{"a":2}'),))
    assert reply.finish_reason == "tool_calls"


async def test_a_model_that_takes_no_temperature_is_sent_none(server: Any) -> None:
    settings = ModelSettings(name="m", send_temperature=False, max_tokens_field="max_completion_tokens")
    body = json.loads(encode_request(REQUEST, endpoint_of(settings, server.root, None).wire))
    assert set(body) == {"model", "messages", "max_completion_tokens", "seed"}


@pytest.mark.parametrize(
    ("body", "error", "again"),
    [
        ({"error": {"message": "Provider returned error", "code": 502}}, ModelServerFault, True),
        ({"error": {"message": "Rate limit exceeded", "code": 429}, "user_id": "u"}, ModelRateLimited, True),
        ({"error": {"message": "No endpoints found", "code": "404"}}, ModelRequestRejected, False),
        ({"error": "out of memory"}, ModelReplyMalformed, True),
    ],
)
async def test_an_error_behind_a_success_status_has_the_status_in_its_body(
    server: Any, act: Any, body: Any, error: type[ModelCallError], again: bool
) -> None:
    server.otherwise = lambda seen: act(body=body)
    with pytest.raises(error, match=r"Provider|Rate|endpoints|memory"):
        await ask(server, retries=1)
    assert len(server.seen) == 1 + again


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
async def test_a_partial_answer_is_retried_and_never_graded(
    server: Any, act: Any, reply_body: Any, reason: str
) -> None:
    broken = reply_body("The answer is 4")
    broken["choices"][0]["finish_reason"] = reason
    server.acts = [act(body=broken)]
    assert (await ask(server, retries=1)).message.content == "fine"
    server.acts = [act(body=broken)]
    with pytest.raises(ModelReplyMalformed, match="broke off"):
        await ask(server)


async def test_an_answer_with_an_error_is_partial(server: Any, act: Any, reply_body: Any) -> None:
    broken = reply_body("half")
    broken["choices"][0]["error"] = {"code": 502, "message": "upstream gone"}
    server.acts = [act(body=broken)]
    with pytest.raises(ModelReplyMalformed, match="upstream gone"):
        await ask(server)


@pytest.mark.parametrize(
    "message",
    [{"role": "assistant", "content": None, "reasoning_content": "long"}, {"role": "assistant", "content": ""}],
)
async def test_reasoning_that_uses_up_the_limit_is_named_as_the_cause(server: Any, act: Any, message: Any) -> None:
    body = {**OPENAI, "choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    server.acts = [act(body=body)]
    with pytest.raises(ModelReplyMalformed, match=r"raise model\.max_tokens"):
        await ask(server, retries=3)
    assert len(server.seen) == 1


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', "null", "", '{"a": "' + "[" * 5000])
def test_malformed_tool_calls_are_echoed_in_a_form_that_every_endpoint_accepts(arguments: str) -> None:
    wrong = Message("assistant", None, tool_calls=(ToolCall("c1", "tools/add!", arguments),))
    request = ChatRequest("m", (Message("user", "x"), wrong, Message("tool", "error", tool_call_id="c1")), 0.7, 64)
    called = json.loads(encode_request(request, ModelSettings()))["messages"][1]["tool_calls"][0]["function"]
    assert called["name"] == "tools_add_"
    assert json.loads(called["arguments"]) == {"malformed": arguments}


def test_valid_tool_calls_are_echoed_unchanged() -> None:
    right = Message("assistant", None, tool_calls=(ToolCall("c1", "add", '{ "a":1}'),))
    request = ChatRequest("m", (right, Message("tool", "1", tool_call_id="c1")), 0.7, 64)
    called = json.loads(encode_request(request, ModelSettings()))["messages"][0]["tool_calls"][0]["function"]
    assert called == {"name": "add", "arguments": '{ "a":1}'}


async def test_an_azure_deployment_gets_its_key_in_the_api_key_header(server: Any) -> None:
    root = server.root.removesuffix("/v1")
    use = client(f"{root}/openai/deployments/mine?api-version=2024-10-21")
    await use.complete(REQUEST, KEY)
    await use.aclose()
    assert server.seen[0].path == "/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    assert server.seen[0].headers["api-key"] == "sk-abcdef-0123456789"
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/chat/completions/", "/v1/completions", "/v1/responses?a=b"]
)
def test_the_address_of_a_method_is_no_base_url(path: str) -> None:
    with pytest.raises(ConfigError, match="only its root"):
        Endpoint(f"https://host{path}")


async def test_a_missing_model_list_warns_about_the_base_url(server: Any, act: Any) -> None:
    server.acts = [act(status=404, body={"error": "no"})]
    (warning,) = await check_endpoint(Endpoint(server.root))
    assert "is the base URL right" in warning


@pytest.mark.parametrize(
    "text", ['<think>\nHm { "a" }\n</think>\n\n{"text": "x"}', '<think></think>```json\n{"text": "x"}\n```']
)
def test_reasoning_before_a_structured_answer_is_not_part_of_it(text: str) -> None:
    assert parse_answer(text, SHORTENED.schema) == {"text": "x"}


@pytest.mark.parametrize("text", ["<think> never closed {}", '{"text": "x"}<think>later</think>'])
def test_reasoning_elsewhere_makes_an_answer_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse_answer(text, SHORTENED.schema)
