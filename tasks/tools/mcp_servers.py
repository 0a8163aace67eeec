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
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.rewarders.faults import described
from tfgrpo.stores.errors import ActorError, Problem, SettingsError, ToolUnavailable
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.base import ToolSpec
from tfgrpo.tasks.processes import guard
from tfgrpo.tasks.tools.schema import ListedTool, Tool

if TYPE_CHECKING:
    import mcp

_SOURCE: Final = "actor.mcp"
_ACCEPTED: Final = (
    '{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}} or {"url": …, "headers": {…}}}}, '
    'with secrets as "env:NAME"'
)
_OPENING_S: Final = 60.0
"""Seconds for the start of a server: some are installed by it."""
_CLOSING_S: Final = 10.0
_MOST_PAGES: Final = 100
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
        known = {name: value.removeprefix(ENV_VALUE) for name, value in values.items() if value.startswith(ENV_VALUE)}
        return {**values, **{name: os.environ[variable] for name, variable in known.items()}}

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
        found = thread.submit(asyncio.run, listed()).result()
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise SettingsError(problems)
    return tuple(tool for each in found if not isinstance(each, Problem) for tool in each)


async def _listed(server: McpServer) -> list[ListedTool] | Problem:
    connection = Connection(server)
    try:
        async with asyncio.timeout(_OPENING_S):
            client = await connection.client()
            tools, cursor = [], None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
    except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot be used
        late = f"no answer in {_OPENING_S:g} s" if isinstance(error, TimeoutError) else str(error)
        why = late if isinstance(error, ToolUnavailable) else f"the server {server.name!r} ({late})"
        return Problem(_SOURCE, why, "a server that starts and lists its tools")
    finally:
        await connection.close()
    return [ListedTool(server.name, each.name, each.description or "", each.input_schema) for each in tools]


class Connection:
    """One server, started at the first use, by its own task: the SDK wants it closed by the task that opened it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[mcp.Client] | None = None
        self._stop = asyncio.Event()

    async def client(self) -> mcp.Client:
        """Return the client of the running server. Raise ``ToolUnavailable`` if it cannot be started."""
        # A server that is being stopped is waited for: there may be no two of it at once.
        while self._stop.is_set() and self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        if self._ready is None or self._task is None or self._task.done():
            self._stop = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._serve(self._ready, self._stop))
        return await asyncio.shield(self._ready)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of a call's result.

        Raises ``ActorError`` for a result or a protocol error that is one, and ``ToolUnavailable`` when the server ends:
        a call may have had its effect, so that it is not made again.
        """
        from mcp import MCPError  # noqa: PLC0415 - an extra
        from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415 - as above

        try:
            result = await (await self.client()).call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self._stop.set()  # the next call starts it again
                raise self._unavailable(f"ended during a call: {error}") from None
            raise ActorError(self._without_secrets(str(error))) from None
        text = self._without_secrets(_text_of(result))
        if result.is_error:
            raise ActorError(text)
        return text

    async def close(self) -> None:
        """Stop the server, and wait for its end."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSING_S)

    async def _serve(self, ready: asyncio.Future[mcp.Client], stop: asyncio.Event) -> None:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            try:
                async with _opened(self._server, errors) as client:
                    ready.set_result(client)
                    await stop.wait()
            except BaseException as error:
                if ready.done():
                    if isinstance(error, Exception):
                        return  # of a server that has ended: its calls have failed
                    raise
                errors.seek(0)
                said = errors.read()[-500:].strip()
                why = "; ".join(part for part in (described(_first(error), whole=True), said) if part)
                ready.set_exception(self._unavailable(f"cannot be started: {why}"))
                ready.exception()  # retrieved: its caller may have been cancelled
                if not isinstance(error, Exception):
                    raise

    def _unavailable(self, why: str) -> ToolUnavailable:
        return ToolUnavailable(self._without_secrets(f"the server {self._server.name!r} ({why})"))

    def _without_secrets(self, text: str) -> str:
        for secret in self._server.secrets:
            text = text.replace(secret, "[hidden]")
        return replace_surrogates(text)


@asynccontextmanager
async def _opened(server: McpServer, errors: Any) -> AsyncIterator[mcp.Client]:
    from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra

    async with AsyncExitStack() as stack:
        if server.url is not None:
            import httpx2  # noqa: PLC0415 - of the SDK
            from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

            # The SDK's own time limits: a server may keep a reply open.
            timeout = httpx2.Timeout(30.0, read=300.0)
            http = httpx2.AsyncClient(headers=server.filled(server.headers), timeout=timeout)
            transport = streamable_http_client(server.url, http_client=await stack.enter_async_context(http))
        else:
            args = ["-I", "-S", guard.__file__, server.command or "", *server.args]
            env = server.filled(server.env)
            started = StdioServerParameters(command=sys.executable, args=args, env=env, cwd=server.cwd)
            transport = stdio_client(started, errlog=errors)
        yield await stack.enter_async_context(Client(transport))


def _first(error: BaseException) -> BaseException:
    """Return the error in a group of one: the SDK's task groups wrap them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _text_of(result: Any) -> str:
    """Return the texts of a result; of other content its kind only."""
    parts = []
    for block in result.content:
        text = getattr(block, "text", None) or getattr(getattr(block, "resource", None), "text", None)
        parts.append(f"[{block.type}]" if text is None else text)
    if not parts and result.structured_content is not None:
        return to_json(result.structured_content).decode()
    return "\n".join(parts)


def mcp_tools(path: str, listed: Sequence[ListedTool], taken: Sequence[str]) -> tuple[Tool, ...]:
    """Return tools that call the servers of a file, which is read at the first call, by the names that the model sees.

    A name that another tool has, or that is ``taken``, becomes ``server__tool``. What endpoints refuse in names is replaced.
    """
    names = Counter((*taken, *(_allowed(tool.name) for tool in listed)))
    connections: dict[str, Connection] = {}

    async def call(tool: ListedTool, /, **arguments: Any) -> str:
        if not connections:
            try:
                connections.update((each.name, Connection(each)) for each in read_servers(path))
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
