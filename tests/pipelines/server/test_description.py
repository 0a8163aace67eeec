"""The OpenAPI description is the truth: whatever is generated from it gets an answer that it describes."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.support.pipelines.data_server import in_process, mix, on_a_port
from tfgrpo.pipelines.server.app import ServerLimits
from tfgrpo.pipelines.server.service import WholeNumber

TOKEN = "a-good-token"
NUMBER = TypeAdapter(WholeNumber)


@given(st.text("+-_.0123456789 \t\u00a0\u1680\u3000x\u0661e\ufeff\u200b", max_size=8))
def test_texts_that_are_described_as_whole_numbers_are_those_that_are_read_as_such(text):
    # pydantic drops leading zeros and reads 00-5 as -5, which no client writes.
    assume(not re.match(r"\s*0[0_]*-", text))
    try:
        NUMBER.validate_python(text)
    except ValidationError:
        read = False
    else:
        read = True
    pattern = NUMBER.json_schema()["anyOf"][2]["pattern"]
    assert (re.search(pattern, text) is not None and not text.endswith("\n")) is read


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_every_refusal_is_described(tmp_path, token):
    async with in_process(mix(tmp_path), token=token) as (client, _):
        response = await client.get("/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
    paths = response.json()["paths"]
    refusals = {"200", "400", "408", "413", "422", "503"}
    expected = {"/healthz": {"200"}, "/meta": {"200"}, "/sample": refusals, "/grade": refusals}
    assert set(paths) == set(expected)
    for path, operations in paths.items():
        for operation in operations.values():
            closed = {"401"} if token is not None and path != "/healthz" else set()
            assert (set(operation["responses"]), "security" in operation) == (expected[path] | closed, bool(closed))


@pytest.mark.slow
async def test_schemathesis_finds_nothing(tmp_path):
    """Its checks on a real server, but for "valid data is accepted": which sample ids there are is not described."""
    program = [sys.executable, "-c", "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"]
    options = ["--max-examples", "15", "--seed", "1", "--no-color", "--generation-database", "none"]
    options += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    options += ["--header", f"Authorization: Bearer {TOKEN}"]
    async with on_a_port(mix(tmp_path), token=TOKEN, limits=ServerLimits(max_batch=100)) as (url, served):
        process = await asyncio.create_subprocess_exec(
            *program,
            *("run", f"{url}/openapi.json", *options),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    assert "Tested: 4" in text
    assert "No issues found" in text
    assert served.messages == []
