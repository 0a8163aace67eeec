"""What does the OpenAPI description say? What the server really accepts: its limits and its sample ids included.

FastAPI describes the shapes; what only this server knows is put in here. Nothing is enforced by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.server.limits import Limits
from tfgrpo.pipelines.server.shapes import SPACE

_SCHEME: Final = "bearer"
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()\[\]{}|]")
"""What has to be escaped in the regular expressions of every language."""


def describe(app: FastAPI, config: MixConfig, limits: Limits, *, token: bool) -> dict[str, Any]:
    """The description of an app that serves this mix."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    shapes = document["components"]["schemas"]
    shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"] = list(_bounded(shapes, limits))
    shapes["GradeRequest"]["properties"]["items"]["maxItems"] = limits.max_batch
    shapes["GradeItem"]["properties"]["sample_id"]["pattern"] = sample_id_pattern(config)
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    if token:
        document["components"]["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path == "/healthz" else [{_SCHEME: []}]
    return document


def sample_id_pattern(config: MixConfig) -> str:
    """A regular expression for the ids of all samples that there are."""
    ids = [
        f"{_escaped(name)}:{up_to(len(dataset.records) - 1)}"
        for name, dataset in config.datasets.items()
        if len(dataset.records)
    ]
    return f"^({'|'.join(ids)})$" if ids else "^$a"


def _escaped(name: str) -> str:
    return _SYNTAX.sub(r"\\\g<0>", name)


def up_to(last: int) -> str:
    """A regular expression for the whole numbers from 0 to ``last``, without leading zeros."""
    text = str(last)
    choices = [*_shorter(len(text)), text]
    for place, digit in enumerate(text):
        lowest = 1 if place == 0 and len(text) > 1 else 0
        if int(digit) > lowest:
            choices.append(f"{text[:place]}[{lowest}-{int(digit) - 1}]{'[0-9]' * (len(text) - place - 1)}")
    return f"({'|'.join(choices)})"


def _shorter(length: int) -> Iterator[str]:
    """Numbers of fewer digits."""
    if length > 1:
        yield "[0-9]"
    yield from (f"[1-9]{'[0-9]' * (digits - 1)}" for digits in range(2, length))


def _bounded(shapes: dict[str, Any], limits: Limits) -> Iterator[dict[str, Any]]:
    """The ways to write a batch size."""
    for way in shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]:
        if way["type"] == "integer":
            yield way | {"maximum": limits.max_batch}
        elif way["type"] == "string":
            yield way | {"pattern": rf"^{SPACE}(-[0-9]+(_[0-9]+)*|[+]?0*{up_to(limits.max_batch)})(\.0+)?{SPACE}$"}
        else:
            yield way
