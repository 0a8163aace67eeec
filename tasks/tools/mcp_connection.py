"""The connection to one MCP server, by the official SDK (the extra ``mcp``); imported where there is one."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED
from pydantic_core import to_json

from tfgrpo.rewarders.calling import described
from tfgrpo.stores.errors import ActorError, ToolUnavailable
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.processes import guard
from tfgrpo.tasks.tools.mcp_servers import McpServer

_CLOSING_S: Final = 10.0
# A page of traceback for each line of a server's output that is no message, with the line. A filter: Prefect's own set-up
# of logging at the begin of a flow run enables loggers again.
logging.getLogger("mcp.client.stdio").addFilter(lambda record: not record.exc_info)


class Connection:
    """One server, started at the first use, by its own task: the SDK wants it closed by the task that opened it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._stop = asyncio.Event()

    async def client(self) -> Client:
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
        """Return the text of a result. Raises ``ActorError`` for an error, and ``ToolUnavailable`` when the server ends."""
        try:
            result = await (await self.client()).call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                # The next call starts it again; this one may have had its effect, and is not repeated.
                self._stop.set()
                raise self._unavailable(f"ended during a call: {error}") from None
            raise ActorError(self._without_secrets(str(error))) from None
        parts = []
        for block in result.content:
            part = getattr(block, "text", None) or getattr(getattr(block, "resource", None), "text", None)
            parts.append(f"[{block.type}]" if part is None else part)
        if not parts and result.structured_content is not None:
            parts = [to_json(result.structured_content).decode()]
        text = self._without_secrets("\n".join(parts))
        if result.is_error:
            raise ActorError(text)
        return text

    async def close(self) -> None:
        """Stop the server, and wait for its end."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSING_S)

    async def _serve(self, ready: asyncio.Future[Client], stop: asyncio.Event) -> None:
        server = self._server
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            try:
                async with AsyncExitStack() as stack:
                    if server.url is not None:
                        # The SDK's own time limits: a server may keep a reply open.
                        timeout = httpx2.Timeout(30.0, read=300.0)
                        http = httpx2.AsyncClient(headers=server.filled(server.headers), timeout=timeout)
                        transport = streamable_http_client(server.url, http_client=await stack.enter_async_context(http))
                    else:
                        args = ["-I", "-S", guard.__file__, server.command or "", *server.args]
                        env = server.filled(server.env)
                        started = StdioServerParameters(command=sys.executable, args=args, env=env, cwd=server.cwd)
                        transport = stdio_client(started, errlog=errors)
                    ready.set_result(await stack.enter_async_context(Client(transport)))
                    await stop.wait()
            except BaseException as error:
                if ready.done():
                    if isinstance(error, Exception):
                        return  # of a server that has ended: its calls have failed
                    raise
                errors.seek(0)
                last_words, first = errors.read()[-500:].strip(), error
                while isinstance(first, BaseExceptionGroup):  # of one: the SDK's task groups wrap them
                    first = first.exceptions[0]
                why = "; ".join(part for part in (described(first, whole=True), last_words) if part)
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
