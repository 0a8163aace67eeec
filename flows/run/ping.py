"""Ask each model of a plan for one token, for ``tfgrpo doctor --ping``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from tfgrpo.flows.run.prepare import read_api_key
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.settings.model import ModelRole
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.ledger.state import NANO
from tfgrpo.tasks.models.endpoint import endpoint_of
from tfgrpo.tasks.models.ping import Finding, ping
from tfgrpo.tasks.models.transport import open_transport


class Pinged(NamedTuple):
    """What the endpoints of a plan answered."""

    answers: tuple[str, ...]
    """A sentence for each role and model that answered."""
    problems: tuple[Problem, ...]
    """What was refused, with the setting that mends it."""
    cost: str
    """The most that it cost."""


async def ping_models(plan: Plan) -> Pinged:
    """Ask each model in use once for each way in which a role asks it."""
    answers, problems, nano, tokens = list[str](), list[Problem](), 0, 0
    async with open_transport(concurrency=1) as http:
        for role, name in _asked(plan):
            chosen = plan.models.roles[role]
            # In a thread, because a Secret block is fetched with its own event loop.
            key = await asyncio.to_thread(read_api_key, chosen)
            endpoint = endpoint_of(chosen, chosen.base_url or "", key)
            found = await ping(endpoint, role, name, plan.settings.tfgrpo.temperature.train, http)
            price = plan.models.price_list(role).get(name)
            tokens += found.bound + found.attempts
            nano += 0 if price is None else price.cost(found.bound, found.attempts)
            last = {finding.setting or finding.said: finding for finding in found.findings}
            problems += (_problem(plan, role, name, finding) for finding in last.values())
            if not found.findings:
                silence = ", but counts no tokens: what it costs will be unknown" if found.silent else ""
                answers.append(f"{role}: {name} at {endpoint.display_url} answers{silence}")
    unknown = any(found is None for *_, found in plan.models.priced)
    cost = f"at most {tokens:,} tokens, of an unknown price" if unknown else f"at most ${nano / NANO:.6f}"
    return Pinged(tuple(answers), tuple(problems), cost)


def _asked(plan: Plan) -> Iterator[tuple[ModelRole, str]]:
    """Yield each role and model; a judge of the learner's model that is asked as the learner is, only once."""
    models = plan.models
    if models.base_url is None:
        return
    yield "actor", models.name
    yield "reflection", models.reflection_name
    same = {"max_tokens": 1, "name": None}
    learner, judge = (models.roles[role].model_copy(update=same) for role in ("reflection", "judge"))
    yield from (("judge", name) for name in models.judges if name != models.reflection_name or learner != judge)


def _problem(plan: Plan, role: ModelRole, name: str, finding: Finding) -> Problem:
    own = plan.settings.model.own(role)
    section = f"model.{role}" if {"name", "base_url"} & set(own) or finding.setting in own else "model"
    accepted = f"{section}.{finding.setting}: {finding.value}" if finding.setting else finding.advice
    return Problem(f"{name}, asked as {role}", finding.said, accepted or "a request that this endpoint takes")
