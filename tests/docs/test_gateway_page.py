"""What docs/gateway.md says of paths, statuses and figures is what the gateway does; its agent is executed."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack

from tests.support.agents.endpoint import LESSONS, Endpoint, Opener
from tests.support.runs.pages import blocks, page, table
from tfgrpo.tasks.gateway import outgoing, relay, server

PAGE = "docs/gateway.md"
TEXT = page(PAGE)


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
    paths = {row[0].strip("`") for row in table(TEXT, "path")}
    assert paths == {*server._DIALECTS, server._COUNT, "/models"}


def test_limits_and_pauses_are_those_on_the_page():
    assert f"silent for {relay.SILENCE_S:g} seconds" in TEXT
    assert f"more than {relay.MAX_BODY >> 20} MB" in TEXT
    assert f"more than {server.MAX_REQUEST_MB} MB decoded" in TEXT
    assert f"({outgoing.IMAGE_TOKENS:,} for an image in it" in TEXT


def test_the_statuses_of_our_own_are_those_on_the_page():
    named = {int(status) for row in table(TEXT, "status") for status in re.findall(r"\d{3}", row[0])}
    assert named == {400, 402, 403, 404, 413, 415, 426, 500, 502, 504}
