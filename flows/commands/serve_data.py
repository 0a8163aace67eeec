"""``tfgrpo serve-data``: serve samples of a staged data mix over HTTP, and grade completions of them."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tfgrpo.flows.commands.options import token_of
from tfgrpo.flows.console.console import Console, leave_lost_terminal
from tfgrpo.flows.console.environment import installed_version
from tfgrpo.pipelines.mix.config import MixConfig, load_mix_config
from tfgrpo.pipelines.server.app import data_app
from tfgrpo.pipelines.server.limits import Limits
from tfgrpo.pipelines.server.listening import ServerOptions, serve
from tfgrpo.pipelines.server.service import DataService, JudgeOf, no_judge
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.stores.errors import ConfigError, PipelineError, Problem, SettingsError
from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure
from tfgrpo.stores.text import pluralize

if TYPE_CHECKING:
    from tfgrpo.pipelines.plan.plan import BasePlan

_MEBIBYTE: Final = 2**20


def execute(options: argparse.Namespace, console: Console) -> None:
    """Check everything, then serve until interrupted."""
    config, plan, token = _checked(options, os.environ)
    asyncio.run(_serve(options, config, plan, token, console))


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


async def _serve(
    options: argparse.Namespace, config: MixConfig, plan: BasePlan | None, token: str | None, console: Console
) -> None:
    if plan is None:
        await _serve_mix(options, config, token, console)
        return
    from tfgrpo.flows.console.figures import spending  # noqa: PLC0415 - what asks models is for judges only
    from tfgrpo.flows.run.judging import judge_of, open_judges  # noqa: PLC0415 - as above

    async with open_judges(plan, "serve-data") as (runtime, warnings):
        for warning in warnings:
            console.say(f"warning: {warning}", wrap=False)
        caps = plan.settings.budget.model_dump(exclude={"task_max_usd"}, exclude_none=True)
        limit = ", ".join(f"budget.{name} {cap:g}" for name, cap in caps.items()) or "no limit: set budget.max_usd"
        simulated = " (SIMULATED)" if plan.simulated else ""
        console.say(f"judges ask {', '.join(plan.models.judges) or plan.models.name}{simulated}, within {limit}")
        await _serve_mix(options, config, token, console, judge_of(runtime))
        spent = runtime.ledger.totals()
        console.say(f"judging took {pluralize(spent.calls, 'call')}, {spending(spent)}{simulated}")


async def _serve_mix(
    options: argparse.Namespace, config: MixConfig, token: str | None, console: Console, judge_of: JudgeOf = no_judge
) -> None:
    telemetry = configure(TelemetryOptions(service_version=installed_version()), os.environ)
    runner = ScoreRunner(timeout_s=options.grader_timeout)
    runner.warm(each.graders for each in config.datasets.values())
    service = DataService(config, runner, judge_of)
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
        local_only=token is None and is_loopback(options.host),
        verbose=options.verbose,
    )
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


def _checked(options: argparse.Namespace, env: Mapping[str, str]) -> tuple[MixConfig, BasePlan | None, str | None]:
    """Return the mix, the plan of its judges, and the token. Raise one ``ConfigError`` with the problems of all."""
    problems: list[Problem] = options.out_of_bounds
    token = token_of(options, env, problems)
    try:
        config = load_mix_config(Path(options.config))
        if empty := [*config.undrawable()]:
            raise PipelineError(empty)
        plan = _judging(config, options.pipeline, env)
    except ConfigError as error:
        raise type(error)((*problems, *error.problems)) from None
    if problems:
        raise SettingsError(problems)
    return config, plan, token


def _judging(config: MixConfig, pipeline: str | None, env: Mapping[str, str]) -> BasePlan | None:
    """Return the plan of the judges of a mix; None without any. Raise ``ConfigError``."""
    if pipeline is None and not any(each.graders.asks_model for each in config.datasets.values()):
        return None
    from tfgrpo.flows.orchestration.request import RunRequest  # noqa: PLC0415 - as in ``_serve``
    from tfgrpo.flows.run.judging import plan_judges  # noqa: PLC0415 - as above

    return plan_judges(config, None if pipeline is None else RunRequest(pipeline=pipeline).resolved(env))


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
