"""The OpenAPI description is the truth: whatever is generated from it gets an answer that it describes."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from tests.support.pipelines.data_server import in_process, mix, on_a_port
from tfgrpo.pipelines.server.limits import Limits

TOKEN = "a-good-token"


async def described(path, **options):
    async with in_process(path, **options) as (client, _):
        response = await client.get("/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
        return response.json()


async def test_limits_and_samples_of_this_server_are_in_its_description(tmp_path):
    document = await described(mix(tmp_path), limits=Limits(max_batch=77))
    shapes = document["components"]["schemas"]
    assert {"type": "integer", "maximum": 77} in shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]
    assert shapes["GradeRequest"]["properties"]["items"]["maxItems"] == 77
    pattern = shapes["GradeItem"]["properties"]["sample_id"]["pattern"]
    assert re.search(pattern, "sums:11")
    assert re.search(pattern, "plain:2")
    assert not any(
        re.search(pattern, name) for name in ("sums:12", "plain:3", "nowhere:0", "sums:01", "xsums:0", "sums:1x")
    )


async def test_every_refusal_is_described(tmp_path):
    paths = (await described(mix(tmp_path)))["paths"]
    assert set(paths) == {"/healthz", "/meta", "/sample", "/grade"}
    for path in ("/sample", "/grade"):
        assert set(paths[path]["post"]["responses"]) == {"200", "400", "408", "413", "422", "503"}
    with_token = (await described(mix(tmp_path), token=TOKEN))["paths"]
    for path, operations in with_token.items():
        for operation in operations.values():
            assert ("401" in operation["responses"]) is (path != "/healthz")
            assert ("security" in operation) is (path != "/healthz")


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.untraced
async def test_schemathesis_finds_nothing(tmp_path, token):
    """All its checks, on a real server: valid requests, broken ones, wrong methods, missing tokens."""
    program = [sys.executable, "-c", "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"]
    options = ["--max-examples", "15", "--seed", "1", "--no-color", "--generation-database", "none", "--checks", "all"]
    if token is not None:
        options += ["--header", f"Authorization: Bearer {token}"]
    async with on_a_port(mix(tmp_path), token=token, limits=Limits(max_batch=100)) as (url, served):
        process = await asyncio.create_subprocess_exec(
            *program,
            *("run", f"{url}/openapi.json", *options),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    text = said.decode()
    assert process.returncode == 0, text
    assert "Tested: 4" in text
    assert "No issues found" in text
    assert served.messages == []
