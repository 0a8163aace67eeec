"""The data server: samples of a staged data mix over HTTP, and rewards for completions of them.

Names are imported when they are asked for: the framework alone takes most of a second.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.server.app import data_app
    from pipelines.server.limits import Limits
    from pipelines.server.listening import running, serve
    from pipelines.server.service import DataService

__all__ = ["DataService", "Limits", "data_app", "running", "serve"]

_HOMES = {"DataService": "service", "Limits": "limits", "data_app": "app", "running": "listening", "serve": "listening"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
