"""Complete FastAPI's OpenAPI description by this server's limits and sample ids. It enforces none of them."""

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
"""Characters to escape in the regular expressions of every language."""


def describe(app: FastAPI, config: MixConfig, limits: Limits, *, token: bool) -> dict[str, Any]:
    """Return the description of an app that serves this mix."""
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
    """Return a regular expression for all sample ids."""
    ids = [
        _SYNTAX.sub(r"\\\g<0>", name) + f":{up_to(len(dataset.records) - 1)}"
        for name, dataset in config.datasets.items()
        if len(dataset.records)
    ]
    return f"^({'|'.join(ids)})$" if ids else "^$a"


def up_to(last: int) -> str:
    """Return a regular expression for the whole numbers from 0 to ``last``, without leading zeros."""
    text = str(last)
    shorter = [f"[1-9]{'[0-9]' * (digits - 1)}" for digits in range(2, len(text))]
    choices = [*(["[0-9]"] if len(text) > 1 else []), *shorter, text]
    for at, digit in enumerate(text):
        lowest = 1 if at == 0 and len(text) > 1 else 0
        if int(digit) > lowest:
            choices.append(f"{text[:at]}[{lowest}-{int(digit) - 1}]{'[0-9]' * (len(text) - at - 1)}")
    return f"({'|'.join(choices)})"


def _bounded(shapes: dict[str, Any], limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the forms of a batch size, with the limit."""
    for form in shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]:
        if form["type"] == "integer":
            yield form | {"maximum": limits.max_batch}
        elif form["type"] == "string":
            yield form | {"pattern": rf"^{SPACE}(-[0-9]+(_[0-9]+)*|[+]?0*{up_to(limits.max_batch)})(\.0+)?{SPACE}$"}
        else:
            yield form
