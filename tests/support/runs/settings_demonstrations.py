"""One executed demonstration for each setting, and for each field of the lists and mappings."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.pipelines.mixes import write_mix
from tests.support.rewards.rewarder_examples import CALLS, EXAMPLES
from tests.support.runs.settings_observations import (
    AGENTS,
    Observe,
    answer_in_time,
    exported,
    key_sent,
    notified,
    of_exchange,
    of_gateway,
    of_items,
    of_plan,
    of_python,
    of_selection,
    of_selection_plan,
    of_tiny,
    outputs_of_a_service,
    remembering,
    runner_asked_for,
    sent_by,
    servers_asked,
)
from tests.support.runs.settings_probe import REAL, SettingsProbe
from tfgrpo.pipelines.settings.model import MODEL_ROLES, ModelRole
from tfgrpo.stores.experiences.credit import share_of_range


@dataclass(frozen=True)
class Demo:
    """One setting changed to ``value`` on top of ``base``. ``value`` may need the probe, for paths."""

    observe: Observe
    value: str | Callable[[SettingsProbe], str]
    base: Mapping[str, str] = dataclasses.field(default_factory=dict)


TOOLS = {"actor.kind": "tools", "actor.tools": f'["{AGENTS}:double"]', "tfgrpo.group_size": "2"}
PYTHON = {"actor.kind": "tools", "actor.tools": '["python"]'}
ROLE_BASES: dict[ModelRole, dict[str, str]] = {
    "actor": TOOLS,
    "reflection": {},
    "judge": {"rewarders": '[{"name": "judge"}]'},
}
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
    "pack": Demo(of_plan(lambda plan: plan.pack.system_text), "general"),
    "packs_root": Demo(of_plan(lambda plan: plan.pack.root), lambda probe: str(probe.packs())),
    "tfgrpo.enabled": Demo(
        of_tiny(lambda run: [(spec.key.phase, spec.size, spec.reflect) for spec in run.specs]), "off"
    ),
    "tfgrpo.group_size": Demo(of_tiny(lambda run: [spec.size for spec in run.specs]), "3"),
    "tfgrpo.epochs": Demo(of_tiny(lambda run: [(spec.key.epoch, spec.key.phase) for spec in run.specs]), "3"),
    "tfgrpo.sample_size": Demo(of_tiny(lambda run: len(run.specs)), "3"),
    "tfgrpo.batch_size": Demo(of_tiny(lambda run: [spec.key.batch for spec in run.specs]), "1"),
    "tfgrpo.allow_zero": Demo(of_tiny(lambda run: run.status), "on", {"rewarders": '[{"name": "operator:eq"}]'}),
    "tfgrpo.temperature.train": Demo(
        of_tiny(lambda run: {spec.key.phase: spec.temperature for spec in run.specs}), "0.9"
    ),
    "tfgrpo.temperature.eval": Demo(
        of_tiny(lambda run: {spec.key.phase: spec.temperature for spec in run.specs}), "0.1", {"tfgrpo.enabled": "off"}
    ),
    "tfgrpo.experience_max_words": Demo(of_exchange(lambda it: it.result.rejected), "9"),
    "tfgrpo.min_spread": Demo(of_exchange(lambda it: (it.result.signal, len(it.learning))), "0.6"),
    "tfgrpo.seed": Demo(of_exchange(lambda it: [body["seed"] for body in it.acting]), "1"),
    "tfgrpo.night": Demo(of_exchange(lambda it: [body["seed"] for body in it.acting]), "1"),
    "tfgrpo.concurrency": Demo(
        of_exchange(lambda it: [rollout.output for rollout in it.result.rollouts]),
        "1",
        {"actor.kind": f"{AGENTS}:crowd", "tfgrpo.group_size": "4"},
    ),
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
    "actor.kind": Demo(of_exchange(lambda it: [rollout.output for rollout in it.result.rollouts]), f"{AGENTS}:slow"),
    "actor.tools": Demo(
        of_exchange(lambda it: [tool["function"]["name"] for tool in it.acting[0]["tools"]]),
        f'["{AGENTS}:double", "{AGENTS}:halve"]',
        TOOLS,
    ),
    "actor.python_container": Demo(of_python("print(7)"), "echo 8", PYTHON),
    "actor.mcp": Demo(servers_asked, "no-such-file.json", PYTHON),
    "actor.command": Demo(OUTPUTS, "echo other", command("echo 7")),
    "actor.stdin": Demo(OUTPUTS, "prompt", command("sh -c 'wc -c'")),
    "actor.url": Demo(
        outputs_of_a_service,
        "http://service.test/b",
        {"actor.kind": "http", "actor.url": "http://service.test/a", "actor.gateway.enabled": "off"},
    ),
    "actor.headers": Demo(
        outputs_of_a_service,
        '{"x-team": "blue"}',
        {"actor.kind": "http", "actor.url": "http://service.test/a", "actor.gateway.enabled": "off"},
    ),
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
    "model.name": Demo(of_exchange(lambda it: it.acting[0]["model"]), "m-2"),
    "model.base_url": Demo(of_exchange(lambda it: str(it.requests[0][0].url)), "http://another.test/v2"),
    "model.api_key": Demo(key_sent, "secret:vault"),
    "model.max_tokens": Demo(of_exchange(lambda it: it.acting[0]["max_tokens"]), "77"),
    "model.max_tokens_field": Demo(of_exchange(lambda it: sorted(it.acting[0])), "max_completion_tokens"),
    "model.timeout_s": Demo(of_exchange(lambda it: it.outcomes, delay_s=0.1), "0.03"),
    "model.max_retries": Demo(of_exchange(lambda it: len(it.requests), status=500), "1"),
    "model.wait_s": Demo(of_exchange(lambda it: len(it.requests), status=503), "0.3"),
    "model.structured": Demo(of_exchange(lambda it: it.learning[0].get("response_format")), "none"),
    "model.send_seed": Demo(of_exchange(lambda it: "seed" in it.acting[0]), "off"),
    "model.send_temperature": Demo(of_exchange(lambda it: "temperature" in it.acting[0]), "off"),
    "model.headers": Demo(of_exchange(lambda it: it.requests[0][0].headers.get("x-team")), '{"x-team": "blue"}'),
    "model.extra_body": Demo(of_exchange(lambda it: it.acting[0].get("top_p")), '{"top_p": 0.9}'),
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
    "selection.repair": Demo(
        of_selection(lambda it, server: len(server.bodies), "LOOP(ACTIVITY(a))", format="powl"), "syntax"
    ),
    "selection.none_valid": Demo(
        of_selection(lambda it, server: it.status, format="powl", rewarders=["powl_valid"]), "best_effort"
    ),
    "selection.temperatures": Demo(
        of_selection(
            lambda it, server: sorted(body["temperature"] for body in server.bodies), rewarders=["json_valid"]
        ),
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
    "selection.format": Demo(
        of_selection(lambda it, server: sorted(it.selection.outcomes), rewarders=["json_valid"]), "powl"
    ),
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
    "rewarders.name": ("rewarders", Demo(REWARDS, '[{"name": "operator:eq"}]')),
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
    "stages.name": (
        "stages",
        Demo(of_tiny(lambda run: [each["name"] for each in run.manifest["stages"]]), '[{"name": "learn"}]'),
    ),
    "stages.env": (
        "stages",
        Demo(
            of_plan(lambda plan: len(plan.cohort(1).items)), '[{"name": "learn", "env": {"TFGRPO_SAMPLE_SIZE": "7"}}]'
        ),
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
