"""MCP servers by the official SDK, in real processes and over real HTTP. ``make test-agents`` has the SDK."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.agents.upstream import needs
from tests.support.records.tasks import CENTS, UNITS, Task
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import SettingsError, ToolUnavailable
from tfgrpo.tasks.actors.registry import listed_tools, tools_of
from tfgrpo.tasks.tools import mcp_servers
from tfgrpo.tasks.tools.schema import run_tool

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[3]

SERVER = '''
import os, sys
from mcp.server.mcpserver import MCPServer
from mcp.types import TextContent
from mcp.server.mcpserver.exceptions import ToolError
server = MCPServer("s")

@server.tool(structured_output=False)
def add(left: int, right: int = 1) -> str:
    """Add two numbers."""
    if left < 0:
        raise ToolError(f"negative, {os.environ.get('TOKEN')}")
    return str(left + right)

@server.tool(structured_output=False, name="process.id")
def process() -> str:
    return str(os.getpid())

@server.tool(structured_output=False)
def die() -> str:
    os._exit(3)

server.run(*sys.argv[1:2], **({"port": int(sys.argv[2])} if sys.argv[1:] else {}))
'''


def needs_mcp():
    needs("mcp")


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return {"command": sys.executable, "args": [str(path)]}


@pytest.fixture
def settings(tmp_path):
    def named(servers, **more):
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        return ActorSettings(kind="tools", mcp=str(path), **more)

    return named


class Called:
    def __init__(self, settings):
        self.tools = {tool.spec.name: tool for tool in tools_of(settings, listed_tools(settings))}

    async def __call__(self, name, **arguments):
        return await run_tool(self.tools[name], json.dumps(arguments), asyncio.to_thread)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for tool in self.tools.values():
            if tool.close is not None:
                await tool.close()


def processes(path):
    return [each for each in psutil.process_iter(["cmdline"]) if path in (each.info["cmdline"] or ())]


def gone(path, seconds=15.0):
    limit = time.monotonic() + seconds
    while processes(path) and time.monotonic() < limit:
        time.sleep(0.05)
    return not processes(path)


async def test_its_tools_are_listed_and_called_without_its_secrets_and_nothing_of_it_outlives_the_run(
    server, settings, monkeypatch, tmp_path, caplog
):
    needs_mcp()
    monkeypatch.setenv("MY_TOKEN", "s3cret-value")
    path, mark, sleeps = server["args"][0], str(tmp_path / "left behind"), "import time; time.sleep(600)"
    child = f"subprocess.Popen([sys.executable, '-c', {sleeps!r}, {mark!r}], stdin=-3, stdout=-3, stderr=-3)  # -3: DEVNULL"
    Path(path).write_text(f"import subprocess, sys\nprint('Welcome!', flush=True)\n{child}\n{SERVER}")  # noqa: ASYNC240
    named = settings({"s": {**server, "env": {"TOKEN": "env:MY_TOKEN"}}}, tools=("examples.agents.bookkeeping:add",))
    async with Called(named) as call:
        logging.getLogger("mcp.client.stdio").disabled = False  # as Prefect has it when a flow run begins
        assert list(call.tools) == ["add", "s__add", "process_id", "die"]
        spec = call.tools["s__add"].spec
        assert (spec.description, spec.parameters["required"]) == ("Add two numbers.", ["left"])
        assert gone(path)  # the one that listed
        result = await call("s__add", left=3, right=4)
        assert (result.text, result.ok, result.cost_usd) == ("7", True, None)
        assert processes(mark)
        ids = await asyncio.gather(*(call("process_id") for _ in range(5)))
        assert len({each.text for each in ids}) == 1
        assert not (await call("s__add", left="x")).ok
        refused = await call("s__add", left=-1)
        assert not refused.ok
        assert "negative, [hidden]" in refused.text
        with pytest.raises(ToolUnavailable, match=r"the server 's' \(ended during a call"):
            await call("die")
        again = await call("process_id")
        assert again.ok
        assert again.text != ids[0].text
    assert gone(path)
    assert gone(mark)
    assert caplog.text == ""


@contextmanager
def over_http(server):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [server["command"], *server["args"], "streamable-http", str(port)]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        started.kill()
        started.wait()


async def test_a_server_at_an_address_is_called_over_http(server, settings):
    needs_mcp()
    with over_http(server) as url:
        async with Called(settings({"s": {"type": "http", "url": url, "headers": {"X-Team": "blue"}}})) as call:
            assert (await call("add", left=3, right=4)).text == "7"
            for each in processes(server["args"][0]):
                each.kill()
            assert gone(server["args"][0])
            for _ in range(2):
                with pytest.raises(ToolUnavailable, match=r"the server 's' \("):
                    await call("add", left=3, right=4)


def test_every_server_that_cannot_be_used_is_one_clear_error(settings):
    needs_mcp()
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no such table')"]}
    with pytest.raises(SettingsError) as caught:
        listed_tools(settings({"broken": broken, "away": {"url": "http://127.0.0.1:9/mcp"}}))
    first, second = map(str, caught.value.problems)
    assert "the server 'broken' (cannot be started" in first
    assert "no such table" in first
    assert "the server 'away' (cannot be started" in second


@pytest.mark.parametrize(("entry", "said"), [
    ([], "valid dictionary"), ({}, "neither command nor url, or both"), ({"command": ["true"]}, "command: .*valid string"),
    ({"command": "no-such-program"}, "'no-such-program' is not found"), ({"url": "ftp://x"}, "no http address"),
    ({"url": "ftp://x", "command": None}, "no http address"), ({"command": "true", "args": "x"}, "args: .*valid tuple"),
    ({"command": "true", "env": {"A": 1}}, r"env\.A: .*valid string"),
    ({"url": "http://x", "type": "sse"}, "streamable HTTP"),
    ({"url": "http://x", "headers": {"a": "env:NOT_SET_HERE"}}, "NOT_SET_HERE is not set"),
])  # fmt: skip
def test_a_faulty_entry_is_named_before_anything_is_started(entry, said, settings, monkeypatch):
    monkeypatch.setattr(mcp_servers, "find_spec", lambda name: name)
    with pytest.raises(SettingsError, match=said):
        listed_tools(settings({"s": entry}))
    assert listed_tools(settings({"s": {"disabled": True}})) == ()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mcpServers": {}}'])
def test_a_file_without_servers_is_refused(content, tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_servers, "find_spec", lambda name: name)
    path = tmp_path / "mcp.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"actor\.mcp"):
        listed_tools(ActorSettings(kind="tools", mcp=str(path)))


def test_without_the_package_the_error_has_the_line_to_type(settings, monkeypatch):
    monkeypatch.setattr(mcp_servers, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'tfgrpo\[mcp\]'"):
        listed_tools(settings({"s": {"command": "true"}}))


async def test_lessons_are_served_to_agents_that_cannot_be_proxied(tmp_path, capsys):
    needs_mcp()
    from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415

    (tmp_path / "t/runs/first").mkdir(parents=True)  # of a night that put nothing in force
    (tmp_path / "t/runs/first/manifest.json").write_text("{}")
    args = ["-m", "tfgrpo", "mcp", "--task-id", "t", "--out", str(tmp_path)]
    started = StdioServerParameters(command=sys.executable, args=args, cwd=ROOT)
    async with Client(stdio_client(started, errlog=sys.__stderr__)) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, list(tool.input_schema["properties"])) == ("lessons", [])
        assert (await client.call_tool("lessons", {})).content[0].text == "There are no lessons yet."
        await asyncio.to_thread(Task(tmp_path, "t", capsys).learn, ("do", UNITS), ("avoid", CENTS), simulated=False)
        text = (await client.call_tool("lessons", {})).content[0].text
    assert text.startswith("<lessons>")
    assert f"- Do: {UNITS}\n- Avoid: {CENTS}" in text
