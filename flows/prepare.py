"""Is everything right before anything is spent? The one function that run, doctor and estimate call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.request import RunRequest
from flows.resume import settings_of_run
from flows.secrets import read_api_key
from pipelines.layers import Resolved, resolve_settings
from pipelines.pipeline_file import find_pipeline
from pipelines.plan import Plan, build_plan
from pipelines.settings import Settings
from stores.errors import Problem
from tasks.actors.registry import check_actor
from tasks.models.endpoint import endpoint_of
from tasks.models.preflight import check_endpoint


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose settings resolve and whose plan holds."""

    resolved: Resolved
    plan: Plan
    warnings: tuple[str, ...]
    """What the endpoint said at preflight, beside the plan's own warnings."""


def prepare(request: RunRequest, env: Mapping[str, str], *, preflight: bool = True) -> Prepared:
    """Resolve, plan and, unless told otherwise, knock at the endpoint. Raises ``ConfigError`` with every problem."""
    if request.resume or request.replay:
        resolved = settings_of_run(request, env)
    else:
        resolved = resolve_settings(cli=request.options(), env=env, pipeline_path=find_pipeline(request.pipeline))
    plan = build_plan(resolved, env, extra_checks=(_check_actor,))
    offline = plan.simulated or request.replay is not None
    if offline or not preflight or plan.models.base_url is None:
        return Prepared(resolved, plan, ())
    endpoint = endpoint_of(plan.settings.model, plan.models.base_url, read_api_key(plan.settings.model))
    return Prepared(resolved, plan, asyncio.run(check_endpoint(endpoint)))


def _check_actor(settings: Settings) -> Sequence[Problem]:
    return check_actor(settings.actor)
