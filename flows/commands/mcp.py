"""``tfgrpo mcp``: an MCP server whose one tool returns the lessons in force of a task, for agents that cannot be proxied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tfgrpo.flows.commands.options import with_used_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.lessons import ServedLessons, decision_in_force
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import TaskPaths


def mcp(settings: Mapping[str, str], console: Console) -> None:
    """Serve until standard input ends. Raise ``SettingsError`` for bad settings, and without the package mcp."""
    used = with_used_task(resolve_settings(cli=settings, env=os.environ))
    if find_spec("mcp") is None:
        raise SettingsError.one("tfgrpo mcp", "no package mcp", "`pip install 'tfgrpo[mcp]'`")
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra

    paths = TaskPaths.of(used.out, used.task_id)
    packs_root = Path(used.packs_root) if used.packs_root else None
    server = MCPServer("tfgrpo")

    def say(text: str) -> None:
        console.say(f"[mcp] {text}", wrap=False)  # to people: standard output is the protocol's

    def lessons() -> str:
        """Return what earlier attempts at tasks like this taught. Call it first, and follow each lesson where it fits."""
        decision = decision_in_force(paths)
        simulated = decision is not None and decision.simulated
        return ServedLessons(paths, packs_root, say, simulated=simulated).block() or "There are no lessons yet."

    say(f"the lessons of task {used.task_id}")
    server.add_tool(lessons, structured_output=False)
    server.run()
