"""``tfgrpo serve-simulated``: serve the SIMULATED model over HTTP, for benchmarks and other clients."""

from __future__ import annotations

import asyncio
from typing import Any

from tfgrpo.flows.console.console import Console
from tfgrpo.pipelines.server.listening import serve
from tfgrpo.tasks.models.simulated import SimulatedOptions, simulated_app


def serve_simulated(*, host: str, port: int, latency: float, console: Console, **world: Any) -> None:
    """Serve until interrupted."""
    app = simulated_app(SimulatedOptions(latency_s=latency, **world))

    def ready(url: str) -> None:
        facts = {"status": "serving", "simulated": True, "world": world["world"], "base_url": f"{url}/v1"}
        console.answer(facts, f"SIMULATED model, world {world['world']}, at {url}/v1")

    asyncio.run(serve(app, host, port, ready))
