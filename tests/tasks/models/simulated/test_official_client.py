"""What the official client library sends by itself, and what it reads: answered as the original would."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.models.simulated_calls import ask, content_of, in_process, request
from tfgrpo.tasks.learning.ask import CURATION, RECURRING, REFLECTION, SHORTENED
from tfgrpo.tasks.models.simulated.protocol import strict_fault

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "given",
    [
        {"top_p": 1},
        {"top_p": 1.0, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "stop": []},
        {"stop": None, "top_logprobs": None, "service_tier": None},
        {"service_tier": "auto", "modalities": ["text"], "top_logprobs": 0, "logprobs": True},
        {"prompt_cache_key": "k", "safety_identifier": "s"},
        {"top_p": 0.9, "presence_penalty": 1, "logit_bias": {"1": 2}, "reasoning_effort": "low", "verbosity": "low"},
    ],
)
async def test_a_parameter_that_no_answer_has_to_show_is_accepted(given: dict[str, Any]) -> None:
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request(**given))
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "given",
    [{"stop": ["x"] * 5}, {"top_logprobs": 2}, {"modalities": ["audio"]}],
)
async def test_a_parameter_that_would_not_be_honoured_is_refused_by_name(given: dict[str, Any]) -> None:
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request(**given))
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(next(iter(given)))


async def test_a_stop_sequence_ends_the_text() -> None:
    async with in_process() as client:
        whole, cut = [await ask(client, request(stop=stop, temperature=0)) for stop in (None, ["Answer:", "none"])]
        once = await ask(client, request(stop="Answer:", temperature=0))
    assert "Answer:" in content_of(whole)
    assert "Step 1" in content_of(cut)
    assert "Answer:" not in content_of(cut)
    assert "Answer:" not in content_of(once)
    assert cut["choices"][0]["finish_reason"] == "stop"


async def test_one_model_can_be_asked_for() -> None:
    async with in_process() as client:
        found, missing = await client.get("/models/simulated"), await client.get("/models/gpt/4")
    assert found.json() == {"id": "simulated", "object": "model", "created": 0, "owned_by": "SIMULATED"}
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_an_answer_names_its_request() -> None:
    async with in_process() as client:
        response = await client.post("/chat/completions", json=request())
    assert response.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({**CLOSED, "additionalProperties": True}, "additionalProperties"),
        ({**CLOSED, "required": []}, "missing 'a'"),
        ({"type": "array", "items": CLOSED}, "object at its root"),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, "schema.properties.a.items"),
        ({**CLOSED, "$defs": {"x": {"anyOf": [{"type": "object"}]}}}, "schema.$defs.x.anyOf.0"),
    ],
)
async def test_an_invalid_strict_schema_is_refused(schema: dict[str, Any], said: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    async with in_process() as client:
        for given in ({"response_format": wanted}, {"tools": [tool]}):
            response = await client.post("/chat/completions", json=request(**given))
            assert response.status_code == 400
            assert said in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["größe", "a b", "", "x" * 65])
async def test_names_that_openai_refuses_are_refused(name: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": CLOSED}}
    async with in_process() as client:
        for given in ({"response_format": wanted}, {"tools": [{"type": "function", "function": {"name": name}}]}):
            assert (await client.post("/chat/completions", json=request(**given))).status_code == 400


@pytest.mark.parametrize("answer", [REFLECTION, CURATION, RECURRING, SHORTENED], ids=lambda answer: answer.name)
def test_our_own_schemas_can_be_followed_strictly(answer: Any) -> None:
    assert strict_fault(answer.schema) is None
