"""Ask outside of a run: the user's own agent on the simulated model, each model for one token, and judges.

The first two are for ``tfgrpo doctor``. Judges are asked for a data server, and for completions that are graded offline: their
calls keep to the budget of a pipeline and go through its ledger and limits, and their answers are in no journal.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx

from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.run.prepare import check_endpoint_of, read_api_key, run_context
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import BasePlan, Plan, pack_for
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import (
    ActorSettings,
    BudgetSettings,
    DatasetSettings,
    ModelRole,
    RewarderSettings,
    SimulatedSettings,
)
from tfgrpo.prompt_packs.stamps import holds_lessons, with_sample_lesson
from tfgrpo.rewarders.composite import AnyScorer, judge_loads, scorers_within
from tfgrpo.rewarders.runner import doubts
from tfgrpo.rewarders.scorer import Attempt, RewardContext, Scorer
from tfgrpo.stores.errors import ModelTimeout, PipelineError, Problem, SettingsError
from tfgrpo.stores.json_values import json_of, mapping_of, sha256_hex
from tfgrpo.stores.ledger import NANO
from tfgrpo.stores.outcomes import Failed, GroupKey
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.actors.own import BYPASSED, REMEDY, CallableActor, OwnAgent
from tfgrpo.tasks.actors.registry import own_agent
from tfgrpo.tasks.gateway.dialects import tool_names
from tfgrpo.tasks.gateway.session import renamed
from tfgrpo.tasks.group import GroupJudge
from tfgrpo.tasks.models.endpoint import endpoint_of, ping
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.runtime.host import open_clients, open_runtime
from tfgrpo.tasks.runtime.runtime import Gateway, RunContext, Runtime
from tfgrpo.tasks.shapes import GroupSpec, PackText

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig

_LONGEST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What an agent did in its trial."""

    calls: Mapping[str, int]
    lessons: Sequence[str]
    """Places in requests where lessons arrived."""
    tools: Sequence[str]
    """Names of the tools in requests."""
    failure: str | None
    unpriced: Sequence[str] = ()
    """Models that it asked for and whose price is unknown."""

    def __str__(self) -> str:
        called = " and ".join(f"{path} {pluralize(count, 'time')}" for path, count in self.calls.items())
        lessons = " and ".join(self.lessons)
        return (
            f"your agent called {called}; lessons arrived {f'in {lessons}' if lessons else 'nowhere'}; "
            f"tools seen: {', '.join(self.tools) or 'none'}"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with the agent."""
        doubts = [] if self.lessons else ["no lesson arrived in any request of the agent, so it cannot learn"]
        if self.failure is not None:
            doubts.append(f"in its trial the agent failed after its calls, perhaps for the simulated replies: {self.failure}")
        unpriced = (
            f"the agent asks for {name!r}, whose price is unknown: what it costs will be unknown, and under a cap on money its "
            f"calls are refused; add model.prices.{name}, or a model with a price for it in actor.gateway.models"
            for name in self.unpriced
        )
        return (*doubts, *unpriced)


def try_agent(plan: Plan) -> Trial | None:
    """Run the plan's agent once; None for an actor that uses neither the gateway nor ``chat``.

    Raise ``SettingsError`` for an agent that makes no call through the gateway, or fails before its first ``chat``.
    """
    agent = own_agent(plan.settings.actor)
    if agent is None or not (agent.proxied or (isinstance(agent, CallableActor) and "chat" in agent.declared)):
        return None
    with tempfile.TemporaryDirectory(prefix="tfgrpo-trial-") as folder:
        actor = plan.settings.actor
        actor = actor.model_copy(update={"timeout_s": min(actor.timeout_s, _LONGEST_S)})
        model = plan.settings.model.model_copy(update={"wait_s": 0.0})  # doctor waits for no endpoint, nor for an agent
        unlimited = {"dry_run": True, "simulated": SimulatedSettings(), "budget": BudgetSettings()}
        settings = plan.settings.model_copy(update={**unlimited, "model": model, "actor": actor})
        context = run_context(plan, "trial", Path(folder), None)
        context = replace(context, settings=settings, models=choose_models(settings))
        return asyncio.run(_tried(plan, context, agent))


async def _tried(plan: Plan, context: RunContext, agent: OwnAgent) -> Trial:
    requests: list[httpx.Request] = []

    async def record(request: httpx.Request) -> None:
        requests.append(request)

    item, text = next(iter(plan.learn_items)), with_sample_lesson(plan.pack.text)
    spec = GroupSpec(
        group_id="trial",
        key=GroupKey(1, "train", "group", 0, item.id, 0, "trial"),
        item=item,
        size=1,
        temperature=plan.settings.tfgrpo.temperature.train,
        pack=PackText(text, sha256_hex(text), plan.pack.manifest.id, plan.pack.manifest.stamp, ()),
        reflect=False,
    )
    opened = await open_runtime(context, journaled=False)
    try:
        client = (await open_clients(context, opened.ledger))["actor"]
        opened.resources.push_async_callback(client.aclose)
        client.http.event_hooks = {"request": [record], "response": []}  # as they leave, with the lessons
        gateway = Gateway(client)
        rollout = await run_rollout(spec, 0, replace(opened, gateway=gateway))
    finally:
        await opened.aclose()
    loss = rollout.loss if isinstance(rollout.loss, Failed) else None
    failure, chats = None if loss is None else loss.reason, rollout.usage.calls or 0
    if not agent.proxied and (chats or loss is None):  # `chat` adds the lessons
        return Trial(calls={"`chat`": chats}, lessons=("the system message",) if chats else (), tools=(), failure=failure)
    if not requests:
        problem, accepted = BYPASSED, REMEDY
        if loss is not None and not loss.reason.startswith(BYPASSED):
            if loss.error_type == ModelTimeout.__name__:  # perhaps it waits for another endpoint
                problem = f"{BYPASSED}, and {loss.reason}"
            else:
                problem = f"a failed trial: {loss.reason}"
                accepted = "; ".join(("an agent that runs", *agent.warnings(plan.settings.actor)))
        raise SettingsError.one(f"actor.kind {plan.settings.actor.kind}", problem, accepted)
    bodies = [mapping_of(json_of(request.content)) for request in requests]
    prices, names = plan.models.price_list("actor"), plan.settings.actor.gateway.models
    called = {renamed(name, names) for name in gateway.requested if not plan.models.in_process}
    return Trial(
        calls=dict(Counter(request.url.path for request in requests)),
        lessons=tuple(dict.fromkeys(name for body in bodies for name in _parts_with_lessons(body))),
        tools=tuple(dict.fromkeys(name for body in bodies for name in tool_names(body))),
        failure=failure,
        unpriced=sorted(name for name in called if name not in prices),
    )


def _parts_with_lessons(body: Mapping[str, Any]) -> list[str]:
    """Return what the parts of a request are called that hold lessons, whatever its dialect."""
    messages = [each for name in ("messages", "input") for each in body.get(name) or () if isinstance(each, dict)]
    parts = [(f"`{name}`", body.get(name)) for name in ("instructions", "system")]
    parts += [(f"the {message.get('role')} message", message) for message in messages]
    return [name for name, part in parts if holds_lessons(json.dumps(part, ensure_ascii=False))]


def try_scorers(plan: Plan) -> list[str]:
    """Return warnings of the user's own scorers, each asked once about a real item with its own reference as the output."""
    item = next((each for each in plan.learn_items if each.answer), None)
    if item is None:
        return []
    context = RewardContext(
        fixture_path=item.source,
        item_id=item.id,
        prompt=item.prompt,
        answer=item.answer,
        outputs=(Attempt("trial", 0, item.answer, None),),
        alternatives=item.alternatives,
        metadata=item.metadata,
    )
    return [doubt for each in plan.rewarders for doubt in doubts(each, context)]


class Pinged(NamedTuple):
    """What the endpoints of a plan answered."""

    answers: tuple[str, ...]
    """A sentence for each role and model that answered."""
    problems: tuple[Problem, ...]
    spent: str
    """The most that was spent."""


async def ping_models(plan: Plan) -> Pinged:
    """Ask each model in use once for each way in which a role asks it."""
    answers, problems, nano, tokens, reported = list[str](), list[Problem](), 0, 0, 0
    async with open_transport(concurrency=1) as http:
        for role, name in _asked(plan):
            chosen = plan.models.roles[role]
            # In a thread, because a Secret block is fetched with its own event loop.
            key = await asyncio.to_thread(read_api_key, chosen)
            endpoint = endpoint_of(chosen, chosen.base_url or "", key)
            pinged = await ping(endpoint, role, name, plan.settings.tfgrpo.temperature.train, http)
            price = plan.models.price_list(role).get(name)
            tokens += pinged.bound + pinged.attempts
            reported += pinged.counted or 0
            nano += 0 if price is None else price.cost(pinged.bound, pinged.attempts)
            last = {finding.setting or finding.said: finding for finding in pinged.findings}
            for finding in last.values():
                own = plan.settings.model.own(role)
                section = f"model.{role}" if {"name", "base_url"} & set(own) or finding.setting in own else "model"
                accepted = f"{section}.{finding.setting}: {finding.value}" if finding.setting else finding.advice
                accepted = accepted or "a request that this endpoint takes"
                problems.append(Problem(f"{name}, asked as {role}", finding.said, accepted))
            if not pinged.findings:
                silence = ", but counts no tokens: what it costs will be unknown" if pinged.counted is None else ""
                answers.append(f"{role}: {name} at {endpoint.display_url} answers{silence}")
    unknown = any(each is None for *_, each in plan.models.priced)
    usage = f" ({reported:,} by what the endpoint counted)" if reported else ""
    most = f"at most {tokens:,} tokens{usage}, whose price is unknown, were spent"
    return Pinged(tuple(answers), tuple(problems), most if unknown else f"at most ${nano / NANO:.6f} was spent")


def _asked(plan: Plan) -> Iterator[tuple[ModelRole, str]]:
    models = plan.models
    if models.base_url is None:
        return
    yield "actor", models.name
    yield "reflection", models.reflection_name
    # A judge of the learner's model that is asked as the learner is would be the same question again.
    same = {"max_tokens": 1, "name": None}
    learner, judge = (models.roles[role].model_copy(update=same) for role in ("reflection", "judge"))
    yield from (("judge", name) for name in models.judges if name != models.reflection_name or learner != judge)


def judges_among(scorers: Iterable[AnyScorer]) -> list[str]:
    """Return the names of the scorers that ask a model, also of those within others."""
    every = (each for scorer in scorers for _, each in scorers_within(scorer))
    return [*dict.fromkeys(each.rewarder_id for each in every if isinstance(each, Scorer) and each.asks_model)]


_MODEL: Final = "--model and --base-url (or OPENAI_BASE_URL) for the model that it asks, or --dry-run for the SIMULATED one"
_MODEL_OF_PIPELINE: Final = (
    "a pipeline with model.name and model.base_url of the model that it asks, or dry_run: true for the SIMULATED one"
)


def check_judges(resolved: Resolved, names: Iterable[str], *, where: str = "rewarders", accepted: str = _MODEL) -> None:
    """Raise ``SettingsError`` for judges without a model that the user named, and for one that no run could ask."""
    settings = resolved.settings
    if choose_models(settings).in_process and not settings.dry_run:
        raise SettingsError.one(f"{where}: {', '.join(names)}", "a judge and no model to ask", accepted)
    validate_tfgrpo_config(settings, sources=resolved.sources)


def plan_judges(config: MixConfig, resolved: Resolved | None) -> BasePlan | None:
    """Return the plan of the judges among the graders of a mix; None without any.

    Of the pipeline only models, prices, budget and limits are used. Raises ``ConfigError`` for judges without a pipeline
    (``resolved`` None), and for a pipeline that has no model for them.
    """
    graders = [each.graders for each in config.datasets.values()]
    names = judges_among(graders)
    if not names:
        return None
    if resolved is None:
        accepted = "--pipeline with a pipeline whose model is asked, within its budget"
        raise PipelineError.one(f"{config.path}: {', '.join(names)}", "a judge and no model to ask", accepted)
    # Each judge with its models, so that prices are looked up and endpoints checked as for a run.
    models = {load.options.model for each in graders for load in judge_loads(each, 1)} or {None}
    judges = tuple(
        RewarderSettings(name="judge", options={"rewarder_id": f"judge {number}", "model": model})
        for number, model in enumerate(sorted(models, key=str))
    )
    settings = resolved.settings
    unused = {"actor": ActorSettings(), "dataset": DatasetSettings(), "rewarders": judges}
    # A cap below the calls of one group is refused for a run alone.
    unused["tfgrpo"] = settings.tfgrpo.model_copy(update={"enabled": False})
    resolved = Resolved(settings.model_copy(update=unused), resolved.sources)
    check_judges(resolved, names, where=str(config.path), accepted=_MODEL_OF_PIPELINE)
    pack = pack_for(resolved.settings, settings.pack)
    return BasePlan(resolved.settings, choose_models(resolved.settings), pack, (), ())


@asynccontextmanager
async def open_judges(plan: BasePlan, name: str, *, asked: bool = True) -> AsyncIterator[tuple[Runtime, tuple[str, ...]]]:
    """Yield the runtime whose models judges ask, and warnings. Raise ``EndpointError`` for an endpoint that is ``asked``."""
    warnings = await check_endpoint_of(plan, logging.getLogger("tfgrpo.judging").warning) if asked else ()
    runtime = await open_runtime(run_context(plan, name, Path(plan.settings.out) / name, None), journaled=False)
    try:
        yield runtime, (*warnings, *runtime.telemetry.warnings)
    finally:
        await runtime.aclose()
        await asyncio.to_thread(runtime.telemetry.shutdown)


@asynccontextmanager
async def served_judges(plan: BasePlan, say: Callable[..., object]) -> AsyncIterator[Callable[[str], GroupJudge]]:
    """Yield ``judge_of`` for a data server; say what its judges may spend, and in the end what they spent."""
    async with open_judges(plan, "serve-data") as (runtime, warnings):
        for warning in warnings:
            say(f"warning: {warning}", wrap=False)
        caps = plan.settings.budget.model_dump(exclude={"task_max_usd"}, exclude_none=True)
        limit = ", ".join(f"budget.{name} {cap:g}" for name, cap in caps.items()) or "no limit: set budget.max_usd"
        simulated = " (SIMULATED)" if plan.simulated else ""
        say(f"judges ask {', '.join(plan.models.judges) or plan.models.name}{simulated}, within {limit}")
        yield judge_of(runtime)
        spent = runtime.ledger.totals()
        say(f"judging took {pluralize(spent.calls, 'call')}, {spending(spent)}{simulated}")


def judge_of(runtime: Runtime) -> Callable[[str], GroupJudge]:
    """Return the function from the id of an item to the model that its judges ask."""
    return lambda item_id: GroupJudge(graded_group(Item(item_id, "", ""), 1, runtime), runtime)


def graded_group(item: Item, size: int, runtime: Runtime) -> GroupSpec:
    """Return the group of the completions of an item, for judges: without a prompt, because none is known."""
    manifest = runtime.pack.manifest
    pack = PackText("", "", manifest.id, manifest.stamp, ())
    key = GroupKey(1, "eval", "group", 0, item.id)
    return GroupSpec("grade", key, item, size, 0.0, pack, reflect=False)
