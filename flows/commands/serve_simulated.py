"""``tfgrpo serve-simulated``: the SIMULATED model over HTTP, for benchmarks and other clients."""

from __future__ import annotations

import argparse
from typing import get_args

from flows.console import Console
from pipelines.settings import FaultSettings, SimulatedSettings
from stores.errors import SettingsError
from tasks.models.simulated import SimulatedOptions, run_server

FAULT_KINDS = tuple(FaultSettings.model_fields)
WORLDS = get_args(SimulatedSettings.model_fields["world"].annotation)


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--host", default="127.0.0.1", help="address to bind [default: 127.0.0.1]")
    parser.add_argument("--port", type=int, default=8001, help="port, 0 for any free one [default: 8001]")
    parser.add_argument("--world", choices=WORLDS, default="arithmetic", help="which world [default: arithmetic]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the world's replies [default: 0]")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="latency of every reply")
    parser.add_argument("--api-key", help="refuse callers that do not send this key")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND=SHARE",
        help=f"break this share of calls; kinds: {', '.join(FAULT_KINDS)}",
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Serve until interrupted."""
    try:
        app_options = SimulatedOptions(
            world=options.world,
            seed=options.seed,
            latency_s=options.latency,
            api_key=options.api_key,
            faults=FaultSettings(**dict(_fault(text) for text in options.fault)),
        )
    except ValueError as error:
        raise SettingsError.one("--fault", " ".join(options.fault), str(error)) from error

    def ready(url: str) -> None:
        console.text(f"SIMULATED model, world {options.world}, at {url}")

    run_server(app_options, options.host, options.port, ready)
    return 0


def _fault(text: str) -> tuple[str, float]:
    kind, _, share = text.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if kind not in FAULT_KINDS or not 0.0 <= value <= 1.0:
        raise SettingsError.one("--fault", repr(text), f"KIND=SHARE, 0 to 1, of {', '.join(FAULT_KINDS)}")
    return kind, value
