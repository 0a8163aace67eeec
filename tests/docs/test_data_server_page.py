"""What docs/data-server.md and docs/gateway.md say is what the two servers do."""

import asyncio
import json
import re
from contextlib import AsyncExitStack

import click

from tests.support.agents.endpoint import LESSONS, Endpoint, Opener
from tests.support.pipelines.data_server import in_process
from tests.support.runs.pages import ROOT, blocks, commands, page, table
from tfgrpo.flows.commands.table import COMMANDS
from tfgrpo.pipelines.server.app import ServerLimits
from tfgrpo.tasks.gateway import call, server, session

TEXT = page("docs/data-server.md")
DEFAULTS = COMMANDS["serve-data"].make_context("serve-data", ["mix.yaml"]).params
MIX = ROOT / "examples" / "data_mix.yaml"


def test_every_option_is_on_the_page_with_its_default():
    known = {
        param.opts[0]: {"None": "–", "False": "off"}.get(text := str(DEFAULTS[param.name]).removesuffix(".0"), f"`{text}`")
        for param in COMMANDS["serve-data"].params
        if param.name in DEFAULTS and isinstance(param, click.Option)
    }
    rows = {option.strip("`"): (default, meaning) for option, default, meaning in table(TEXT, "option | default | meaning")}
    assert {option: default for option, (default, _) in rows.items()} == known
    assert all(meaning.endswith(".") for _, meaning in rows.values())


def test_defaults_of_the_command_are_those_of_the_limits():
    limits = ServerLimits()
    known = {"max_body": 2**20 * DEFAULTS["max_body_mb"], **{name: DEFAULTS[name] for name in ("max_batch", "concurrency")}}
    assert {name: getattr(limits, name) for name in known} == known
    assert f"{limits.queue:,} requests wait" in TEXT
    assert f"above {limits.max_held // 2**20} MiB" in TEXT
    assert not limits.refuse_lost


async def test_requests_are_those_that_are_described():
    async with in_process(MIX, token="t") as (client, _):
        client.headers["authorization"] = "Bearer t"
        document = (await client.get("/openapi.json")).json()
    requests = {request.strip("`"): body for request, body, reply in table(TEXT, "request | body | reply")}
    described = {
        f"{method.upper()} {path}": operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert set(requests) == set(described)
    shapes = document["components"]["schemas"]
    for request, operation in described.items():
        named = set(re.findall(r"`(\w+)`", requests[request]))
        assert named == set(_names(operation.get("requestBody", {}), shapes)), request


def _names(node, shapes):
    """Every property of every shape that is reached from here."""
    if isinstance(node, list):
        for inner in node:
            yield from _names(inner, shapes)
    elif isinstance(node, dict):
        if "$ref" in node:
            yield from _names(shapes[node["$ref"].rpartition("/")[2]], shapes)
        yield from node.get("properties", {})
        for inner in node.values():
            yield from _names(inner, shapes)


async def test_the_requests_of_the_page_are_answered():
    bodies = [json.loads(body) for body in re.findall(r"-d '(\{.*?\})'", "\n".join(commands(blocks("docs/data-server.md")[1])))]
    async with in_process(MIX) as (client, _):
        samples = (await client.post("/sample", json=bodies[0])).json()["samples"]
        results = (await client.post("/grade", json=bodies[1])).json()["results"]
    assert len(samples) == 2
    assert results == [{"sample_id": "sums:0", "reward": 1.0, "completion_index": 0}]


PAGE = "docs/gateway.md"
GATEWAY = page(PAGE)


async def test_the_agent_on_the_page_runs(tmp_path):
    (block,) = blocks(PAGE, "python")
    names = {}
    exec(compile(block.text, PAGE, "exec"), names)
    async with Endpoint() as endpoint, AsyncExitStack() as stack:
        opener = Opener(tmp_path, stack)
        session = await opener.session(opener.runtime(endpoint.url))
        said = await asyncio.to_thread(names["agent"], "3 + 4?", session.base_url, session.api_key)
    assert said == "seven"
    assert endpoint.asked[0].body["messages"][0]["content"] == LESSONS
    assert not session.bypassed


def test_the_paths_are_those_on_the_page():
    paths = {row[0].strip("`") for row in table(GATEWAY, "path")}
    assert paths == {*server.PROTOCOLS, server._COUNT, "/models"}


def test_limits_and_pauses_are_those_on_the_page():
    assert f"silent for {call.SILENCE_S:g} seconds" in GATEWAY
    assert f"more than {call.MAX_BODY >> 20} MB" in GATEWAY
    assert f"more than {server.MAX_REQUEST_MB} MB decoded" in GATEWAY
    assert f"({session.IMAGE_TOKENS:,} for an image in it" in GATEWAY


def test_the_statuses_of_our_own_are_those_on_the_page():
    named = {int(status) for row in table(GATEWAY, "status") for status in re.findall(r"\d{3}", row[0])}
    assert named == {400, 402, 403, 404, 408, 413, 415, 426, 500, 502, 504}
