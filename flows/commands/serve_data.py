"""``tfgrpo serve-data`` serves samples of a staged data mix and grades them; ``serve-simulated`` the SIMULATED model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.flows.commands.options import token_of
from tfgrpo.flows.console.console import Console, leave_lost_terminal
from tfgrpo.flows.console.environment import installed_version
from tfgrpo.pipelines.mix.config import MixConfig, load_mix_config
from tfgrpo.pipelines.server.app import ServerLimits, data_app
from tfgrpo.pipelines.server.listening import serve
from tfgrpo.pipelines.server.service import DataService, JudgeOf
from tfgrpo.pipelines.settings.addresses import SECRET_NAME, is_loopback
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.stores.errors import EndpointError, ProblemCollector
from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure
from tfgrpo.tasks.models.endpoint import ApiKey, scrubber
from tfgrpo.tasks.models.simulated import simulated_app

# Opens the judges of a mix, with what says to people what they spend.
_Judges: TypeAlias = Callable[[Callable[..., object]], AbstractAsyncContextManager[JudgeOf]]


def serve_data(  # noqa: PLR0913 - its options
    *,
    config: str,
    host: str,
    port: int,
    verbose: bool,
    token_env: str | None,
    max_batch: int,
    max_body_mb: float,
    concurrency: int,
    grader_timeout: float,
    pipeline: str | None,
    on_failure: str,
    console: Console,
    checks: ProblemCollector,
) -> None:
    """Check everything, then serve until interrupted."""
    tokens = checks.run(token_of, token_env, os.environ)
    mixes = checks.run(load_mix_config, Path(config))
    checks.refuse([problem for mix in mixes for problem in mix.undrawable()])
    openers = checks.run(_judging, mixes[0], pipeline, os.environ) if mixes else []
    checks.raise_problems()
    (mix,), (judges,), token = mixes, openers, tokens[0]
    limits = ServerLimits(
        max_batch=max_batch, max_body=int(max_body_mb * 2**20), concurrency=concurrency, refuse_lost=on_failure == "refuse"
    )

    async def run() -> None:
        telemetry = configure(TelemetryOptions(service_version=installed_version()), os.environ)
        runner = ScoreRunner(timeout_s=grader_timeout)
        runner.warm(each.graders for each in mix.datasets.values())
        say = partial(console.say, wrap=False)
        for warning in telemetry.warnings:
            say(f"warning: {warning}")
        try:
            async with judges(console.say) if judges else nullcontext[JudgeOf](lambda _: None) as judge_of:
                app = data_app(
                    DataService(mix, runner, judge_of, scrubber(*_secrets_in(os.environ))),
                    limits=limits,
                    telemetry=telemetry,
                    say=say,
                    version=installed_version(),
                    token=token,
                    local_only=token is None and is_loopback(host),
                    verbose=verbose,
                )
                ready = partial(_welcome, host=host, has_token=token is not None, config=mix, console=console)
                # Without the handler what graders print in their last seconds raises.
                await serve(app, host, port, ready, leave_lost_terminal)
                say("[dataserver] stopped")
        finally:
            runner.close()
            if (lost := telemetry.shutdown()) is not None:
                console.say(lost)

    asyncio.run(run())


def _secrets_in(env: Mapping[str, str]) -> Iterator[ApiKey]:
    """Yield the keys of the environment, which graders may have in their exceptions."""
    for name, value in env.items():
        with suppress(EndpointError):  # what no header can carry is no key
            if SECRET_NAME.search(name) is not None:
                yield ApiKey(value)


def _judging(config: MixConfig, pipeline: str | None, env: Mapping[str, str]) -> _Judges | None:
    if pipeline is None and not any(each.graders.asks_model for each in config.datasets.values()):
        return None
    from tfgrpo.flows.run.trial import plan_judges, served_judges  # noqa: PLC0415 - half a second, for judges alone

    resolved = None if pipeline is None else resolve_settings(cli={}, env=env, pipeline_path=find_pipeline(pipeline))
    plan = plan_judges(config, resolved)
    return None if plan is None else partial(served_judges, plan)


def _welcome(url: str, host: str, has_token: bool, config: MixConfig, console: Console) -> None:
    for warning in config.warnings:
        console.say(f"warning: {warning}")
    if not has_token and not is_loopback(host):
        open_to_all = f"warning: {host} can be reached from other machines, and no token is asked for; see --token-env"
        console.say(open_to_all, style="bold yellow")
    facts = {
        "status": "serving",
        "base_url": url,
        "token": has_token,
        "total_iterations": config.total_iterations,
        "datasets": {name: len(dataset.records) for name, dataset in config.datasets.items()},
        "stages": [{"name": stage.name, "until_step": stage.until_step} for stage in config.stages],
        "warnings": list(config.warnings),
    }
    lines = [f"data server at {url}, {'with' if has_token else 'without'} a token; {url}/docs describes it"]
    for name, dataset in config.datasets.items():
        parts, gates = dataset.graders.parts, dataset.graders.gates
        names = [*(each.scorer.rewarder_id for each in parts[:-1]), "format", *(gate.rewarder_id for gate in gates)]
        lines.append(f"  dataset {name}: {len(dataset.records)} records, graded by {', '.join(names)}")
    for stage in config.stages:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in stage.shares.items())
        lines.append(f"  stage {stage.name}: below iteration {stage.until_step}, {shares}")
    console.answer(facts, "\n".join(lines))


def serve_simulated(*, host: str, port: int, latency: float, console: Console, **world: Any) -> None:
    """Serve until interrupted."""
    app = simulated_app(SimulatedSettings.model_construct(latency_s=latency, **world))

    def ready(url: str) -> None:
        facts = {"status": "serving", "simulated": True, "world": world["world"], "base_url": f"{url}/v1"}
        console.answer(facts, f"SIMULATED model, world {world['world']}, at {url}/v1")

    asyncio.run(serve(app, host, port, ready))
