"""``tfgrpo serve-simulated``: serve the SIMULATED model over HTTP, for benchmarks and other clients."""

from __future__ import annotations

import argparse
import asyncio
from typing import get_args

from tfgrpo.flows.console.console import Console
from tfgrpo.pipelines.settings.model import SimulatedSettings
from tfgrpo.stores.errors import SettingsError

WORLDS = get_args(SimulatedSettings.model_fields["world"].annotation)


def execute(options: argparse.Namespace, console: Console) -> None:
    """Serve until interrupted."""
    from tfgrpo.pipelines.server.listening import serve  # noqa: PLC0415 - not for `--help`
    from tfgrpo.tasks.models.simulated import SimulatedOptions, simulated_app  # noqa: PLC0415 - as above

    if options.out_of_bounds:
        raise SettingsError(options.out_of_bounds)
    own = {name: getattr(options, name) for name in ("world", "seed", "api_key")}
    app = simulated_app(SimulatedOptions(latency_s=options.latency, **own))

    def ready(url: str) -> None:
        facts = {"status": "serving", "simulated": True, "world": options.world, "base_url": f"{url}/v1"}
        console.answer(facts, f"SIMULATED model, world {options.world}, at {url}/v1")

    asyncio.run(serve(app, options.host, options.port, ready))
