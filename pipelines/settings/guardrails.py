"""Check combinations of settings: fan-out, budget, models, stages.

Refuses before any scheduling or spending, and logs each refusal on ``tfgrpo.guardrails``. Reads no file and opens no
connection. ``guard_warnings`` yields what is allowed but unusual.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.model_choice import (
    ModelChoice,
    PriceList,
    choose_models,
    dry_run_warnings,
    is_local,
    key_warnings,
)
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS, MIN_GROUP_SIZE, MODEL_ROLES, ModelRole, ModelSettings, Settings
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.json_values import EMPTY
from tfgrpo.stores.ledger import NANO
from tfgrpo.stores.text import check_identifier

LOGGER_NAME = "tfgrpo.guardrails"
_log = logging.getLogger(LOGGER_NAME)


def validate_tfgrpo_config(settings: Settings, *, sources: Mapping[str, str] = EMPTY) -> None:
    """Raise ``SettingsError`` with every impossible combination, after logging each as an error.

    ``sources``, from ``resolve_settings``, are named in the messages, or the options that set a key.
    """
    problems = []
    for problem in (each for check in _CHECKS for each in check(settings)):
        source = sources.get(problem.source, "default")
        option = source.removeprefix("command line ")
        label = problem.source if source == "default" else option if option != source else f"{problem.source} ({source})"
        problems.append(replace(problem, source=label))
    log_refusals(problems)
    if problems:
        raise SettingsError(problems)


def unnamed_world(settings: Settings, *, sources: Mapping[str, str]) -> Sequence[Problem]:
    """Return the problem of a real, paid model on the items of a simulated world that the user did not name."""
    models, dataset = choose_models(settings), settings.dataset
    named = dataset.path is not None or dataset.mix is not None or sources["simulated.world"] != "default"
    if named or models.simulated:
        return ()
    received = f"no items for {models.name!r}" if models.name else "no items"
    accepted = f"a dataset, or --world {settings.simulated.world} to pay for the items of a simulated world"
    return (Problem("--dataset", received, accepted),)


def log_refusals(problems: Iterable[Problem]) -> None:
    """Log refused settings, a group size that does not parse included (requirement 73)."""
    for problem in problems:
        _log.error("refused before scheduling: %s", problem)


def task_id_problems(settings: Settings) -> Iterator[Problem]:
    """Yield the problem of a task id that is no safe directory name (requirement 70)."""
    try:
        check_identifier(settings.task_id)
    except ValueError:
        accepted = "at most 100 letters, digits, dots, dashes and underscores that any file system takes as a name"
        yield Problem("task_id", repr(settings.task_id[:80]), accepted)


def _fan_out(settings: Settings) -> Iterator[Problem]:
    size, capacity = settings.tfgrpo.group_size, settings.tfgrpo.concurrency
    if size > capacity:
        received = f"a fan-out of {size} actors per group with a capacity of {capacity}"
        smaller = f"--group-size {capacity} or less, or " if capacity >= MIN_GROUP_SIZE else ""
        yield Problem("tfgrpo.group_size", received, f"a group that fits: {smaller}--concurrency {size} or more")


def _endpoint(settings: Settings) -> Iterator[Problem]:
    models = choose_models(settings)
    roles = () if models.in_process else MODEL_ROLES
    problems = (problem for role in roles for problem in _endpoint_of(role, models.roles[role], settings.model))
    yield from dict.fromkeys(problems)


def _endpoint_of(role: ModelRole, chosen: ModelSettings, model: ModelSettings) -> Iterator[Problem]:
    own, section = model.own(role), f"model.{role}"
    if chosen.base_url is None:
        accepted = "a model together with --base-url or OPENAI_BASE_URL, or --dry-run"
        key = f"{section}.name" if "name" in own else "model.name"
        yield Problem(key, f"{chosen.name!r} and no endpoint to ask for it", accepted)
    elif chosen.name is None:
        accepted = "an endpoint together with --model, or --dry-run"
        yield Problem(f"{section}.base_url" if "base_url" in own else "model.base_url", "an endpoint and no model", accepted)
    elif model.base_url is not None and not is_local(chosen.base_url):
        here, there = (urlsplit(each.strip()).netloc.lower() for each in (model.base_url, chosen.base_url))
        follows = {"api_key": "api_key" not in own}
        follows["headers"] = "headers" not in own and any(value.startswith(ENV_VALUE) for value in model.headers.values())
        for name in (name for name, secret in follows.items() if secret and here != there):
            received = f"nothing, and another host than model.base_url, whose secrets would be sent to {there}"
            yield Problem(f"{section}.{name}", received, "those of that host, or the same by name if it is to have them")


def _datasets(settings: Settings) -> Iterator[Problem]:
    dataset = settings.dataset
    if dataset.mix is not None:
        accepted = "a dataset or --data-config, whose items are split by --set dataset.held_out=SHARE"
        for key, other in (("dataset.path", dataset.path), ("dataset.eval_path", dataset.eval_path)):
            if other is not None:
                yield Problem(key, f"{other!r} together with a data mix", accepted)
    elif dataset.eval_path is None:
        return
    elif dataset.path is None:
        accepted = "an evaluation dataset together with --dataset, the items to learn on"
        yield Problem("dataset.eval_path", repr(dataset.eval_path), accepted)
    elif Path(dataset.eval_path).resolve() == Path(dataset.path).resolve():
        accepted = "another file, or none to split one off"
        yield Problem("dataset.eval_path", "the dataset that is learned on", accepted)


def _stages(settings: Settings) -> Iterator[Problem]:
    names = [stage.name for stage in settings.stages]
    if names not in (["learn"], ["learn", "spec-guard"]):
        yield Problem("stages", ", ".join(names) or "no stage", "learn, then spec-guard last")


def _budget(settings: Settings) -> Iterator[Problem]:
    budget, models, size = settings.budget, choose_models(settings), settings.tfgrpo.actors_per_item
    most = models.roles["actor"].max_tokens
    if budget.max_calls is not None and budget.max_calls < size:
        yield Problem("budget.max_calls", str(budget.max_calls), f"at least {size}, the calls of one group")
    if budget.max_tokens is not None and budget.max_tokens <= most:
        accepted = f"more than {most}, which one call may use by model.max_tokens"
        yield Problem("budget.max_tokens", str(budget.max_tokens), accepted)
    for key, cap in (("budget.max_usd", budget.max_usd), ("budget.task_max_usd", budget.task_max_usd)):
        if cap is not None:
            yield from _money(key, cap, models, most)


def _money(key: str, cap: float, models: ModelChoice, max_tokens: int) -> Iterator[Problem]:
    if models.unpriced and models.name:
        yield _unpriced(key, cap, models.unpriced, any(models.price_list(role).remote for role in models.endpoints))
    dearest = max((listed.price.cost(0, max_tokens) for *_, listed in models.priced if listed is not None), default=0)
    one_call = Decimal(dearest) / NANO
    # As written: the float 0.1 is more than a tenth.
    if Decimal(repr(cap)) < one_call:
        yield Problem(key, f"{cap:g}", f"at least {one_call.normalize():f}, which one call may cost by model.max_tokens")


def _unpriced(key: str, cap: float, names: Sequence[str], remote: object) -> Problem:
    listed = "vendors' list prices by `pip install 'tfgrpo[prices]'`, " if remote and find_spec("genai_prices") is None else ""
    received = f"a cap of {cap:g} USD with no price for {' and '.join(map(repr, names)) or 'any model'}"
    instead = "or --max-tokens or --max-calls instead: an unknown price cannot be capped"
    return Problem(key, received, f"an entry in model.prices for every model in use, {listed}{instead}")


def check_served_prices(settings: Settings, prices: PriceList) -> None:
    """Raise ``SettingsError`` for a cap on the money of a service whose models are known to have no price."""
    cap, models = settings.budget.max_usd, (settings.model.of("actor").name, *settings.actor.gateway.models.values())
    unpriced = [name for name in dict.fromkeys(filter(None, models)) if name not in prices]
    none = not prices.own and (prices.remote is None or find_spec("genai_prices") is None)
    if cap is not None and (unpriced or none):
        raise SettingsError([_unpriced("budget.max_usd", cap, unpriced, prices.remote)])


_CHECKS = (_fan_out, task_id_problems, _endpoint, _datasets, _stages, _budget)


def guard_warnings(settings: Settings, env: Mapping[str, str], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences about combinations that are allowed and probably unintended."""
    learning, models = settings.tfgrpo, choose_models(settings)
    model = models.roles["actor"]
    if not learning.enabled:
        yield "FEATURE_TFGRPO_GROUP is off: one actor per item, measured, and nothing is learned; tfgrpo.enabled: true learns"
    elif sources.get("tfgrpo.batch_size", "default") != "default" and learning.batch_size > learning.sample_size:
        yield (
            f"a batch of {learning.batch_size} is more than the {learning.sample_size} items of an epoch: "
            "lessons are curated once an epoch"
        )
    train, sweep = learning.temperature.train, learning.temperature.eval
    if sweep > train:
        yield f"the evaluation temperature {sweep:g} is above the training temperature {train:g}"
    if not model.send_temperature:
        yield "model.send_temperature is off: the endpoint's own temperature is used for training and evaluation alike"
    if settings.actor.timeout_s < model.timeout_s:
        yield (
            f"a rollout may take {settings.actor.timeout_s:g} s (actor.timeout_s) and one of its calls "
            f"{model.timeout_s:g} s (model.timeout_s): the rollout ends first"
        )
    if (url := settings.notify.url) is not None and not env.get(name := url.removeprefix(ENV_VALUE), "").strip():
        yield f"notify.url: {name} is not set, so that nobody is notified of the end of the run"
    yield from dry_run_warnings(settings)
    yield from _data_warnings(settings, simulated=models.simulated)
    yield from key_warnings(models, env)


def _data_warnings(settings: Settings, *, simulated: bool) -> Iterator[str]:
    dataset = settings.dataset
    own_items = dataset.path is not None or dataset.mix is not None
    if simulated and own_items:
        yield "the SIMULATED model knows only the items of its own worlds; on other items its rewards mean nothing"
    if not simulated and not own_items:
        yield f"no --dataset: a real model is tried on the items of the simulated world {settings.simulated.world!r}"
    if dataset.mix is not None and all(each.name != DATASET_GRADERS for each in settings.rewarders):
        yield f"the graders of the data mix are not used: no {DATASET_GRADERS} among the rewarders"
