"""Complete the OpenAPI description of ``openapi.yaml`` for one server: its limits and the ids of its samples."""

from __future__ import annotations

import re
from typing import Any, Final

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.server.limits import Limits
from tfgrpo.stores.packaged import packaged_yaml

_SYNTAX: Final = re.compile(r"[\^$\\.*+?()\[\]{}|]")
"""Characters to escape in the regular expressions of every language."""


def describe(config: MixConfig, limits: Limits, version: str, *, token: bool) -> dict[str, Any]:
    """Return the description of a server of this mix; ``token``: whether it requires one."""
    document: dict[str, Any] = packaged_yaml(__file__, "openapi.yaml")
    document["info"]["version"] = version
    shapes = document["components"]["schemas"]
    integer, _, text = shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]
    integer["maximum"] = limits.max_batch
    text["pattern"] = text["pattern"].replace("MAX", up_to(limits.max_batch))
    shapes["GradeRequest"]["properties"]["items"]["maxItems"] = limits.max_batch
    shapes["GradeItem"]["properties"]["sample_id"]["pattern"] = sample_id_pattern(config)
    if not token:
        del document["components"]["securitySchemes"]
        for operation in (each for path in document["paths"].values() for each in path.values()):
            operation.pop("security", None)
            operation["responses"].pop("401", None)
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
