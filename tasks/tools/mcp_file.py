"""Read the MCP servers of a file in the form that editors have, ``{"mcpServers": {NAME: {…}}}``. Start nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.stores.errors import Problem, SettingsError

SOURCE: Final = "actor.mcp"
_ACCEPTED: Final = (
    '{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}} or {"url": …, "headers": {…}}}}, '
    'with secrets as "env:NAME"'
)


@dataclass(frozen=True, slots=True)
class McpServer:
    """How one server is reached: by its command, or at its address."""

    name: str
    command: tuple[str, ...] = ()
    """Program and arguments; empty for one with an address."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that came from the environment."""


def read_servers(path: str) -> tuple[McpServer, ...]:
    """Return the servers of a file that are not disabled. Raise ``SettingsError`` with one problem for each faulty one."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError.one(SOURCE, f"{path!r} ({error})", f"a JSON file: {_ACCEPTED}") from None
    named = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named:
        raise SettingsError.one(SOURCE, f"{path!r} without servers", _ACCEPTED)
    servers, problems = [], []
    for name, entry in named.items():
        if isinstance(entry, dict) and entry.get("disabled") is True:
            continue
        faults = list(_faults(entry)) if isinstance(entry, dict) else ["no object"]
        if faults:
            problems.append(Problem(SOURCE, f"the server {name!r} of {path} ({'; '.join(faults)})", _ACCEPTED))
        else:
            servers.append(_server(name, entry))
    if problems:
        raise SettingsError(problems)
    return tuple(servers)


def _faults(entry: Mapping[str, Any]) -> Iterator[str]:
    command, url = entry.get("command"), entry.get("url")
    if isinstance(command, str) == isinstance(url, str):
        yield "neither command nor url, or both"
    elif isinstance(command, str) and shutil.which(command) is None:
        yield f"the program {command!r} is not found"
    elif isinstance(url, str) and not url.startswith(("http://", "https://")):
        yield "url is no http address"
    if entry.get("type") == "sse":
        yield "type sse, which is superseded by http (streamable HTTP)"
    args = entry.get("args", [])
    if not (isinstance(args, list) and all(isinstance(each, str) for each in args)):
        yield "args is no list of texts"
    for part in ("env", "headers"):
        values = entry.get(part, {})
        if not (isinstance(values, dict) and all(isinstance(each, str) for each in values.values())):
            yield f"{part} is no object of texts"
            continue
        unset = (name for name in _variables(values) if not os.environ.get(name))
        yield from (f"{part} names the variable {name}, which is not set" for name in unset)


def _variables(values: Mapping[str, str]) -> list[str]:
    return [value.removeprefix(ENV_VALUE) for value in values.values() if value.startswith(ENV_VALUE)]


def _server(name: str, entry: Mapping[str, Any]) -> McpServer:
    env, headers = entry.get("env", {}), entry.get("headers", {})
    known = {f"{ENV_VALUE}{variable}": os.environ[variable] for variable in _variables(env) + _variables(headers)}
    filled = [{key: known.get(value, value) for key, value in values.items()} for values in (env, headers)]
    command = (entry["command"], *entry.get("args", ())) if entry.get("command") else ()
    return McpServer(name, command, filled[0], entry.get("cwd"), entry.get("url"), filled[1], tuple(known.values()))
