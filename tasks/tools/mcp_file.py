"""Read the MCP servers of a file in the form that editors have, ``{"mcpServers": {NAME: {…}}}``. Start nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, ValidationError

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.stores.errors import Problem, SettingsError

SOURCE: Final = "actor.mcp"
_ACCEPTED: Final = (
    '{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}} or {"url": …, "headers": {…}}}}, '
    'with secrets as "env:NAME"'
)


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
        raise SettingsError.one(SOURCE, f"{path!r} ({error})", f"a JSON file: {_ACCEPTED}") from None
    named = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named:
        raise SettingsError.one(SOURCE, f"{path!r} without servers", _ACCEPTED)
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
            problems.append(Problem(SOURCE, f"the server {name!r} of {path} ({'; '.join(faults)})", _ACCEPTED))
    if problems:
        raise SettingsError(problems)
    return tuple(servers)
