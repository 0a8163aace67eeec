"""One token shows what an endpoint refuses, and which setting mends it: over HTTP, in the words of the vendors."""

import pytest

from tests.support.runs.chat_server import ChatServer
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.tasks.models.endpoint import endpoint_of, ping
from tfgrpo.tasks.models.transport import open_transport

KEY = "sk-ping-0123456789"


def openai(message, param="", code="unsupported_parameter"):
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def without_structure(number, body):
    if "response_format" in body:
        return 400, {"object": "error", "message": "response_format is not supported", "type": "BadRequestError", "code": 400}
    return "yes"


async def asked(answer, role="reflection", **settings):
    with ChatServer(answer) as server:
        async with open_transport(concurrency=1) as http:
            endpoint = endpoint_of(ModelSettings(**settings), server.url, KEY)
            found = await ping(endpoint, role, "m", 0.7, http)
        assert all(body.get("max_tokens", body.get("max_completion_tokens")) == 1 for body in server.bodies)
        assert len(server.bodies) == found.attempts
        return found


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
