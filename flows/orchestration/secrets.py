"""Read the API key from a Prefect Secret block if the pipeline names one, else from the environment.

The key is read in the process that uses it and is never part of a setting, a context or a record.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.errors import SettingsError

_ACCEPTED = "the name of a Prefect Secret block; `prefect block ls` lists those there are"


def read_api_key(model: ModelSettings) -> str | None:
    """The key, or None for endpoints that want none. Raises ``SettingsError`` when the named block cannot be read."""
    if model.api_key_secret is None:
        return os.environ.get(model.api_key_env) or None
    # Only endpoints with a Secret block pay for importing Prefect here.
    from prefect.blocks.system import Secret  # noqa: PLC0415
    from prefect.exceptions import PrefectException  # noqa: PLC0415

    async def load() -> object:
        block: Secret[Any] = await Secret.aload(name)
        return block.get()

    name = model.api_key_secret
    try:
        value = asyncio.run(load())
    except ValueError:
        # Prefect's own text for a missing block; nothing of it is repeated, because the key may stand where the name should.
        raise SettingsError.one("model.api_key_secret", "no such block", _ACCEPTED) from None
    except (PrefectException, httpx.HTTPError, OSError, RuntimeError) as error:
        given = f"no answer from Prefect ({type(error).__name__})"
        raise SettingsError.one("model.api_key_secret", given, "a Prefect server that can be reached") from None
    return str(value) if value else None
