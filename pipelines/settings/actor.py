"""Settings of the actor: which kind it is, and how an agent of the user's own is started, limited and read."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tfgrpo.pipelines.settings.addresses import (
    SECRET_NAME,
    VARIABLE,
    checked_address,
    checked_headers,
    looks_like_a_key,
)
from tfgrpo.pipelines.settings.base import ListOf, NonEmptyText, Section, setting_field


def _one_text(value: object) -> object:
    """Return a command given as a list, also in JSON, as one text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value


def _check_command(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    if not words:
        raise ValueError("a command, as a list or as one text with its quotes closed")
    if any(map(looks_like_a_key, words)):
        raise ValueError("a command without secrets: name the variable that holds one in actor.env")
    return value


class GatewaySettings(Section):
    """The gateway to the endpoint for agents that call it themselves. It adds the lessons to their requests."""

    enabled: bool = True
    """Whether a command or HTTP agent uses it. Off for one that cannot: what it uses is unknown, no cap holds for it, and
    lessons reach it as ``system`` only."""
    models: dict[str, NonEmptyText] = Field(default_factory=dict)
    """Models at the endpoint by the names that agents ask for. Such a name may hold ``*``; the first that matches counts.
    Other names pass unchanged."""
    lessons_in: Literal["system", "user"] = "system"
    """Where lessons go: after the agent's own ``system`` text, or after the first ``user`` message, for endpoints whose
    model takes no system message."""
    sampling: bool = False
    """Write the run's temperature and seed into the requests. Off: the agent's own."""


def _check_variable(value: str) -> str:
    name, sets, text = value.partition("=")
    if not VARIABLE.fullmatch(name):
        raise ValueError("NAME of a variable to pass through, or NAME=VALUE to set one")
    template = re.fullmatch(r"\{[a-z_]+\}", text)  # such as {api_key}: filled in later, and no secret itself
    if sets and not template and (SECRET_NAME.search(name) or looks_like_a_key(text)):
        raise ValueError("NAME alone for a secret: it is passed through from the environment")
    return value


_checked_headers = partial(checked_headers, ours=("accept", "connection", "content-length", "content-type", "host"))


class ActorSettings(Section):
    """The actor, which attempts the items."""

    kind: NonEmptyText = setting_field("chat", flag="--actor", env="TFGRPO_ACTOR")
    """``chat``, ``tools``, ``command``, ``http``, or a Python callable: ``module:attr`` or ``path/to/file.py:attr``."""
    tools: ListOf[NonEmptyText] = ()
    """``module:attr`` or ``path/to/file.py:attr`` of each typed Python function the ``tools`` actor may call, or
    ``python``, which runs the model's own code in a separate process."""
    python_container: Annotated[NonEmptyText, BeforeValidator(_one_text), AfterValidator(_check_command)] | None = None
    """Command that runs the tool ``python`` on its standard input in a container, such as ``docker run --rm -i --init
    --network none --memory 1g --pids-limit 64 python:3.12-slim python -``. None: a separate process, with a warning."""
    mcp: NonEmptyText | None = None
    """File with MCP servers whose tools the ``tools`` actor may call, too, in the ``mcpServers`` form that editors have."""
    command: Annotated[NonEmptyText, BeforeValidator(_one_text), AfterValidator(_check_command)] | None = None
    """Program of the ``command`` actor with its arguments: a list, or one text with a shell's quotes. No shell runs it.
    ``{prompt}``, ``{system}``, ``{item}``, ``{base_url}``, ``{root_url}``, ``{api_key}`` and ``{here}`` are filled in."""
    stdin: Literal["item", "prompt", "nothing"] | None = None
    """What a command finds on its standard input: the ``item`` as JSON, the ``prompt`` as text, or ``nothing``. None:
    ``nothing`` if ``{prompt}`` or ``{item}`` is in ``actor.command``, else ``item``: agents add it to their prompt."""
    url: Annotated[NonEmptyText, AfterValidator(checked_address)] | None = None
    """Address of the ``http`` actor, which takes items by POST."""
    headers: Annotated[dict[str, str], AfterValidator(_checked_headers)] = Field(default_factory=dict)
    """Further headers of requests to it, as in ``model.headers``: a secret is ``env:NAME``, such as for ``Authorization``."""
    answer: NonEmptyText | None = None
    """Where the answer is. Of a command: ``stdout`` (the default), ``last_line``, ``file:NAME``, ``json:/POINTER`` or
    ``diff``; of an HTTP agent: ``json:/POINTER`` (the default is ``json:/answer``) or ``text``."""
    workdir: NonEmptyText | None = None
    """Folder of which each attempt of a command gets a copy to work in. None: an empty one."""
    env: ListOf[Annotated[NonEmptyText, AfterValidator(_check_variable)]] = ()
    """Variables of a command: ``NAME`` passes one through, ``NAME=VALUE`` sets one. Secrets are passed by name only."""
    memory_mb: int | None = Field(default=8_192, ge=1)
    """Megabytes of data in memory that each process of a command may use, as far as the system holds it. None: no limit."""
    gateway: GatewaySettings = GatewaySettings()
    max_turns: int = Field(default=8, ge=1, le=1_000)
    """Model turns of one rollout before it fails."""
    timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds one rollout may take in total."""
