"""One executed demonstration for each setting, and for each field of the lists and mappings, with what each observes."""

import asyncio
import dataclasses
import json
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.agents import steps
from tests.support.agents.endpoint import SYSTEM
from tests.support.models.faults import broken_calls
from tests.support.models.simulated_calls import in_process, request
from tests.support.pipelines.mixes import write_mix
from tests.support.records.otlp_receiver import OtlpReceiver
from tests.support.rewards.rewarder_examples import CALLS, EXAMPLES
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.settings_probe import REAL, TINY, Exchange, Options, SettingsProbe, TinyRun
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.request import RunRequest, SelectRequest
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.selection import SelectionPlan, plan_selection, select
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import MODEL_ROLES, ActorSettings, ModelRole
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.credit import share_of_range
from tfgrpo.tasks.actors.registry import listed_tools, tools_of
from tfgrpo.tasks.gateway.dialects import CHAT, Document
from tfgrpo.tasks.gateway.session import RolloutSession, outgoing
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.selection.history import Observation
from tfgrpo.tasks.tools.schema import run_tool

Observe = Callable[[SettingsProbe, Options], object]

AGENTS = "tests.support.runs.settings_probe"


def of_plan(look: Callable[[Plan], object]) -> Observe:
    return lambda probe, options: look(probe.shared(probe.plan, options))


def of_gateway(probe: SettingsProbe, options: Options) -> object:
    """Return the request of an agent as the gateway forwards it."""
    settings = probe.settings({**REAL, **options})
    runtime = steps.runtime(lambda request, key: "unused", probe.root)
    context = replace(runtime.context, settings=settings, models=choose_models(settings))
    attempt = AttemptContext(steps.spec(system=SYSTEM), 0, replace(runtime, context=context))
    asked = b'{"model": "gpt-5", "messages": [{"role": "user", "content": "?"}], "temperature": 1}'
    return outgoing(CHAT, Document(asked), RolloutSession(attempt, "http://127.0.0.1:1").additions).raw


def of_tiny(look: Callable[[TinyRun], object], **faults: float) -> Observe:
    def observed(probe: SettingsProbe, options: Options) -> object:
        if faults:
            with broken_calls(**faults):
                return look(probe.tiny_run(options))
        return look(probe.shared(probe.tiny_run, options))

    return observed


def of_exchange(look: Callable[[Exchange], object], **behaviour: Any) -> Observe:
    return lambda probe, options: look(probe.shared(probe.exchange, options, **behaviour))


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
            memory.observe([Observation(name, f"ACTIVITY({name})", reward)], f"s{number}")
        return look(planned(dict(options)))

    return observe


@dataclass(frozen=True)
class Demo:
    """One setting changed to ``value`` on top of ``base``. ``value`` may need the probe, for paths."""

    observe: Observe
    value: str | Callable[[SettingsProbe], str]
    base: Mapping[str, str] = dataclasses.field(default_factory=dict)


TOOLS = {"actor.kind": "tools", "actor.tools": f'["{AGENTS}:double"]', "tfgrpo.group_size": "2"}
SERVICE = {"actor.kind": "http", "actor.url": "http://service.test/a", "actor.gateway.enabled": "off"}
PYTHON = {"actor.kind": "tools", "actor.tools": '["python"]'}
ROLE_BASES: dict[ModelRole, dict[str, str]] = {"actor": TOOLS, "reflection": {}, "judge": {"rewarders": '[{"name": "judge"}]'}}
OF_ROLES = {
    "name": "m-2",
    "base_url": "http://endpoint.test/v2",
    "api_key": "secret:vault",
    "headers": '{"x-team": "blue"}',
    "extra_body": '{"top_p": 0.9}',
    "max_tokens": "77",
    "max_tokens_field": "max_completion_tokens",
    "timeout_s": "0.03",
    "max_retries": "1",
    "wait_s": "0.3",
    "structured": "none",
    "send_seed": "off",
    "send_temperature": "off",
}
PRICED = {"model.prices": '{"m": {"input": 1.0, "output": 2.0}}'}
COSTS = of_exchange(lambda it: [rollout.usage.cost_usd for rollout in it.result.rollouts])
REWARDS = of_exchange(lambda it: [getattr(rollout.outcome, "reward", None) for rollout in it.result.rollouts])
OUTPUTS = of_exchange(lambda it: [rollout.output for rollout in it.result.rollouts])
REASONS = of_exchange(lambda it: [getattr(rollout.outcome, "reason", "") for rollout in it.result.rollouts])


def command(text: str, **more: str) -> dict[str, str]:
    return {"actor.kind": "command", "actor.command": text, "actor.gateway.enabled": "off", **more}


def weighing(second: float) -> str:
    return json.dumps([{"name": "gt"}, {"name": "operator:eq", "weight": second}])


DEMOS: dict[str, Demo] = {
    "pipeline": Demo(of_tiny(lambda run: run.manifest["pipeline"]), "of-my-own"),
    "task_id": Demo(of_plan(lambda plan: plan.paths.experiences), "another"),
    "out": Demo(of_plan(lambda plan: plan.paths.experiences), lambda probe: str(probe.root / "elsewhere")),
    "dry_run": Demo(of_plan(lambda plan: (plan.simulated, plan.models.base_url)), "on", REAL),
    "task_runner": Demo(runner_asked_for, "dask"),
    "pack": Demo(of_plan(lambda plan: plan.pack.text), "general"),
    "packs_root": Demo(of_plan(lambda plan: plan.pack.root), lambda probe: str(probe.packs())),
    "tfgrpo.enabled": Demo(of_tiny(lambda run: [(spec.key.phase, spec.size, spec.reflect) for spec in run.specs]), "off"),
    "tfgrpo.group_size": Demo(of_tiny(lambda run: [spec.size for spec in run.specs]), "3"),
    "tfgrpo.epochs": Demo(of_tiny(lambda run: [(spec.key.epoch, spec.key.phase) for spec in run.specs]), "3"),
    "tfgrpo.sample_size": Demo(of_tiny(lambda run: len(run.specs)), "3"),
    "tfgrpo.batch_size": Demo(of_tiny(lambda run: [spec.key.batch for spec in run.specs]), "1"),
    "tfgrpo.allow_zero": Demo(of_tiny(lambda run: run.status), "on", {"rewarders": '[{"name": "operator:eq"}]'}),
    "tfgrpo.temperature.train": Demo(of_tiny(lambda run: {spec.key.phase: spec.temperature for spec in run.specs}), "0.9"),
    "tfgrpo.temperature.eval": Demo(
        of_tiny(lambda run: {spec.key.phase: spec.temperature for spec in run.specs}), "0.1", {"tfgrpo.enabled": "off"}
    ),
    "tfgrpo.experience_max_words": Demo(of_exchange(lambda it: it.result.rejected), "9"),
    "tfgrpo.min_spread": Demo(of_exchange(lambda it: (it.result.signal, len(it.learning))), "0.6"),
    "tfgrpo.seed": Demo(of_exchange(lambda it: [body["seed"] for body in it.acting]), "1"),
    "tfgrpo.night": Demo(of_exchange(lambda it: [body["seed"] for body in it.acting]), "1"),
    "tfgrpo.concurrency": Demo(OUTPUTS, "1", {"actor.kind": f"{AGENTS}:crowd", "tfgrpo.group_size": "4"}),
    "tfgrpo.max_lost_share": Demo(of_tiny(lambda run: run.status, server_error=0.8), "1.0", {"model.max_retries": "0"}),
    "gate.group_size": Demo(of_plan(lambda plan: (plan.sweep_size, plan.forecast.calls.high)), "3"),
    "dataset.path": Demo(of_plan(lambda plan: plan.learn_items[0].id), lambda probe: str(probe.items())),
    "dataset.eval_path": Demo(
        lambda probe, options: probe.plan({"dataset.path": str(_others(probe)), **options}).eval_items[0].id,
        lambda probe: str(probe.items()),
    ),
    "dataset.mix": Demo(of_plan(lambda plan: plan.learn_items[0].id), lambda probe: str(write_mix(probe.root))),
    "dataset.sealed": Demo(of_plan(lambda plan: len(plan.data.sealed)), "0.5"),
    "dataset.held_out": Demo(of_plan(lambda plan: len(plan.learn_items)), "0.5"),
    "dataset.fields.id": Demo(of_items(lambda item: item.id), "id_2"),
    "dataset.fields.prompt": Demo(of_items(lambda item: item.prompt), "prompt_2"),
    "dataset.fields.answer": Demo(of_items(lambda item: item.answer), "answer_2"),
    "dataset.fields.system_prompt": Demo(of_items(lambda item: item.system_prompt), "system_prompt_2"),
    "dataset.fields.domain": Demo(of_items(lambda item: item.domain), "domain_2"),
    "actor.kind": Demo(OUTPUTS, f"{AGENTS}:slow"),
    "actor.tools": Demo(
        of_exchange(lambda it: [tool["function"]["name"] for tool in it.acting[0]["tools"]]),
        f'["{AGENTS}:double", "{AGENTS}:halve"]',
        TOOLS,
    ),
    "actor.python_container": Demo(of_python("print(7)"), "echo 8", PYTHON),
    "actor.mcp": Demo(servers_asked, "no-such-file.json", PYTHON),
    "actor.command": Demo(OUTPUTS, "echo other", command("echo 7")),
    "actor.stdin": Demo(OUTPUTS, "prompt", command("sh -c 'wc -c'")),
    "actor.url": Demo(outputs_of_a_service, "http://service.test/b", SERVICE),
    "actor.headers": Demo(outputs_of_a_service, '{"x-team": "blue"}', SERVICE),
    "actor.answer": Demo(OUTPUTS, "last_line", command("printf '6\\n7'")),
    "actor.workdir": Demo(OUTPUTS, lambda probe: str(probe.root), command("sh -c 'ls | wc -l'")),
    "actor.env": Demo(OUTPUTS, '["MODE=fast"]', command("sh -c 'echo mode $MODE'")),
    "actor.gateway.enabled": Demo(REASONS, "on", command("echo 7")),
    "actor.memory_mb": Demo(OUTPUTS, "77", command("sh -c 'ulimit -d'")),
    "actor.max_turns": Demo(of_exchange(lambda it: len(it.acting), tool="double"), "3", TOOLS),
    "actor.gateway.models": Demo(of_gateway, '{"gpt-*": "qwen"}'),
    "actor.gateway.lessons_in": Demo(of_gateway, "user"),
    "actor.gateway.sampling": Demo(of_gateway, "on"),
    "actor.timeout_s": Demo(of_exchange(lambda it: it.outcomes), "0.01", {"actor.kind": f"{AGENTS}:slow"}),
    "rewarders": Demo(REWARDS, '[{"name": "operator:eq"}]'),
    **{
        f"model.{name}": Demo(sent_by("reflection" if name == "structured" else "actor", name), value)
        for name, value in OF_ROLES.items()
    },
    **{
        f"model.{role}.{name}": Demo(sent_by(role, name), value, ROLE_BASES[role])
        for role in MODEL_ROLES
        for name, value in OF_ROLES.items()
        if (role, name) != ("actor", "structured")
    },
    "model.logprobs": Demo(of_exchange(lambda it: "logprobs" in it.acting[0]), "on"),
    "model.prices": Demo(COSTS, PRICED["model.prices"]),
    "budget.max_usd": Demo(of_exchange(lambda it: it.outcomes), "0.0001", PRICED),
    "budget.task_max_usd": Demo(of_tiny(lambda run: run.status), "0.0007"),
    "budget.max_tokens": Demo(of_exchange(lambda it: it.outcomes), "100"),
    "budget.max_calls": Demo(of_exchange(lambda it: it.outcomes), "1"),
    "telemetry.content": Demo(exported, "on"),
    "notify.url": Demo(notified, "env:NIGHT_HOOK", {"notify.on": '["finished"]'}),
    "notify.on": Demo(notified, '["finished"]', {"notify.url": "env:NIGHT_HOOK"}),
    "simulated.world": Demo(of_plan(lambda plan: plan.learn_items[0].id), "unlearnable"),
    "simulated.seed": Demo(of_tiny(lambda run: run.outputs), "5"),
    "simulated.latency_s": Demo(answer_in_time, "0.6"),
    "selection.k": Demo(of_selection(lambda it, server: len(server.bodies), rewarders=["json_valid"]), "2"),
    "selection.min_success": Demo(
        of_selection(
            lambda it, server: it.status,
            lambda number, body: 503 if body["temperature"] == 0.5 else "7",
            rewarders=["json_valid"],
        ),
        "4",
    ),
    "selection.max_validations": Demo(of_selection(lambda it, server: len(server.bodies), format="powl"), "1"),
    "selection.repair": Demo(of_selection(lambda it, server: len(server.bodies), "LOOP(ACTIVITY(a))", format="powl"), "syntax"),
    "selection.none_valid": Demo(
        of_selection(lambda it, server: it.status, format="powl", rewarders=["powl_valid"]), "best_effort"
    ),
    "selection.temperatures": Demo(
        of_selection(lambda it, server: sorted(body["temperature"] for body in server.bodies), rewarders=["json_valid"]),
        "[0.1, 0.2]",
    ),
    "selection.timeout_s": Demo(
        of_selection(
            lambda it, server: sorted(it.selection.outcomes),
            lambda number, body: "8" if threading.Event().wait(0.3) is False else "7",
            rewarders=["json_valid"],
        ),
        "0.05",
    ),
    "selection.base_url": Demo(of_selection_plan(lambda plan: plan.models.base_url), "http://box:11434/v1"),
    "selection.model": Demo(of_selection_plan(lambda plan: plan.models.name), "another"),
    "selection.format": Demo(of_selection(lambda it, server: sorted(it.selection.outcomes), rewarders=["json_valid"]), "powl"),
    "selection.json_schema": Demo(
        of_selection(lambda it, server: sorted(it.selection.outcomes), format="json", rewarders=["json_valid"]),
        lambda probe: str(_schema(probe)),
    ),
    "selection.stage": Demo(
        of_selection_plan(lambda plan: [entry.name for entry in plan.settings.rewarders], answer="7"), "VALIDITY_GAP"
    ),
    "selection.memory": Demo(remembering(lambda plan: plan.spec.hint), "explore"),
    "stages": Demo(of_tiny(lambda run: [stage["name"] for stage in run.manifest["stages"]]), '[{"name": "learn"}]'),
}
PARTS: dict[str, tuple[str, Demo]] = {
    "rewarders.name": ("rewarders", DEMOS["rewarders"]),
    "rewarders.weight": ("rewarders", Demo(REWARDS, weighing(1.0), {"rewarders": weighing(0.0)})),
    "rewarders.timeout_s": (
        "rewarders",
        Demo(
            of_exchange(lambda it: it.outcomes),
            f'[{{"name": "{EXAMPLES}:hesitant", "timeout_s": 0.02}}]',
            {"rewarders": f'[{{"name": "{EXAMPLES}:hesitant"}}]'},
        ),
    ),
    "rewarders.score_range": (
        "rewarders",
        Demo(
            of_plan(lambda plan: share_of_range([1.0], plan.score_range)),
            '[{"name": "gt", "score_range": [-1, 4]}]',
            {"rewarders": '[{"name": "gt"}]'},
        ),
    ),
    "rewarders.isolate": (
        "rewarders",
        Demo(
            of_exchange(lambda _: len(CALLS)),
            f'[{{"name": "{EXAMPLES}:noticed", "isolate": false}}]',
            {"rewarders": f'[{{"name": "{EXAMPLES}:noticed"}}]'},
        ),
    ),
    "rewarders.options": (
        "rewarders",
        Demo(REWARDS, '[{"name": "gt", "options": {"match": "exact"}}]', {"rewarders": weighing(0.0)}),
    ),
    "model.prices.input": ("model.prices", Demo(COSTS, '{"m": {"input": 3.0, "output": 2.0}}', PRICED)),
    "model.prices.output": ("model.prices", Demo(COSTS, '{"m": {"input": 1.0, "output": 4.0}}', PRICED)),
    "model.prices.cached_input": (
        "model.prices",
        Demo(COSTS, '{"m": {"input": 1.0, "output": 2.0, "cached_input": 0.1}}', PRICED),
    ),
    "stages.name": ("stages", DEMOS["stages"]),
    "stages.env": (
        "stages",
        Demo(of_plan(lambda plan: len(plan.cohort(1).items)), '[{"name": "learn", "env": {"TFGRPO_SAMPLE_SIZE": "7"}}]'),
    ),
}


def _schema(probe: SettingsProbe) -> Path:
    path = probe.root / "schema.json"
    path.write_text('{"type": "object"}', "utf-8")
    return path


def _others(probe: SettingsProbe) -> Path:
    path = probe.root / "others.jsonl"
    path.write_text("".join(f'{{"id": "o{n}", "prompt": "Other {n}?", "answer": "{n}"}}\n' for n in range(12)), "utf-8")
    return path
