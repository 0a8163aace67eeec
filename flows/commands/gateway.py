"""``tfgrpo gateway``: serve the endpoint with the lessons in force of a task to live traffic."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.flows.commands.options import asked_settings, token_of, with_used_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file, installed_version
from tfgrpo.flows.orchestration.request import FlowRequest
from tfgrpo.flows.run.prepare import read_api_key
from tfgrpo.flows.run.served import ServedLessons
from tfgrpo.pipelines.server.listening import bound_socket, ending_signals
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.pipelines.settings.model_choice import SIMULATED_MODEL, is_local
from tfgrpo.pipelines.settings.prices import PriceList
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import Problem, SettingsError, StoreError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget
from tfgrpo.stores.telemetry.setup import TelemetryOptions, configure
from tfgrpo.tasks.gateway.live.keeping import KeptItems
from tfgrpo.tasks.gateway.live.server import LiveServer
from tfgrpo.tasks.gateway.live.traffic import Traffic
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import Endpoint, endpoint_of
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport


class _Checked(NamedTuple):
    """What the gateway serves."""

    settings: Settings
    model: ModelSettings
    endpoint: Endpoint
    token: str | None


def execute(options: argparse.Namespace, console: Console) -> None:
    """Check everything, then serve until interrupted."""
    checked = _checked(options, os.environ)
    asyncio.run(_serve(options, checked, console))


def _checked(options: argparse.Namespace, env: Mapping[str, str]) -> _Checked:
    """Return what is served. Raise ``ConfigError`` with every problem."""
    settings = with_used_task(
        FlowRequest(settings=dict(asked_settings(options)), pipeline=options.pipeline).resolved(env)
    )
    model = settings.model.of("actor")
    problems: list[Problem] = list(options.out_of_bounds)
    token = token_of(options, env, problems)
    if options.token_env is None and not is_loopback(options.host):
        given = f"{options.host}, which other machines can reach, without --token-env"
        accepted = "--token-env NAME beside it, the token that clients send as their key"
        problems.append(Problem("--host", given, accepted))
    if model.base_url is None:
        accepted = "the address of the endpoint, such as https://api.openai.com/v1"
        problems.append(Problem("--base-url", "nothing", accepted))
    if problems or model.base_url is None:
        raise SettingsError(problems)
    # Clients who know the token are ours and use our key. Without one, what they send as a key is the endpoint's.
    key = read_api_key(model) if token is not None else None
    return _Checked(settings, model, endpoint_of(model, model.base_url, key), token)


async def _serve(options: argparse.Namespace, checked: _Checked, console: Console) -> None:
    settings, gateway, say = checked.settings, checked.settings.actor.gateway, partial(console.say, wrap=False)
    telemetry = configure(
        TelemetryOptions(
            service_version=installed_version(),
            task_id=settings.task_id,
            content=settings.telemetry.content,
        ),
        os.environ,
    )

    def report(text: str) -> None:
        say(f"[gateway] {text}")

    for warning in telemetry.warnings:
        report(f"warning: {warning}")
    lessons = ServedLessons(
        TaskPaths.of(settings.out, settings.task_id),
        Path(settings.packs_root) if settings.packs_root else None,
        report,
        simulated=checked.model.name == SIMULATED_MODEL,
    )
    try:
        async with AsyncExitStack() as stack:
            client = _client(checked, options.concurrency)
            stack.push_async_callback(client.aclose)
            traffic = Traffic(
                settings.task_id,
                lessons.block,
                telemetry,
                held_out=options.held_out,
                models=gateway.models,
                auxiliary=gateway.auxiliary,
                max_tokens=checked.model.max_tokens,
                kept=None if options.keep is None else _kept(Path(options.keep), options.keep_mb, report),
            )
            listening = bound_socket(options.host, options.port)
            stack.callback(listening.close)
            server = LiveServer(client, traffic, lessons.facts, checked.token)
            stack.push_async_callback(server.aclose)
            url, stop, loop = await server.start(listening), asyncio.Event(), asyncio.get_running_loop()
            for number in ending_signals():
                # Not the loop's own handlers: those would take the wakeup descriptor of the second signal.
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
            _welcome(url, options, checked, lessons, console)
            await stop.wait()
            report("stopping; calls in flight may end")
        report("stopped")
    finally:
        if (lost := telemetry.shutdown()) is not None:
            say(lost)


def _client(checked: _Checked, concurrency: int) -> ChatClient:
    base_url = checked.endpoint.base_url
    return ChatClient(
        checked.endpoint,
        open_transport(concurrency=concurrency),
        concurrency=concurrency,
        ledger=Ledger(Budget()),  # counts only: there is no budget here
        prices=PriceList(checked.model.prices, None if is_local(base_url) else base_url),
        retry=RetryPolicy(),
        rng=random.Random(),
    )


def _kept(path: Path, megabytes: int, say: Callable[[str], None]) -> KeptItems:
    check_output_file(path, lambda _: True, "", option="--keep", endings=(".jsonl",))
    try:
        return KeptItems(path, megabytes << 20, say)
    except StoreError as error:
        raise SettingsError.one("--keep", str(error), "a file of your own that can be written") from None


def _welcome(
    url: str, options: argparse.Namespace, checked: _Checked, lessons: ServedLessons, console: Console
) -> None:
    found = lessons.facts()
    facts: dict[str, Any] = {
        "status": "serving",
        "base_url": f"{url}/v1",
        "anthropic_base_url": url,
        "endpoint": checked.endpoint.display_url,
        "task_id": checked.settings.task_id,
        "held_out": options.held_out,
        "token": checked.token is not None,
        **found,
    }
    in_force = len(found["lessons"]) or f"0 ({lessons.why_none()})"
    key = "the token" if checked.token is not None else "their own, which is passed on"
    lines = [
        f"gateway to {facts['endpoint']} with the lessons of task {facts['task_id']}",
        f"  OPENAI_BASE_URL={url}/v1",
        f"  ANTHROPIC_BASE_URL={url}",
        f"  key of clients: {key}; {url}/meta shows what is served",
        f"  lessons in force: {in_force}; held out: {options.held_out:.0%} of conversations",
    ]
    console.answer(facts, "\n".join(lines))
