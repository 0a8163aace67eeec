"""Ask the model of judges outside of a run: for a data server, and for completions that are graded offline.

Calls keep to the budget of a pipeline and go through its ledger and limits; their answers are in no journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.run.prepare import check_endpoint_of, run_context
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import BasePlan, pack_for
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import ActorSettings, DatasetSettings, RewarderSettings
from tfgrpo.rewarders.composite import AnyScorer, judge_loads, scorers_within
from tfgrpo.rewarders.scorer import Scorer
from tfgrpo.stores.errors import PipelineError, SettingsError
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.group import GroupJudge
from tfgrpo.tasks.runtime.host import open_runtime
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupSpec, PackText

if TYPE_CHECKING:
    from tfgrpo.pipelines.mix.config import MixConfig


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
