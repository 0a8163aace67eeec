"""``tfgrpo serve-simulated``: serve the SIMULATED model over HTTP, for benchmarks and other clients."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import get_args

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser
from tfgrpo.pipelines.settings.model import FaultSettings, SimulatedSettings
from tfgrpo.stores.errors import Problem, SettingsError

FAULT_KINDS = tuple(FaultSettings.model_fields)
WORLDS = get_args(SimulatedSettings.model_fields["world"].annotation)
_MAX_PORT = 65535


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--host", default="127.0.0.1", help="address to bind [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8001, metavar="N", help="port, 0 for any free one [8001]")
    parser.add_argument(
        "--world",
        choices=WORLDS,
        default="arithmetic",
        metavar="W",
        help=f"which world: {', '.join(WORLDS)} [arithmetic]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the world's replies [0]")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="seconds every reply takes [0]")
    parser.add_argument("--api-key", metavar="KEY", help="refuse callers that do not send this key")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND=SHARE",
        help=f"break this share of calls; kinds: {', '.join(FAULT_KINDS)}",
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Serve until interrupted."""
    from tfgrpo.tasks.models.simulated import SimulatedOptions  # noqa: PLC0415 - not for `--help`
    from tfgrpo.tasks.models.simulated.server import run_server  # noqa: PLC0415

    shares = [_fault(text) for text in options.fault]
    if problems := [*_problems(options), *(share for share in shares if isinstance(share, Problem))]:
        raise SettingsError(problems)
    try:
        app_options = SimulatedOptions(
            world=options.world,
            seed=options.seed,
            latency_s=options.latency,
            api_key=options.api_key,
            faults=FaultSettings(**dict(share for share in shares if not isinstance(share, Problem))),
        )
    except ValueError as error:
        raise SettingsError.one("--fault", " ".join(options.fault), "shares that sum to at most 1") from error

    def ready(url: str) -> None:
        if console.as_json:
            console.result({"status": "serving", "simulated": True, "world": options.world, "base_url": url})
        else:
            console.text(f"SIMULATED model, world {options.world}, at {url}")

    run_server(app_options, options.host, options.port, ready)
    return 0


def _problems(options: argparse.Namespace) -> Iterator[Problem]:
    if not 0 <= options.port <= _MAX_PORT:
        yield Problem("--port", str(options.port), f"a whole number from 0 to {_MAX_PORT}")
    if options.seed < 0:
        yield Problem("--seed", str(options.seed), "a whole number of at least 0")
    if not (math.isfinite(options.latency) and options.latency >= 0.0):
        yield Problem("--latency", str(options.latency), "a number of at least 0")


def _fault(text: str) -> tuple[str, float] | Problem:
    kind, _, share = text.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if kind not in FAULT_KINDS or not 0.0 <= value <= 1.0:
        return Problem("--fault", repr(text), f"KIND=SHARE, 0 to 1, of {', '.join(FAULT_KINDS)}")
    return kind, value
