"""How is learned? Settings of the loop and of the gate that ends it; keys of the specification keep their names.

Refuses what is wrong with one value alone, as every room ``tfgrpo.pipelines.settings.tree*`` does.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from tfgrpo.pipelines.settings.base import Fraction, Section, Temperature, option
from tfgrpo.stores.seeds import derive_seed
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS

MIN_GROUP_SIZE: Final = 2
MAX_GROUP_SIZE: Final = 1_000
MAX_EPOCHS: Final = 1_000
MAX_SAMPLE: Final = 1_000_000
MAX_CONCURRENCY: Final = 10_000
MAX_PROPOSALS: Final = 80
"""Proposals of one batch that are put to curation; the best supported ones."""
MAX_GROUPS: Final = 5_000_000
"""Groups of all learning epochs together: each is drawn and counted when a run is planned."""


class TemperatureSettings(Section):
    """Sampling temperatures of the two phases."""

    train: Temperature = option(0.7, flag="--train-temp", env="TFGRPO_TRAIN_TEMP")
    """Epochs 1 to E-1, which learn."""
    eval: Temperature = option(0.3, flag="--eval-temp", env="TFGRPO_EVAL_TEMP")
    """Epoch E, the evaluation sweep."""


class RetrievalSettings(Section):
    """Which lessons of the library an actor is shown; the most valuable ones, as far as the pack has slots."""

    min_reward: float | None = None
    """Least reward of a lesson's best attempt for it to be shown. None: any."""
    max_per_group: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Most of the lessons shown that come from one source group. None: any number."""


class ScheduleSettings(Section):
    """Bounds on the actors of a group that the operator allows; both follow ``group_size`` when absent."""

    min_instances: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Fewest actors a group may have. None: ``group_size``."""
    max_instances: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Most actors a group may have. None: ``group_size``."""


class LearningSettings(Section):
    """The loop itself. Keys of the specification keep their names."""

    enabled: bool = option(False, env="FEATURE_TFGRPO_GROUP")
    """Feature flag. Off: one actor per item, measured, nothing learned."""
    group_size: int = option(2, flag="--group-size", env="TFGRPO_GROUP_SIZE", ge=MIN_GROUP_SIZE, le=MAX_GROUP_SIZE)
    """G, attempts per item."""
    epochs: int = option(3, flag="--epochs", env="TFGRPO_EPOCHS", ge=2, le=MAX_EPOCHS)
    """E. Epochs 1 to E-1 learn, epoch E measures."""
    sample_size: int = option(100, flag="--sample-size", env="TFGRPO_SAMPLE_SIZE", ge=1, le=MAX_SAMPLE)
    """Items per epoch; also the most items of the evaluation sweep."""
    batch_size: int = option(50, flag="--batch-size", env="TFGRPO_BATCH_SIZE", ge=1, le=MAX_SAMPLE)
    """Items between two curations of the library."""
    with_replacement: bool = False
    """Draw the items of an epoch with replacement: an item may then come several times while others wait."""
    curriculum: Literal["none", "difficulty"] = "none"
    """``difficulty`` draws an item the less often, the more of its groups were flat; see ``docs/learning.md``."""
    temperature: TemperatureSettings = TemperatureSettings()
    """Sampling temperatures of the two phases."""
    experience_max_words: int = option(MAX_WORDS, env="TFGRPO_EXPERIENCE_MAX_WORDS", ge=4, le=MAX_WORDS)
    """Longest lesson, in words; a pack may only lower it."""
    experience_max_chars: int = Field(default=MAX_CHARS, ge=40, le=MAX_CHARS)
    """Longest lesson, in characters."""
    min_spread: float = Field(default=1e-6, ge=0.0)
    """Population standard deviation of a group's rewards from which the group is informative."""
    reflection: Literal["extremes", "all"] = "extremes"
    """Show the reflecting model the best and the worst attempt, or every attempt (as published)."""
    show_ground_truth: bool = True
    """Show the reference answer to the reflecting model (never to an actor)."""
    lessons_per_group: int = Field(default=2, ge=1, le=8)
    """Most lessons one group may propose."""
    capacity_factor: float = Field(default=1.5, ge=1.0, le=10.0)
    """Library capacity as a multiple of the pack's experience slots."""
    edit_budget: int = Field(default=12, ge=1, le=1_000)
    """Operations one curation may apply in epoch 1; shrinks in proportion to the epochs left."""
    min_reward: float = 0.0
    """Reward the best attempt of a group must exceed for a lesson that says *do*."""
    min_rank: Fraction = 0.5
    """Relative rank the best attempt must reach for a lesson to be written."""
    max_repairs: int = Field(default=2, ge=0, le=10)
    """Repair calls for one structured answer before the deterministic rule takes over."""
    seed: int = option(0, flag="--seed", env="TFGRPO_SEED", ge=0)
    """Every random choice of a run follows from it, and from the night."""
    night: int | None = Field(default=None, ge=0, le=1_000_000)
    """Nights of the task before this one. None: as many as its gate has decided. Learning goes on where they ended."""
    concurrency: int = option(32, flag="--concurrency", env="TFGRPO_CONCURRENCY", ge=1, le=MAX_CONCURRENCY)
    """Actors in flight at once: the capacity that a group has to fit into."""
    max_lost_share: Fraction = 0.5
    """Share of a batch's rollouts that may fail, or stay ungraded by a rewarder that broke, before the run stops. Also the
    share of an epoch's reflections and curations that may bring no usable answer, from three lost ones on."""
    schedule: ScheduleSettings = ScheduleSettings()
    """Bounds on the actors of a group."""
    retrieval: RetrievalSettings = RetrievalSettings()
    """Which lessons of the library an actor is shown."""

    def seed_of(self, phase: Literal["train", "eval"]) -> int:
        """Seed of a phase: learning has another one every night, the held-out sweep always that of the run."""
        return derive_seed(self.seed, "night", self.night) if self.night and phase == "train" else self.seed

    @property
    def epochs_before(self) -> int:
        """Learning epochs of the nights before."""
        return (self.night or 0) * max(self.epochs - 1, 1)

    @property
    def actors_per_item(self) -> int:
        """The group size, or one when the feature flag is off (requirement 58)."""
        return self.group_size if self.enabled else 1

    @property
    def instance_bounds(self) -> tuple[int, int]:
        """Fewest and most actors of a group; both follow the group size when absent (requirement 48)."""
        low, high = self.schedule.min_instances, self.schedule.max_instances
        return self.group_size if low is None else low, self.group_size if high is None else high


class GateSettings(Section):
    """When the candidate library is promoted."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Coverage of the anytime-valid interval of the paired difference."""
    max_lost_share: Fraction = 0.2
    """Share of pairs that may be lost before the gate abstains."""
    max_regressions: Fraction = 0.1
    """Share of items that may flip from always right to always wrong."""
