"""Settings of the learning loop and of the comparison on held-out items. Keys of the specification keep their names."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from tfgrpo.pipelines.settings.base import Fraction, Section, Temperature, setting_field
from tfgrpo.stores.canonical import derive_seed
from tfgrpo.stores.text import MAX_WORDS

MIN_GROUP_SIZE: Final = 2
MIN_MEASURING_SIZE: Final = 4
"""Fewest attempts of a group that measures lessons: two on each side, so that each has a variance."""
MAX_GROUP_SIZE: Final = 1_000
MAX_EPOCHS: Final = 1_000
MAX_SAMPLE: Final = 1_000_000
MAX_CONCURRENCY: Final = 10_000
MAX_PROPOSALS: Final = 80
"""Most proposals of one batch that are curated; the best supported ones."""
MAX_GROUPS: Final = 5_000_000
"""Most groups of all learning epochs together: a plan draws and counts each of them."""


class TemperatureSettings(Section):
    """Sampling temperatures of the two phases."""

    train: Temperature = setting_field(0.7, flag="--train-temp", env="TFGRPO_TRAIN_TEMP")
    """Epochs 1 to E-1, which learn."""
    eval: Temperature = setting_field(0.3, flag="--eval-temp", env="TFGRPO_EVAL_TEMP")
    """Epoch E, the evaluation sweep."""


class LearningSettings(Section):
    """The learning loop."""

    REFLECTION_CHARS: ClassVar[int] = 64_000
    """Most characters of the attempts in one reflection: 16,000 tokens, of which models still read all. What does not fit is
    condensed, by one call for each of the two attempts that are contrasted."""
    LESSONS_PER_GROUP: ClassVar[int] = 2
    """Most lessons one group may propose: one for each of its contrasts."""
    MAX_REPAIRS: ClassVar[int] = 2
    """Most repair calls for one structured answer, of which few take more than one; then a deterministic rule decides."""
    enabled: bool = setting_field(False, env="FEATURE_TFGRPO_GROUP")
    """Feature flag. Off: one actor per item, which is measured without learning."""
    group_size: int = setting_field(
        2, flag="--group-size", env="TFGRPO_GROUP_SIZE", ge=MIN_GROUP_SIZE, le=MAX_GROUP_SIZE
    )
    """G, attempts per item."""
    epochs: int = setting_field(3, flag="--epochs", env="TFGRPO_EPOCHS", ge=2, le=MAX_EPOCHS)
    """E. Epochs 1 to E-1 learn, epoch E measures."""
    sample_size: int = setting_field(100, flag="--sample-size", env="TFGRPO_SAMPLE_SIZE", ge=1, le=MAX_SAMPLE)
    """Items per epoch; also the most items of the evaluation sweep."""
    batch_size: int = setting_field(50, flag="--batch-size", env="TFGRPO_BATCH_SIZE", ge=1, le=MAX_SAMPLE)
    """Items between two curations of the lessons."""
    temperature: TemperatureSettings = TemperatureSettings()
    experience_max_words: int = setting_field(MAX_WORDS, env="TFGRPO_EXPERIENCE_MAX_WORDS", ge=4, le=MAX_WORDS)
    """Longest lesson, in words; a pack may only lower it. In characters: 280."""
    min_spread: float = Field(default=1e-6, ge=0.0)
    """Minimum population standard deviation of the rewards of an informative group."""
    seed: int = setting_field(0, flag="--seed", env="TFGRPO_SEED", ge=0)
    """Seed of every random choice of a run, together with the night."""
    night: int | None = Field(default=None, ge=0, le=1_000_000)
    """Nights of the task before this one. None: as many as have begun with this kind of model. Learning continues where they
    ended."""
    concurrency: int = setting_field(32, flag="--concurrency", env="TFGRPO_CONCURRENCY", ge=1, le=MAX_CONCURRENCY)
    """Most concurrent actors; a group must fit into it."""
    max_lost_share: Fraction = 0.5
    """Share of a batch's rollouts that may fail, or stay ungraded because a rewarder failed, before the run stops. Also the
    share of an epoch's reflections and curations without a usable answer, once there are three of those."""
    allow_zero: bool = setting_field(False, flag="--allow-zero")
    """Go on when no attempt of the first batch has a reward above the lowest. Off: the run stops there, and shows three of
    them with their references."""

    def lessons_of(self, contrasts: int) -> int:
        """Return how many lessons each of so many contrasts of a group may propose."""
        return max(1, self.LESSONS_PER_GROUP // contrasts)

    @property
    def night_seed(self) -> int:
        """Seed of every phase of this night: another one every night, so that evidence does not repeat itself."""
        return derive_seed(self.seed, "night", self.night) if self.night else self.seed

    @property
    def measuring_size(self) -> int:
        """Attempts of a group that measures lessons on demand."""
        return max(self.group_size, MIN_MEASURING_SIZE)

    @property
    def actors_per_item(self) -> int:
        """The group size, or one when the feature flag is off (requirement 58)."""
        return self.group_size if self.enabled else 1


class GateSettings(Section):
    """The comparison on held-out items at the end of a night."""

    group_size: int = Field(default=5, ge=1, le=MAX_GROUP_SIZE)
    """Attempts of each side at a held-out item: with the lessons that would be in force, and without."""
