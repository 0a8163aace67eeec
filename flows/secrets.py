"""Where is the API key? In a Prefect Secret block when the pipeline names one, otherwise in the environment.

The key is read in the process that uses it and is never part of a setting, a context or a record.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from pipelines.settings import ModelSettings
from stores.errors import SettingsError


def read_api_key(model: ModelSettings) -> str | None:
    """The key, or None for endpoints that want none. Raises ``SettingsError`` when the named block cannot be read."""
    if model.api_key_secret is None:
        return os.environ.get(model.api_key_env) or None
    # Only endpoints with a Secret block pay for importing Prefect here.
    from prefect.blocks.system import Secret  # noqa: PLC0415

    async def load() -> object:
        block: Secret[Any] = await Secret.aload(name)
        return block.get()

    name = model.api_key_secret
    try:
        value = asyncio.run(load())
    except ValueError as error:
        raise SettingsError.one(
            "model.api_key_secret", name, f"the name of a Prefect Secret block ({error})"
        ) from error
    return str(value) if value else None
