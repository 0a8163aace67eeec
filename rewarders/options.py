"""What do the options of rewarders that hold others have in common? Small checks that name the place of each problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfgrpo.stores.errors import PipelineError, Problem


def taken_id(options: Mapping[str, Any], default: str, where: str) -> tuple[dict[str, Any], str]:
    """The options without ``rewarder_id``, and that name. Raises ``PipelineError`` when it is no name."""
    rest = dict(options)
    name = rest.pop("rewarder_id", default)
    if not isinstance(name, str) or not name.strip():
        raise PipelineError([Problem(f"{where}: options.rewarder_id", repr(name), "a name")])
    return rest, name
