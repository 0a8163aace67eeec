"""What exactly will a run do? Everything cheap is checked and loaded here, before anything is spent or written.

Run, doctor and estimate all call ``build_plan``. It reads files and imports rewarders; it opens no connection, writes
nothing, and raises one error with every problem it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from pipelines.datasets import Dataset, read_dataset, shipped_dataset
from pipelines.forecast import Forecast, forecast
from pipelines.guardrails import group_size_in_force, guard_warnings, places, task_id_problems, validate_tfgrpo_config
from pipelines.items import Item
from pipelines.layers import Resolved
from pipelines.model_choice import SIMULATED_MODEL, ModelChoice, choose_models
from pipelines.problems import raise_together
from pipelines.sampling import Cohort, draw_cohort, draw_evaluation
from pipelines.settings import Settings
from pipelines.split import Split, pair_datasets, split_items
from prompt_packs.loader import load_prompt_pack
from prompt_packs.models import LoadedPack
from rewarders.registry import build_rewarder
from rewarders.scoring import WeightedRewarder, check_rewarders
from stores.errors import ConfigError, DatasetError, Problem, SettingsError
from stores.layout import TaskPaths

ExtraCheck: TypeAlias = Callable[[Settings], Sequence[Problem]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can start: valid settings and everything they name, loaded."""

    settings: Settings
    sources: Mapping[str, str]
    """Where each setting came from, by dotted key."""
    models: ModelChoice
    pack: LoadedPack
    rewarders: tuple[WeightedRewarder, ...]
    learn_items: tuple[Item, ...]
    evaluation: Cohort
    """The sweep: the held-out items, at most ``sample_size`` of them."""
    forecast: Forecast
    warnings: tuple[str, ...]
    paths: TaskPaths
    """Where the task's files will stand; nothing is there yet on a first run."""

    @property
    def simulated(self) -> bool:
        """Whether the figures are those of the simulated model, in process or served by ``tfgrpo serve-simulated``."""
        return self.models.simulated or SIMULATED_MODEL in self.models.in_use

    @property
    def eval_items(self) -> tuple[Item, ...]:
        """Items of the sweep."""
        return self.evaluation.items

    @property
    def learns(self) -> bool:
        """Whether lessons are distilled; False with the feature flag off."""
        return self.settings.tfgrpo.enabled

    @property
    def group_size(self) -> int:
        """Actors per item."""
        return group_size_in_force(self.settings)

    @property
    def rollout_model(self) -> str:
        """Name on the wire of the model that attempts."""
        return self.models.name

    @property
    def learning_model(self) -> str:
        """Name on the wire of the model that reflects and curates."""
        return self.models.reflection_name

    def cohort(self, epoch: int) -> Cohort:
        """The items of a learning epoch; the same at every call."""
        return draw_cohort(self.learn_items, epoch=epoch, settings=self.settings.tfgrpo)


def build_plan(resolved: Resolved, env: Mapping[str, str], *, extra_checks: Sequence[ExtraCheck] = ()) -> Plan:
    """Check and load all that the settings name. ``extra_checks`` add what higher floors know how to check.

    Raises one ``ConfigError`` with all problems, of the class of the first part that found one.
    """
    settings = resolved.settings
    parts = _Parts()
    parts.run(partial(validate_tfgrpo_config, settings, sources=resolved.sources))
    for check in extra_checks:
        parts.run(partial(_raise_problems, check, settings))
    paths = parts.run(partial(_task_paths, settings, resolved.sources))
    pack = parts.run(partial(_pack, settings))
    rewarders = parts.run(partial(_rewarders, settings))
    data = parts.run(partial(_data, settings))
    parts.raise_found()
    split, odd = data[0]
    evaluation = draw_evaluation(split.held_out, settings=settings.tfgrpo)
    models = choose_models(settings)
    ahead = forecast(
        settings,
        models=models,
        pack=pack[0],
        cohorts=_cohorts(settings, split.learn),
        evaluation=evaluation.items if settings.tfgrpo.enabled else (),
    )
    warnings = (*guard_warnings(settings, env, resolved.sources), *odd, *_advice(settings, split, pack[0], ahead))
    return Plan(
        settings=settings,
        sources=resolved.sources,
        models=models,
        pack=pack[0],
        rewarders=rewarders[0],
        learn_items=split.learn,
        evaluation=evaluation,
        forecast=ahead,
        warnings=warnings,
        paths=paths[0],
    )


class _Parts:
    """Runs one part after another and keeps what each refuses."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    def run(self, part: Callable[[], _T]) -> list[_T]:
        """The part's result as the only element, or nothing when it refused."""
        try:
            return [part()]
        except ConfigError as error:
            self._errors.append(error)
            return []

    def raise_found(self) -> None:
        """Raise everything refused so far, if anything was."""
        raise_together(self._errors)


def _raise_problems(check: ExtraCheck, settings: Settings) -> None:
    problems = check(settings)
    if problems:
        raise SettingsError(problems)


def _task_paths(settings: Settings, sources: Mapping[str, str]) -> TaskPaths:
    problems = list(task_id_problems(settings, places(sources)))
    if problems:
        raise SettingsError(problems)
    paths = TaskPaths.of(settings.out, settings.task_id)
    for place in (Path(settings.out), paths.root):
        if place.exists() and not place.is_dir():
            raise SettingsError.one(
                "out", f"{str(place)!r}, which is no directory", "a directory, or a path for a new one"
            )
    return paths


def _pack(settings: Settings) -> LoadedPack:
    root = Path(settings.packs_root) if settings.packs_root is not None else None
    learning = settings.tfgrpo
    return replace(
        load_prompt_pack(settings.pack, root),
        words_allowed=learning.experience_max_words,
        max_chars=learning.experience_max_chars,
    )


def _rewarders(settings: Settings) -> tuple[WeightedRewarder, ...]:
    errors: list[ConfigError] = []
    built = []
    for place, entry in enumerate(settings.rewarders):
        try:
            rewarder = build_rewarder(entry.name, entry.options, source=f"rewarders.{place}")
        except ConfigError as error:
            errors.append(error)
        else:
            built.append(WeightedRewarder(rewarder, entry.weight, entry.timeout_s))
    raise_together(errors)
    if any(weighted.weight > 0.0 for weighted in built):  # otherwise the guard rails have said so
        check_rewarders(built, group_size=group_size_in_force(settings))
    return tuple(built)


def _data(settings: Settings) -> tuple[Split, tuple[str, ...]]:
    """Both sides of the data, with what is odd about their files."""
    dataset = settings.dataset
    path = shipped_dataset(settings.simulated.world) if dataset.path is None else Path(dataset.path)
    parts = _Parts()
    paths = [path] if dataset.eval_path is None else [path, Path(dataset.eval_path)]
    files = [file for each in paths for file in parts.run(partial(read_dataset, each, dataset.fields))]
    parts.raise_found()
    _refuse_without_answers(settings, files)
    sides = [file.items for file in files]
    split = split_items(sides[0], dataset.held_out) if len(sides) == 1 else pair_datasets(sides[0], sides[1])
    return split, tuple(warning for file in files for warning in file.warnings)


def _refuse_without_answers(settings: Settings, files: Sequence[Dataset]) -> None:
    """Ground truth without any answer would leave every rollout ungraded, after it was paid for."""
    if not any(entry.name == "gt" and entry.weight > 0.0 for entry in settings.rewarders):
        return
    name = settings.dataset.fields.answer
    bare = [file for file in files if not any(item.answer.strip() for item in file.items)]
    if bare:
        accepted = f"answers in the field {name!r}, another name by dataset.fields.answer, or no gt rewarder"
        raise DatasetError([Problem(str(file.path), "no answer in any item", accepted) for file in bare])


def _cohorts(settings: Settings, items: Sequence[Item]) -> list[Cohort]:
    """The learning epochs; with the feature flag off, the one that is measured."""
    last = settings.tfgrpo.epochs if settings.tfgrpo.enabled else 2
    return [draw_cohort(items, epoch=epoch, settings=settings.tfgrpo) for epoch in range(1, last)]


def _advice(settings: Settings, split: Split, pack: LoadedPack, ahead: Forecast) -> Iterator[str]:
    """What only shows once data, pack and forecast are there."""
    learning, budget, domain = settings.tfgrpo, settings.budget, pack.manifest.domain
    if len(split.learn) < learning.sample_size:
        yield (
            f"{len(split.learn)} items to learn on are fewer than a sample of {learning.sample_size}: "
            "every epoch draws from all of them"
        )
    elsewhere = sorted({item.domain for item in (*split.learn, *split.held_out)} - {"", domain})
    if elsewhere:
        yield f"the pack {pack.manifest.id!r} is for the domain {domain!r}; items are of {', '.join(elsewhere[:5])}"
    caps = (
        ("budget.max_calls", budget.max_calls, ahead.calls.low),
        ("budget.max_tokens", budget.max_tokens, ahead.prompt_tokens.low + ahead.completion_tokens.low),
        ("budget.max_usd", budget.max_usd, ahead.usd.low if ahead.usd is not None else None),
    )
    for name, cap, least in caps:
        if cap is not None and least is not None and least > cap:
            yield f"{name} is {cap:g} and the run needs {least:g} at least: it will stop early, with its work saved"
