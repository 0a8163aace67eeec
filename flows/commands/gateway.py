"""``tfgrpo gateway`` serves the endpoint with the lessons in force to live traffic; ``tfgrpo mcp`` serves the lessons alone."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tfgrpo.flows.commands.options import TaskChoice, token_of, with_used_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file, installed_version
from tfgrpo.flows.orchestration.request import FlowRequest
from tfgrpo.flows.run.lessons import ServedLessons, decision_in_force, production_gains, production_rows
from tfgrpo.flows.run.prepare import read_api_key
from tfgrpo.pipelines.server.listening import bound_socket, ending_signals
from tfgrpo.pipelines.settings.addresses import is_loopback
from tfgrpo.pipelines.settings.guardrails import check_served_prices
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.model_choice import SIMULATED_MODEL, PriceList, is_local
from tfgrpo.pipelines.settings.tree import ModelSettings, Settings
from tfgrpo.stores.errors import Problem, ProblemCollector, SettingsError, StoreError
from tfgrpo.stores.experiences.credit import CreditFile
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import LineFile, read_objects
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions, configure
from tfgrpo.tasks.gateway.live import KeptItems, LiveServer, Traffic
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import Endpoint, endpoint_of
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport


def _keys_in(path: Path) -> tuple[str, ...]:
    """Return the keys of clients in a file, one in a line after its client's name; none while it cannot be read."""
    try:
        lines = [line.split() for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    except (OSError, ValueError):
        return ()
    return tuple(words[1] for words in lines if len(words) == 2)


class _Checked(NamedTuple):
    settings: Settings
    model: ModelSettings
    endpoint: Endpoint
    keys: Callable[[], tuple[str, ...]] | None
    """Keys of clients; None without ``--token-env`` and ``--keys``."""
    held_out: float
    concurrency: int
    say: Callable[[str], None]

    def lessons(self, task_id: str) -> ServedLessons:
        root, paths = self.settings.packs_root, TaskPaths.of(self.settings.out, task_id)
        return ServedLessons(paths, Path(root) if root else None, self.say, simulated=self.model.name == SIMULATED_MODEL)

    def traffic(self, task_id: str, lessons: ServedLessons, telemetry: Telemetry, kept: KeptItems | None) -> Traffic:
        names, paths = self.settings.actor.gateway, TaskPaths.of(self.settings.out, task_id)
        return Traffic(
            task_id,
            lessons.block,
            telemetry,
            served=lessons.facts,
            held_out=self.held_out,
            models=names.models,
            lessons_in=names.lessons_in,
            max_tokens=self.model.max_tokens,
            kept=kept,
            outcomes=LineFile(paths.outcomes, "line_id"),
            secret=_secret_in(paths.outcome_key),
        )

    def client(self) -> ChatClient:
        budget = self.settings.budget
        return ChatClient(
            self.endpoint,
            open_transport(concurrency=self.concurrency),
            concurrency=self.concurrency,
            # A gateway runs for months: its caps are of a day.
            ledger=Ledger(Budget(budget.max_usd, budget.max_tokens, budget.max_calls, scope="today's ")),
            prices=_prices(self.model),
            retry=RetryPolicy(),
            rng=random.Random(),
        )


def _secret_in(path: Path) -> str:
    made = secrets.token_hex()
    with suppress(StoreError):  # where nothing can be written no outcome can, either
        LineFile(path, "line_id").add([{"line_id": "first", "key": made}])
    # Of the first gateway of the task: a line with a known id is not added again.
    return next((str(line["key"]) for line in read_objects(path)), made)


def gateway(  # noqa: PLR0913 - its options
    *,
    action: str | None,
    pipeline: str | None,
    host: str,
    port: int,
    token_env: str | None,
    keys: str | None,
    held_out: float,
    keep: str | None,
    keep_mb: int,
    concurrency: int,
    settings: Mapping[str, str],
    console: Console,
    checks: ProblemCollector,
) -> None:
    """Check everything, then serve until interrupted; or compare the arms by their outcomes."""
    if action is not None:
        compare(action, settings, console)
        return
    served = checks.run(_served, pipeline, settings)
    tokens = checks.run(token_of, token_env, os.environ)
    if keys is not None and not _keys_in(Path(keys)):
        checks.refuse([Problem("--keys", keys, "a file with lines of a client's name and its key")])
    if token_env is None and keys is None and not is_loopback(host):
        address = f"{host}, which other machines can reach, without --token-env"
        checks.refuse([Problem("--host", address, "--token-env NAME beside it, the token that clients send as their key")])
    checks.raise_problems()
    (used, model, base_url), token = served[0], tokens[0]

    def admitted() -> tuple[str, ...]:
        # The file is read for each call: a key that is added or taken out counts at once.
        return (*(() if token is None else (token,)), *(() if keys is None else _keys_in(Path(keys))))

    # Clients who know a key of ours use our own at the endpoint. Without keys of ours, what they send is the endpoint's.
    is_open = token is None and keys is None
    endpoint = endpoint_of(model, base_url, None if is_open else read_api_key(model))

    def report(text: str) -> None:
        console.say(f"[gateway] {text}", wrap=False)

    checked = _Checked(used, model, endpoint, None if is_open else admitted, held_out, concurrency, report)
    kept = None if keep is None else _kept_items(Path(keep), keep_mb << 20, report)
    asyncio.run(_serve(host, port, checked, kept, console))


def _served(pipeline: str | None, chosen: Mapping[str, str]) -> tuple[Settings, ModelSettings, str]:
    settings = with_used_task(FlowRequest(settings=dict(chosen), pipeline=pipeline).resolved(os.environ))
    model = settings.model.of("actor")
    if model.base_url is None:
        accepted = "the address of the endpoint, such as https://api.openai.com/v1"
        raise SettingsError.one("--base-url", "nothing", accepted)
    check_served_prices(settings, _prices(model))
    return settings, model, model.base_url


def _prices(model: ModelSettings) -> PriceList:
    return PriceList(model.prices, None if model.base_url is None or is_local(model.base_url) else model.base_url)


def _kept_items(path: Path, max_bytes: int, say: Callable[[str], None]) -> KeptItems:
    check_output_file(path, lambda _: True, "", option="--keep", endings=(".jsonl",))
    try:
        return KeptItems(path, max_bytes, say)
    except StoreError as error:
        raise SettingsError.one("--keep", str(error), "a file of your own that can be written") from None


async def _serve(host: str, port: int, checked: _Checked, kept: KeptItems | None, console: Console) -> None:
    settings, content = checked.settings, checked.settings.telemetry.content
    options = TelemetryOptions(service_version=installed_version(), task_id=settings.task_id, content=content)
    telemetry = configure(options, os.environ)
    for warning in telemetry.warnings:
        checked.say(f"warning: {warning}")
    lessons = checked.lessons(settings.task_id)
    try:
        async with AsyncExitStack() as stack:
            client = checked.client()
            stack.push_async_callback(client.aclose)
            # Clients may name another task in their path; only the traffic of this one is kept.
            main = checked.traffic(settings.task_id, lessons, telemetry, kept)

            def served(name: str) -> Traffic | None:
                if name in {"", settings.task_id}:
                    return main
                with suppress(ValueError):
                    if TaskPaths.of(settings.out, name).promotions.exists():
                        return checked.traffic(name, checked.lessons(name), telemetry, None)
                return None

            listening = bound_socket(host, port)
            stack.callback(listening.close)
            server = LiveServer(client, served, checked.keys)
            stack.push_async_callback(server.aclose)
            url, stop, loop = await server.start(listening), asyncio.Event(), asyncio.get_running_loop()
            for number in ending_signals():
                # Not the loop's own handlers: those would take the wakeup descriptor of the second signal.
                signal.signal(number, lambda *_: loop.is_closed() or loop.call_soon_threadsafe(stop.set))
            _welcome(url, checked, lessons, console)
            gc.freeze()  # a look at all that the imports have made holds every call up for 60 ms
            await stop.wait()
            checked.say("stopping; calls in flight may end")
        checked.say("stopped")
    finally:
        if (lost := telemetry.shutdown()) is not None:
            console.say(lost, wrap=False)


def _welcome(url: str, checked: _Checked, lessons: ServedLessons, console: Console) -> None:
    facts = {
        "status": "serving",
        "base_url": f"{url}/v1",
        "anthropic_base_url": url,
        "endpoint": checked.endpoint.display_url,
        "task_id": checked.settings.task_id,
        "held_out": checked.held_out,
        "token": checked.keys is not None,
        **lessons.facts(),
    }
    in_force = len(facts["lessons"]) or f"0 ({lessons.why_none()})"
    key = "one of the gateway's" if checked.keys is not None else "their own, which is passed on"
    lines = [
        f"gateway to {facts['endpoint']} with the lessons of task {facts['task_id']}",
        f"  OPENAI_BASE_URL={url}/v1",
        f"  ANTHROPIC_BASE_URL={url}",
        f"  key of clients: {key}; {url}/meta shows what is served",
        f"  lessons in force: {in_force}; held out: {checked.held_out:.0%} of conversations",
    ]
    console.answer(facts, "\n".join(lines))


def compare(action: str, chosen: Mapping[str, str], console: Console) -> None:
    """Print what the lessons gained in production by the outcomes, and add rows of them. Raise ``SettingsError``."""
    if action != "compare":
        raise SettingsError.one("ACTION", repr(action), "compare, or nothing to serve")
    settings = with_used_task(FlowRequest(settings=dict(chosen)).resolved(os.environ))
    paths = TaskPaths.of(settings.out, settings.task_id)
    gains = list(production_gains(paths))
    added = CreditFile(paths.credit).append(production_rows(paths))
    lines = [f"outcomes of task {settings.task_id}:", *(f"  {gain}" for gain in gains), f"  rows added: {added}"]
    if not gains:
        lines = [f"{lines[0]} none yet: clients post them to /outcome"]
    facts = {"task_id": settings.task_id, "libraries": [gain._asdict() for gain in gains], "rows": added}
    console.answer(facts, "\n".join(lines))


def mcp(settings: Mapping[str, str], console: Console) -> None:
    """Serve until standard input ends. Raise ``SettingsError`` for bad settings, and without the package mcp."""
    used = with_used_task(resolve_settings(cli=settings, env=os.environ))
    if find_spec("mcp") is None:
        raise SettingsError.one("tfgrpo mcp", "no package mcp", "`pip install 'tfgrpo[mcp]'`")
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra

    paths = TaskChoice(used.out, used.task_id).existing(console)
    packs_root = Path(used.packs_root) if used.packs_root else None
    server = MCPServer("tfgrpo")

    def say(text: str) -> None:
        console.say(f"[mcp] {text}", wrap=False)  # to people: standard output is the protocol's

    def lessons() -> str:
        """Return what earlier attempts at tasks like this taught. Call it first, and follow each lesson where it fits."""
        decision = decision_in_force(paths)
        simulated = decision is not None and decision.simulated
        return ServedLessons(paths, packs_root, say, simulated=simulated).block() or "There are no lessons yet."

    say(f"the lessons of task {used.task_id}")
    server.add_tool(lessons, structured_output=False)
    server.run()
