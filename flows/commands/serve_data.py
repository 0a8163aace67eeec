"""``tfgrpo serve-data``: serve samples of a staged data mix over HTTP, and grade completions of them."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tfgrpo.flows.commands.options import token_of
from tfgrpo.flows.console.console import Console, leave_lost_terminal
from tfgrpo.flows.console.environment import installed_version
from tfgrpo.pipelines.mix.config import MixConfig, load_mix_config
from tfgrpo.pipelines.server.access import require_local_host
from tfgrpo.pipelines.server.app import data_app
from tfgrpo.pipelines.server.limits import Limits
from tfgrpo.pipelines.server.listening import ServerOptions, serve
from tfgrpo.pipelines.server.second_signal import killed_by_second_signal
from tfgrpo.pipelines.server.service import DataService
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.stores.errors import ConfigError, PipelineError, Problem, SettingsError
from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure

_MEBIBYTE: Final = 2**20


def execute(options: argparse.Namespace, console: Console) -> None:
    """Check everything, then serve until interrupted."""
    config, token = _checked(options, os.environ)
    with killed_by_second_signal():
        asyncio.run(_serve(options, config, token, console))


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the limits of the server that the options set."""
    return Limits(
        max_batch=options.max_batch,
        max_body=int(options.max_body_mb * _MEBIBYTE),
        concurrency=options.concurrency,
        max_held=int(options.max_held_mb * _MEBIBYTE),
        queue=options.queue,
        max_lost_share=options.max_lost_share if options.on_failure == "refuse" else 1.0,
    )


async def _serve(options: argparse.Namespace, config: MixConfig, token: str | None, console: Console) -> None:
    telemetry = configure(TelemetryOptions(service_version=installed_version()), os.environ)
    runner = ScoreRunner(timeout_s=options.grader_timeout)
    runner.warm(each.graders for each in config.datasets.values())
    service = DataService(config, runner)
    say = partial(console.say, wrap=False)
    for warning in telemetry.warnings:
        say(f"warning: {warning}")
    app = data_app(
        service,
        limits=limits_of(options),
        telemetry=telemetry,
        say=say,
        version=installed_version(),
        token=token,
        verbose=options.verbose,
    )
    if token is None and is_loopback(options.host):
        app = require_local_host(app)
    try:
        manner = ServerOptions(on_signal=leave_lost_terminal)  # else what graders print in their last seconds raises
        ready = partial(_welcome, options=options, config=config, token=token, console=console)
        await serve(app, options.host, options.port, ready, manner)
        say("[dataserver] stopped")
    finally:
        runner.close()
        lost = telemetry.shutdown()
        if lost is not None:
            console.say(lost)


def _checked(options: argparse.Namespace, env: Mapping[str, str]) -> tuple[MixConfig, str | None]:
    """Return the mix and the token. Raise one ``ConfigError`` with the problems of the options and of the file."""
    problems: list[Problem] = options.out_of_bounds
    token = token_of(options, env, problems)
    try:
        config = load_mix_config(Path(options.config))
        if empty := [*config.undrawable()]:
            raise PipelineError(empty)
    except ConfigError as error:
        raise type(error)((*problems, *error.problems)) from None
    if problems:
        raise SettingsError(problems)
    return config, token


def _welcome(url: str, options: argparse.Namespace, config: MixConfig, token: str | None, console: Console) -> None:
    """Print the address of the server and what it serves."""
    for warning in config.warnings:
        console.say(f"warning: {warning}")
    if token is None and not is_loopback(options.host):
        console.say(
            f"warning: {options.host} can be reached from other machines, and no token is asked for; see --token-env",
            style="bold yellow",
        )
    facts = {
        "status": "serving",
        "base_url": url,
        "token": token is not None,
        "total_iterations": config.total_iterations,
        "datasets": {name: len(dataset.records) for name, dataset in config.datasets.items()},
        "stages": [{"name": stage.name, "until_step": stage.until_step} for stage in config.stages],
        "warnings": list(config.warnings),
    }
    console.answer(facts, "\n".join(_lines(url, config, token)))


def _lines(url: str, config: MixConfig, token: str | None) -> Iterator[str]:
    yield f"data server at {url}, {'with' if token else 'without'} a token; {url}/docs describes it"
    for name, dataset in config.datasets.items():
        parts, gates = dataset.graders.parts, dataset.graders.gates
        names = [*(each.scorer.rewarder_id for each in parts[:-1]), "format", *(gate.rewarder_id for gate in gates)]
        yield f"  dataset {name}: {len(dataset.records)} records, graded by {', '.join(names)}"
    for stage in config.stages:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in stage.shares.items())
        yield f"  stage {stage.name}: below iteration {stage.until_step}, {shares}"
