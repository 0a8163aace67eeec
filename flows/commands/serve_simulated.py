"""``tfgrpo serve-simulated``: serve the SIMULATED model over HTTP, for benchmarks and other clients."""

from __future__ import annotations

import argparse
import math
from typing import Final, get_args

from tfgrpo.flows.console.console import Console
from tfgrpo.pipelines.settings.model import FAULT_KINDS, SimulatedSettings
from tfgrpo.stores.errors import Problem, SettingsError

_OWN: Final = ("world", "seed", "effect", "attention", "label_noise", "drift", "night", "misjudged", "api_key")
WORLDS = get_args(SimulatedSettings.model_fields["world"].annotation)


def execute(options: argparse.Namespace, console: Console) -> None:
    """Serve until interrupted."""
    from tfgrpo.tasks.models.simulated import SimulatedOptions  # noqa: PLC0415 - not for `--help`
    from tfgrpo.tasks.models.simulated.server import run_server  # noqa: PLC0415

    shares = [_fault(text) for text in options.fault]
    if problems := [*options.out_of_bounds, *(share for share in shares if isinstance(share, Problem))]:
        raise SettingsError(problems)
    try:
        faults = dict(share for share in shares if not isinstance(share, Problem))
        own = {name: getattr(options, name) for name in _OWN}
        app_options = SimulatedOptions(latency_s=options.latency, faults=faults, **own)
    except ValueError as error:
        raise SettingsError.one("--fault", " ".join(options.fault), "shares that sum to at most 1") from error

    def ready(url: str) -> None:
        facts = {"status": "serving", "simulated": True, "world": options.world, "base_url": url}
        console.answer(facts, f"SIMULATED model, world {options.world}, at {url}")

    run_server(app_options, options.host, options.port, ready)


def _fault(text: str) -> tuple[str, float] | Problem:
    kind, _, share = text.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if kind not in FAULT_KINDS or not 0.0 <= value <= 1.0:
        return Problem("--fault", repr(text), f"KIND=SHARE, 0 to 1, of {', '.join(FAULT_KINDS)}")
    return kind, value
