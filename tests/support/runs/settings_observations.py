"""Functions that return one observable effect of settings, from a probe and the settings."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

from tests.support.agents import steps
from tests.support.agents.endpoint import SYSTEM
from tests.support.models.faults import broken_calls
from tests.support.models.simulated_calls import in_process, request
from tests.support.records.otlp_receiver import OtlpReceiver
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.settings_probe import REAL, TINY, Exchange, Options, SettingsProbe, TinyRun
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.selection.plan import SelectionPlan, plan_selection
from tfgrpo.flows.selection.request import SelectRequest
from tfgrpo.flows.selection.select import select
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.pipelines.settings.model import ModelRole
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.patterns import Observation
from tfgrpo.tasks.actors.registry import listed_tools, tools_of
from tfgrpo.tasks.gateway.chat import ChatDialect
from tfgrpo.tasks.gateway.outgoing import outgoing
from tfgrpo.tasks.gateway.session import RolloutSession
from tfgrpo.tasks.gateway.splice import Document
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.tools.schema import run_tool

Observe = Callable[[SettingsProbe, Options], object]

AGENTS = "tests.support.runs.settings_probe"


def of_plan(look: Callable[[Plan], object]) -> Observe:
    return lambda probe, options: look(probe.plan(options))


def of_gateway(probe: SettingsProbe, options: Options) -> object:
    """Return the request of an agent as the gateway forwards it."""
    settings = probe.settings({**REAL, **options})
    runtime = steps.runtime(lambda request, key: "unused", probe.root)
    context = replace(runtime.context, settings=settings, models=choose_models(settings))
    attempt = AttemptContext(steps.spec(system=SYSTEM), 0, replace(runtime, context=context))
    asked = b'{"model": "gpt-5", "messages": [{"role": "user", "content": "?"}], "temperature": 1}'
    return outgoing(ChatDialect(), Document(asked), RolloutSession(attempt, "http://127.0.0.1:1").additions).raw


def of_tiny(look: Callable[[TinyRun], object], **faults: float) -> Observe:
    def observed(probe: SettingsProbe, options: Options) -> object:
        with broken_calls(**faults):
            return look(probe.tiny_run(options))

    return observed


def of_exchange(look: Callable[[Exchange], object], **behaviour: Any) -> Observe:
    return lambda probe, options: look(probe.exchange(options, **behaviour))


class _Echo(BaseHTTPRequestHandler):
    """An agent that answers with the path of its address."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"answer": f"{self.path} {self.headers.get('x-team')}"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def outputs_of_a_service(probe: SettingsProbe, options: Options) -> list[str]:
    """Return what an agent at ``http://service.test`` answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = options["actor.url"].replace("service.test", f"127.0.0.1:{server.server_port}")
        try:
            return [rollout.output for rollout in probe.exchange({**options, "actor.url": url}).result.rollouts]
        finally:
            server.shutdown()


def of_python(code: str) -> Observe:
    """Observe what the tool python returns for a program."""

    async def called(settings: ActorSettings) -> str:
        (tool,) = tools_of(settings)
        try:
            return (await run_tool(tool, json.dumps({"code": code}), asyncio.to_thread)).text
        finally:
            if tool.close is not None:
                await tool.close()

    return lambda probe, options: asyncio.run(called(probe.settings(options).actor))


def servers_asked(probe: SettingsProbe, options: Options) -> str:
    """Return what the plan says of a file of MCP servers that do not start; the package need not be there for it."""
    try:
        return str(listed_tools(probe.settings(options).actor))
    except SettingsError as error:
        return str(error)


def of_items(look: Callable[[Item], object]) -> Observe:
    return lambda probe, options: [
        look(item) for item in probe.plan({"dataset.path": str(probe.items()), **options}).learn_items
    ]


def runner_asked_for(probe: SettingsProbe, options: Options) -> list[str]:
    asked: list[str] = []

    def runner(plan: Plan) -> Any:
        asked.append(plan.settings.task_runner)
        raise InterruptedError

    request = RunRequest(settings={**TINY, **options, "out": str(probe.root / "runner")})
    with suppress(InterruptedError):
        execute(request, {}, Observers(), runner, clock=utc_now)
    return asked


def exported(probe: SettingsProbe, options: Options) -> object:
    """Return the names of the metrics and the attributes of the spans that a run exports."""
    with OtlpReceiver() as receiver:
        for name, value in receiver.environment().items():
            probe.monkeypatch.setenv(name, value)
        probe.tiny_run(options)
        names = sorted({point.metric for point in receiver.points()})
        attributes = sorted({key for span in receiver.spans() for key in span.attributes})
    return names, attributes


def notified(probe: SettingsProbe, options: Options) -> int:
    """Return how often a run notifies the webhook of the variable NIGHT_HOOK."""
    with ChatServer(lambda _number, _body: 200) as server:
        probe.monkeypatch.setenv("NIGHT_HOOK", f"{server.url}/hook")
        probe.tiny_run(options)
        return len(server.bodies)


def answer_in_time(probe: SettingsProbe, options: Options) -> bool:
    """Whether the simulated service answers at once."""

    async def ask() -> bool:
        async with in_process(**dict(probe.settings(options).simulated)) as client:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    return (await client.post("/chat/completions", json=request())).is_success
        return False

    return asyncio.run(ask())


def key_sent(probe: SettingsProbe, options: Options, role: ModelRole = "actor") -> str | None:
    """Return the credential that the endpoint receives; the vault is Prefect's Secret block."""
    from prefect.blocks.system import Secret  # noqa: PLC0415 - two seconds that only this demonstration pays

    async def load(name: str) -> Any:
        return SimpleNamespace(get=lambda: f"sk-from-{name}")

    probe.monkeypatch.setattr(Secret, "aload", load)
    probe.monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    probe.monkeypatch.setenv("ANOTHER_KEY", "sk-from-another")
    credential: str | None = probe.exchange(options).of(role)[0][0].headers.get("authorization")
    return credential


def sent_by(role: ModelRole, name: str) -> Observe:
    """Observe the requests of one role: address, key, header and body, or their number where they fail or are late."""
    faults: dict[str, Any] = {"timeout_s": {"delay_s": 0.1}, "max_retries": {"status": 500}, "wait_s": {"status": 503}}
    behaviour = {"troubles": [role], **faults.get(name, {})}

    def look(it: Exchange) -> object:
        if name in faults:
            return len(it.of(role)), it.outcomes, str(it.result.reflection_failure)
        return [
            (str(each.url), each.headers.get("x-team"), {**body, "messages": len(json.dumps(body["messages"]))})
            for each, body in it.of(role)
        ]

    if name.startswith("api_key"):
        return partial(key_sent, role=role)
    return of_exchange(look, **behaviour)


def of_selection(look: Callable[[Any, ChatServer], object], reply: Any = "7", **asked: Any) -> Observe:
    """Observe a selection against an endpoint with a constant reply, or one computed by a function."""

    def observe(probe: SettingsProbe, options: Options) -> object:
        with ChatServer(reply if callable(reply) else lambda number, body: reply) as server:
            settings: dict[str, Any] = {"model.max_retries": "0", "model.wait_s": "0", **options}
            request = SelectRequest.model_validate(
                {"prompt": "x", "base_url": server.url, "model": "m", "settings": settings, **asked}
            )
            return look(select(request, {}), server)

    return observe


def of_selection_plan(look: Callable[[SelectionPlan], object], **asked: Any) -> Observe:
    def observe(probe: SettingsProbe, options: Options) -> object:
        request = SelectRequest.model_validate(
            {"prompt": "x", "settings": {**options, "out": str(probe.root / "selections")}, **asked}
        )
        return look(plan_selection(request, {}, clock=utc_now))

    return observe


def remembering(look: Callable[[SelectionPlan], object]) -> Observe:
    """Observe the plan of a selection after earlier rounds in memory."""

    def observe(probe: SettingsProbe, options: Options) -> object:
        def planned(settings: dict[str, Any]) -> SelectionPlan:
            place = {"selection.format": "powl", "task_id": "t", "out": str(probe.root / "memory")}
            request = SelectRequest(
                prompt="x", answer="SEQUENCE(a, b)", rewarders=["powl_footprint"], settings={**place, **settings}
            )
            return plan_selection(request, {}, clock=utc_now)

        shutil.rmtree(probe.root / "memory", ignore_errors=True)
        memory = planned({"selection.memory": "record"}).memory
        assert memory is not None
        for number, (name, reward) in enumerate((("a", 0.9), ("a", 0.8), *[("b", 0.7)] * 3, ("c", 0.1))):
            memory.observe([Observation(name, name, f"ACTIVITY({name})", reward)], f"s{number}")
        return look(planned(dict(options)))

    return observe
