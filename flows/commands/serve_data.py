"""``tfgrpo serve-data``: serve samples of a staged data mix over HTTP, and grade completions of them."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser
from tfgrpo.flows.console.version import installed_version
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.stores.errors import ConfigError, Problem, SettingsError

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig
    from tfgrpo.pipelines.server.limits import Limits

_MAX_PORT: Final = 65535
_MEBIBYTE: Final = 2**20
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    parser.add_positional("config", "CONFIG", help="file with the stages, datasets and graders (YAML)")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind [127.0.0.1]")
    parser.add_argument("--port", type=int, default=9000, metavar="N", help="port, 0 for any free one [9000]")
    parser.add_argument("--verbose", action="store_true", help="log requests, with rewards and completions")
    parser.add_argument(
        "--token-env", metavar="NAME", help="variable that holds the bearer token that clients have to send"
    )
    parser.add_argument("--max-batch", type=int, default=16384, metavar="N", help="most items of a request [16384]")
    parser.add_argument("--max-body-mb", type=float, default=32, metavar="X", help="largest body, in MiB [32]")
    parser.add_argument("--concurrency", type=int, default=256, metavar="N", help="requests graded at a time [256]")
    parser.add_argument(
        "--max-held-mb", type=float, default=512, metavar="X", help="bodies of those requests together, in MiB [512]"
    )
    parser.add_argument("--queue", type=int, default=4096, metavar="N", help="requests that may wait for that [4096]")
    parser.add_argument(
        "--grader-timeout", type=float, default=45, metavar="S", help="seconds that a batch may take a grader [45]"
    )
    parser.add_argument(
        "--on-failure",
        choices=("answer", "refuse"),
        default="answer",
        help="when graders fail: answer with 0.0 and an error, or refuse the request with 503 [answer]",
    )
    parser.add_argument(
        "--max-lost-share",
        type=float,
        default=0.5,
        metavar="X",
        help="with --on-failure refuse: share of the items that failing graders may leave ungraded [0.5]",
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Check everything, then serve until interrupted."""
    # The web framework takes most of a second to import, which `--help` should not cost.
    from tfgrpo.pipelines.server.second_signal import killed_by_second_signal  # noqa: PLC0415

    config, token = _checked(options, os.environ)
    with killed_by_second_signal():
        asyncio.run(_serve(options, config, token, console))
    return 0


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the limits of the server that the options set."""
    from tfgrpo.pipelines.server.limits import Limits  # noqa: PLC0415 - as above

    return Limits(
        max_batch=options.max_batch,
        max_body=int(options.max_body_mb * _MEBIBYTE),
        concurrency=options.concurrency,
        max_held=int(options.max_held_mb * _MEBIBYTE),
        queue=options.queue,
        max_lost_share=options.max_lost_share if options.on_failure == "refuse" else 1.0,
    )


async def _serve(options: argparse.Namespace, config: MixConfig, token: str | None, console: Console) -> None:
    from tfgrpo.pipelines.mix.graders import grader_sets  # noqa: PLC0415
    from tfgrpo.pipelines.server.access import LocalHosts  # noqa: PLC0415
    from tfgrpo.pipelines.server.app import data_app  # noqa: PLC0415
    from tfgrpo.pipelines.server.listening import serve  # noqa: PLC0415
    from tfgrpo.pipelines.server.service import DataService  # noqa: PLC0415
    from tfgrpo.rewarders.graders.running import GraderRunner  # noqa: PLC0415
    from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure  # noqa: PLC0415

    telemetry = configure(TelemetryOptions(service_version=installed_version()), os.environ)
    runner = GraderRunner(timeout_s=options.grader_timeout)
    service = DataService(config, grader_sets(config), runner)
    say = saying_to(console)
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
        app = LocalHosts(app)
    try:
        await serve(app, options.host, options.port, lambda url: _welcome(url, options, config, token, console))
        say("[dataserver] stopped")
    finally:
        service.close()
        runner.close()
        lost = telemetry.shutdown()
        if lost is not None:
            console.say(lost)


def _checked(options: argparse.Namespace, env: Mapping[str, str]) -> tuple[MixConfig, str | None]:
    """Return the mix and the token. Raise one ``ConfigError`` with the problems of the options and of the file."""
    from tfgrpo.pipelines.mix.config import load_mix_config  # noqa: PLC0415

    problems = list(_problems(options))
    token = None
    if options.token_env is not None:
        token = env.get(options.token_env, "")
        if _TOKEN.fullmatch(token) is None:
            # The name is not repeated: it may be the token itself, in the wrong place.
            given = "a variable with other text" if token else "a variable that is empty or not set"
            problems.append(Problem("--token-env", given, "the name of one with printable ASCII without spaces"))
    try:
        config = load_mix_config(Path(options.config))
    except ConfigError as error:
        raise type(error)((*problems, *error.problems)) from None
    if problems:
        raise SettingsError(problems)
    return config, token


def _problems(options: argparse.Namespace) -> Iterator[Problem]:
    if not 0 <= options.port <= _MAX_PORT:
        yield Problem("--port", str(options.port), f"a whole number from 0 to {_MAX_PORT}")
    for flag, least in (("max_batch", 1), ("concurrency", 1), ("queue", 0)):
        value = getattr(options, flag)
        if value < least:
            yield Problem(f"--{flag.replace('_', '-')}", str(value), f"a whole number of at least {least}")
    if not 0 <= options.max_lost_share <= 1:
        yield Problem("--max-lost-share", f"{options.max_lost_share:g}", "a number from 0 to 1")
    for flag in ("max_body_mb", "max_held_mb", "grader_timeout"):
        value = getattr(options, flag)
        if not (math.isfinite(value) and value > 0):
            yield Problem(f"--{flag.replace('_', '-')}", f"{value:g}", "a number above 0")


def _welcome(url: str, options: argparse.Namespace, config: MixConfig, token: str | None, console: Console) -> None:
    """Print the address of the server and what it serves."""
    for warning in config.warnings:
        console.say(f"warning: {warning}")
    if token is None and not is_loopback(options.host):
        console.say(
            f"warning: {options.host} can be reached from other machines, and no token is asked for; see --token-env",
            style="bold yellow",
        )
    if console.as_json:
        console.result(_facts(url, config, token))
        return
    console.text("\n".join(_lines(url, config, token)))


def _lines(url: str, config: MixConfig, token: str | None) -> Iterator[str]:
    yield f"data server at {url}, {'with' if token else 'without'} a token; {url}/docs describes it"
    for name, dataset in config.datasets.items():
        graders = ", ".join([*(each.name for each in dataset.graders), "format", *dataset.multiplicative])
        yield f"  dataset {name}: {len(dataset.records)} records, graded by {graders}"
    for stage in config.stages:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in stage.shares.items())
        yield f"  stage {stage.name}: below iteration {stage.until_step}, {shares}"


def _facts(url: str, config: MixConfig, token: str | None) -> dict[str, Any]:
    return {
        "status": "serving",
        "base_url": url,
        "token": token is not None,
        "total_iterations": config.total_iterations,
        "datasets": {name: len(dataset.records) for name, dataset in config.datasets.items()},
        "stages": [{"name": stage.name, "until_step": stage.until_step} for stage in config.stages],
        "warnings": list(config.warnings),
    }


def saying_to(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line to people, with any text; a closed terminal does not stop the server."""

    def say(text: str) -> None:
        try:
            console.say(text.encode("utf-8", "backslashreplace").decode(), wrap=False)
        except OSError:
            return

    return say
