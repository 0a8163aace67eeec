"""One token shows what an endpoint refuses, and which setting mends it: over HTTP, in the words of the vendors."""

import pytest

from tests.support.runs.chat_server import ChatServer
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.tasks.models.endpoint import endpoint_of, ping
from tfgrpo.tasks.models.transport import open_transport

KEY = "sk-ping-0123456789"


def openai(message, param="", code="unsupported_parameter"):
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def openai_reasoning(number, body):
    if "max_tokens" in body:
        text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return openai(text, "max_tokens")
    if body.get("temperature", 1) != 1:
        text = "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
        return openai(text, "temperature", "unsupported_value")
    text = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher."
    return openai(text)


def azure_of_an_old_version(number, body):
    if body.get("response_format", {}).get("type") == "json_schema":
        text = "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later"
        return 400, {"error": {"code": "BadRequest", "message": text}}
    return "yes"


def mistral(number, body):
    if "seed" in body:
        detail = [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]
        return 422, {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error"}
    return "yes"


def without_structure(number, body):
    if "response_format" in body:
        return 400, {"object": "error", "message": "response_format is not supported", "type": "BadRequestError", "code": 400}
    return "yes"


def openrouter(number, body):
    if "temperature" in body:
        return 200, {"error": {"code": 400, "message": "Provider returned error: `temperature` is not supported"}}
    return "yes"


async def asked(answer, role="reflection", **settings):
    with ChatServer(answer) as server:
        async with open_transport(concurrency=1) as http:
            endpoint = endpoint_of(ModelSettings(**settings), server.url, KEY)
            found = await ping(endpoint, role, "m", 0.7, http)
        assert all(body.get("max_tokens", body.get("max_completion_tokens")) == 1 for body in server.bodies)
        assert len(server.bodies) == found.attempts
        return found


@pytest.mark.parametrize(("vendor", "mends"), [
    (openai_reasoning, {"max_tokens_field": "max_completion_tokens", "send_temperature": "false"}),
    (azure_of_an_old_version, {"structured": "json_object"}), (mistral, {"send_seed": "false"}),
    (openrouter, {"send_temperature": "false"}),
])  # fmt: skip
async def test_every_refusal_is_found_with_the_setting_that_mends_it(vendor, mends):
    found = await asked(vendor)
    assert {each.setting: each.value for each in found.findings} == mends
    as_told = {name: {"true": True, "false": False}.get(value, value) for name, value in mends.items()}
    assert (await asked(vendor, **as_told)).findings == ()


async def test_a_server_without_structured_answers_is_told_down_to_none():
    values = [each.value for each in (await asked(without_structure)).findings]
    assert values == ["json_object", "none"]


@pytest.mark.parametrize(("reply", "advice"), [
    ((401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}), "check the key"),
    ((401, {"error": {"message": "No auth credentials found", "code": 401}}), "check the key"),
    ((404, {"object": "error", "message": "The model `m` does not exist.", "code": 404}), "the model's name"),
    ((404, {"error": {"message": "model 'm' not found", "type": "not_found_error"}}), "the model's name"),
    ((400, {"error": {"type": "invalid_request_error", "message": "Something else."}}), ""),
    ((500, {"error": "broken"}), ""),
])  # fmt: skip
async def test_what_no_setting_mends_is_said_once_and_never_with_the_key(reply, advice):
    (finding,) = (await asked(lambda number, body: reply)).findings
    assert finding.setting == ""
    assert advice in finding.advice
    assert KEY not in finding.said


async def test_an_endpoint_that_goes_on_refusing_is_not_asked_for_ever():
    found = await asked(lambda number, body: openai("'temperature' is not supported"))
    assert [each.setting for each in found.findings] == ["send_temperature", ""]


async def test_an_answer_that_counts_no_tokens_is_told():
    assert (await asked(lambda number, body: "yes")).counted == 15
    choice = {"message": {"role": "assistant", "content": "y"}, "finish_reason": "length"}
    assert (await asked(lambda number, body: (200, {"choices": [choice]}))).counted is None
