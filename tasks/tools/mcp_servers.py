"""Offer the tools of MCP servers to the ``tools`` actor, by the official SDK (the extra ``mcp``).

A server is started for the list of its tools, before anything is spent, and at the first call that the journal does not
hold: once in each process of the run, closed with it. A resumed or replayed run has the list from its manifest.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, ValidationError

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.stores.errors import ActorError, Problem, SettingsError, ToolUnavailable
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.base import ToolSpec
from tfgrpo.tasks.tools.schema import ListedTool, Tool

if TYPE_CHECKING:
    from tfgrpo.tasks.tools.mcp_connection import Connection

_SOURCE: Final = "actor.mcp"
_ACCEPTED: Final = (
    '{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}} or {"url": …, "headers": {…}}}}, with secrets as "env:NAME"'
)
# Seconds for the start of a server: some are installed by it.
_OPENING_S: Final = 60.0
_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS: Final = 64


class McpServer(BaseModel, frozen=True):
    """How one server is reached: by its command, or at its address. ``env:NAME`` among its values is a variable."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default={}, repr=False)
    type: str | None = None

    @property
    def variables(self) -> list[str]:
        """Names of the variables that have its secrets."""
        values = (*self.env.values(), *self.headers.values())
        return [value.removeprefix(ENV_VALUE) for value in values if value.startswith(ENV_VALUE)]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that come from the environment."""
        return tuple(os.environ[variable] for variable in self.variables)

    @staticmethod
    def filled(values: dict[str, str]) -> dict[str, str]:
        """Return values with those of their variables."""
        return {
            name: os.environ[value.removeprefix(ENV_VALUE)] if value.startswith(ENV_VALUE) else value
            for name, value in values.items()
        }

    def faults(self) -> Iterator[str]:
        """Yield why it cannot be started."""
        if (self.command is None) == (self.url is None):
            yield "neither command nor url, or both"
        elif self.command is not None and shutil.which(self.command) is None:
            yield f"the program {self.command!r} is not found"
        elif self.url is not None and not self.url.startswith(("http://", "https://")):
            yield "url is no http address"
        if self.type == "sse":
            yield "type sse, which is superseded by http (streamable HTTP)"
        yield from (f"the variable {name} is not set" for name in self.variables if not os.environ.get(name))


def read_servers(path: str) -> tuple[McpServer, ...]:
    """Return the servers of a file that are not disabled. Raise ``SettingsError`` with one problem for each faulty one."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError.one(_SOURCE, f"{path!r} ({error})", f"a JSON file: {_ACCEPTED}") from None
    named = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named:
        raise SettingsError.one(_SOURCE, f"{path!r} without servers", _ACCEPTED)
    servers, problems = [], []
    for name, entry in named.items():
        if isinstance(entry, dict) and entry.get("disabled") is True:
            continue
        try:
            servers.append(McpServer.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry))
            faults = list(servers[-1].faults())
        except ValidationError as error:
            first = error.errors()[0]
            faults = [f"{'.'.join(map(str, first['loc'])) or 'the entry'}: {first['msg']}"]
        if faults:
            problems.append(Problem(_SOURCE, f"the server {name!r} of {path} ({'; '.join(faults)})", _ACCEPTED))
    if problems:
        raise SettingsError(problems)
    return tuple(servers)


def list_tools(path: str) -> tuple[ListedTool, ...]:
    """Start the servers of a file, list their tools and stop them. Raise ``SettingsError``, one problem a server."""
    if find_spec("mcp") is None:
        raise SettingsError.one(_SOURCE, "servers, without the package mcp", "them after `pip install 'tfgrpo[mcp]'`")
    servers = read_servers(path)

    async def listed() -> list[list[ListedTool] | Problem]:
        return await asyncio.gather(*map(_listed, servers))

    with ThreadPoolExecutor(1) as thread:  # the caller may be on an event loop
        results = thread.submit(asyncio.run, listed()).result()
    if problems := [each for each in results if isinstance(each, Problem)]:
        raise SettingsError(problems)
    return tuple(tool for each in results if not isinstance(each, Problem) for tool in each)


async def _listed(server: McpServer) -> list[ListedTool] | Problem:
    connection = _connection(server)
    try:
        async with asyncio.timeout(_OPENING_S):
            client = await connection.client()
            page = await client.list_tools()
            tools = [*page.tools]
            while page.next_cursor is not None:
                page = await client.list_tools(cursor=page.next_cursor)
                tools += page.tools
    except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot be used
        late = f"no answer in {_OPENING_S:g} s" if isinstance(error, TimeoutError) else str(error)
        why = late if isinstance(error, ToolUnavailable) else f"the server {server.name!r} ({late})"
        return Problem(_SOURCE, why, "a server that starts and lists its tools")
    finally:
        await connection.close()
    return [ListedTool(server.name, each.name, each.description or "", each.input_schema) for each in tools]


def _connection(server: McpServer) -> Connection:
    from tfgrpo.tasks.tools.mcp_connection import Connection  # noqa: PLC0415 - the SDK, an extra: half a second

    return Connection(server)


def mcp_tools(path: str, listed: Sequence[ListedTool], taken: Sequence[str]) -> tuple[Tool, ...]:
    """Return tools that call the servers of a file. A name that two have, or that is ``taken``, becomes ``server__tool``."""
    names = Counter((*taken, *(_allowed(tool.name) for tool in listed)))
    connections: dict[str, Connection] = {}

    async def call(tool: ListedTool, /, **arguments: Any) -> str:
        if not connections:
            try:
                connections.update((each.name, _connection(each)) for each in read_servers(path))
            except SettingsError as error:
                raise ActorError(str(error)) from error
        if tool.server not in connections:
            raise ActorError(f"the server {tool.server!r} is no longer in {path}")
        return await connections[tool.server].call(tool.name, arguments)

    async def close() -> None:
        opened = [*connections.values()]
        connections.clear()
        await asyncio.gather(*(each.close() for each in opened))

    def made(tool: ListedTool) -> Tool:
        name = _allowed(tool.name)
        spec = ToolSpec(
            name if names[name] == 1 else _allowed(f"{tool.server}__{tool.name}"),
            replace_surrogates(tool.description),
            tool.parameters,
        )
        return Tool(spec, partial(call, tool), arguments=None, cost_usd=None, close=close)

    return tuple(map(made, listed))


def _allowed(name: str) -> str:
    return _NAME.sub("_", name)[:_NAME_CHARS]
