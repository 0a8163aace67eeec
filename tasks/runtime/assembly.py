"""Build a runtime from a context: journal, ledger, client to the model, actor and rewarders, in this process.

Bad settings were refused by the plan; files and modules that changed since raise the same errors here.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from tfgrpo.pipelines.plan.rewarders import close_scorers, scorers_of
from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.telemetry.setup import configure
from tfgrpo.tasks.actors.registry import ToolActor, build_actor, listed_tools
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import Endpoint, endpoint_of, scrubber
from tfgrpo.tasks.models.journaled import JournaledModel, RoleModels
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.runtime.runtime import Gateway, RunContext, Runtime

_SIMULATED_URL = "http://simulated.invalid/v1"
"""Never resolved: the application is called in process."""


async def open_runtime(context: RunContext, *, journaled: bool = True) -> Runtime:
    """Build the runtime on the running event loop. Without a journal the run cannot be resumed or replayed."""
    resources = AsyncExitStack()
    try:
        return await _opened(context, resources, journaled=journaled)
    except BaseException as error:
        try:
            await resources.aclose()
        except BaseException as second:  # noqa: BLE001 - a note on the error that is raised
            error.add_note(f"closing the opened resources failed too: {type(second).__name__}: {second}")
        raise


async def _opened(context: RunContext, resources: AsyncExitStack, *, journaled: bool) -> Runtime:
    settings = context.settings
    telemetry = configure(context.telemetry, os.environ)
    journal_path = context.replay_from or context.paths.journal
    journal = Journal(journal_path, repair=context.replay_from is None) if journaled else None
    if journal is not None:
        resources.callback(journal.close)
    ledger = _ledger(context)
    if journal is not None:
        ledger.follow(lambda: journal.added)
    resources.callback(ledger.close)
    threads = RewarderThreads(settings.tfgrpo.concurrency)
    resources.callback(threads.shutdown)
    clients = {} if context.replay else await open_clients(context, ledger)
    for client in clients.values():
        resources.push_async_callback(client.aclose)
    rewarders = scorers_of(settings)
    runner = ScoreRunner()
    resources.callback(runner.close)
    resources.push_async_callback(close_scorers, [each.scorer for each in rewarders])
    runner.warm(each.scorer for each in rewarders)
    listed = context.mcp_tools
    if listed is None:
        listed = await asyncio.to_thread(listed_tools, settings.actor)
    actor = build_actor(settings.actor, listed=listed)
    if isinstance(actor, ToolActor):
        resources.push_async_callback(actor.aclose)
    return Runtime(
        context=context,
        model=RoleModels(
            {
                role: JournaledModel(
                    clients.get(role), journal, telemetry, wire=chosen, provider=context.models.provider(role)
                )
                for role, chosen in context.models.roles.items()
            }
        ),
        actor=actor,
        rewarders=rewarders,
        scorers=runner,
        pack=load_prompt_pack(context.pack_id, context.packs_root),
        journal=journal,
        ledger=ledger,
        slots=asyncio.Semaphore(settings.tfgrpo.concurrency),
        threads=threads,
        gateway=Gateway(clients.get("actor")),
        scrub=scrubber(*(client.endpoint for client in clients.values())),
        telemetry=telemetry,
        resources=resources,
    )


async def open_clients(context: RunContext, ledger: Ledger) -> dict[ModelRole, ChatClient]:
    """Return the client of each role; roles that differ in nothing but model and tokens have the same one.

    Clients of one address share its connections and the limit on calls in flight.
    """
    clients: dict[ModelRole, ChatClient] = {}
    for role, chosen in context.models.roles.items():
        known = [(context.models.roles[each], client) for each, client in clients.items()]
        client = next((client for other, client in known if _wire(other) == _wire(chosen)), None)
        if client is None:
            # In a thread: fetching a Secret block runs a separate event loop.
            endpoint = await asyncio.to_thread(endpoint_for, context, role)
            near = next((client for other, client in known if other.base_url == chosen.base_url), None)
            retry = RetryPolicy(max_retries=chosen.max_retries, unavailable_s=chosen.wait_s)
            client = near.sharing(endpoint, retry) if near else _client(context, ledger, endpoint, role, retry)
        clients[role] = client
    return clients


def _wire(settings: ModelSettings) -> ModelSettings:
    return settings.model_copy(update={"name": None, "max_tokens": 1})


def _client(context: RunContext, ledger: Ledger, endpoint: Endpoint, role: ModelRole, retry: RetryPolicy) -> ChatClient:
    settings = context.settings
    concurrency = settings.tfgrpo.concurrency
    app: Callable[..., Any] | None = None
    if context.models.in_process:
        from tfgrpo.tasks.models.simulated import SimulatedOptions, simulated_app  # noqa: PLC0415 - 50 ms, for no real endpoint

        app = simulated_app(SimulatedOptions(**dict(settings.simulated)))
    return ChatClient(
        endpoint,
        open_transport(concurrency=concurrency, app=app),
        concurrency=concurrency,
        run=context.unique_name,
        ledger=ledger,
        # A model without a price has an unknown cost; the simulated one has an invented price.
        prices=context.models.price_list(role),
        retry=retry,
        # For jitter only: no result depends on it, and processes must not draw the same.
        rng=random.Random(f"{settings.tfgrpo.seed}:{os.getpid()}"),
    )


def endpoint_for(context: RunContext, role: ModelRole = "actor") -> Endpoint:
    """Return the endpoint of a role's calls: address, key, headers, and how it wants its requests.

    The key is read here, in the process that uses it; the simulated model has none.
    """
    chosen = context.models.roles[role]
    if chosen.base_url is None:
        return endpoint_of(chosen, _SIMULATED_URL, None)
    return endpoint_of(chosen, chosen.base_url, context.read_secret(chosen))


def _ledger(context: RunContext) -> Ledger:
    budget = context.settings.budget
    task_ledger = None
    if context.task_ledger_path is not None:
        task_ledger = Ledger(Budget(max_usd=budget.task_max_usd, scope="task_"), shared=context.task_ledger_path)
    own = Budget(max_usd=budget.max_usd, max_tokens=budget.max_tokens, max_calls=budget.max_calls)
    return Ledger(own, shared=context.ledger_path, within=task_ledger)
