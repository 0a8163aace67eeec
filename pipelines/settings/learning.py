"""Settings of the learning loop and of the gate. Keys of the specification keep their names."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from tfgrpo.pipelines.settings.base import Fraction, Section, Temperature, option
from tfgrpo.stores.canonical import derive_seed
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS

MIN_GROUP_SIZE: Final = 2
MAX_GROUP_SIZE: Final = 1_000
MAX_EPOCHS: Final = 1_000
MAX_SAMPLE: Final = 1_000_000
MAX_CONCURRENCY: Final = 10_000
MAX_PROPOSALS: Final = 80
"""Most proposals of one batch that are curated; the best supported ones."""
MOST_IN_FORCE: Final = 60
"""Most lessons in force of which a prompt carries some."""
MAX_GROUPS: Final = 5_000_000
"""Most groups of all learning epochs together: a plan draws and counts each of them."""


class TemperatureSettings(Section):
    """Sampling temperatures of the two phases."""

    train: Temperature = option(0.7, flag="--train-temp", env="TFGRPO_TRAIN_TEMP")
    """Epochs 1 to E-1, which learn."""
    eval: Temperature = option(0.3, flag="--eval-temp", env="TFGRPO_EVAL_TEMP")
    """Epoch E, the evaluation sweep."""


class RetrievalSettings(Section):
    """Selection of the lessons in an actor's prompt: the most valuable ones, and those that fit the item, up to the slots."""

    per_item: int = Field(default=4, ge=0, le=MOST_IN_FORCE)
    """Slots for the lessons most like the item's text (BM25), once more lessons are in force than the pack has slots. 0: no
    more are ever in force than it has slots."""
    min_reward: float | None = None
    """Minimum reward of the best attempt of a lesson. None: any."""
    max_per_group: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Most lessons of one source group. None: any number."""

    def most_in_force(self, slots: int) -> int:
        """Return the most lessons of a candidate for prompts with so many slots."""
        return max(slots, MOST_IN_FORCE) if self.per_item and slots else slots


class ScheduleSettings(Section):
    """Bounds on the actors of a group; both are ``group_size`` when absent."""

    min_instances: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Fewest actors a group may have. None: ``group_size``."""
    max_instances: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    """Most actors a group may have. None: ``group_size``."""


class LearningSettings(Section):
    """The learning loop."""

    enabled: bool = option(False, env="FEATURE_TFGRPO_GROUP")
    """Feature flag. Off: one actor per item, which is measured without learning."""
    group_size: int = option(2, flag="--group-size", env="TFGRPO_GROUP_SIZE", ge=MIN_GROUP_SIZE, le=MAX_GROUP_SIZE)
    """G, attempts per item."""
    epochs: int = option(3, flag="--epochs", env="TFGRPO_EPOCHS", ge=2, le=MAX_EPOCHS)
    """E. Epochs 1 to E-1 learn, epoch E measures."""
    sample_size: int = option(100, flag="--sample-size", env="TFGRPO_SAMPLE_SIZE", ge=1, le=MAX_SAMPLE)
    """Items per epoch; also the most items of the evaluation sweep."""
    batch_size: int = option(50, flag="--batch-size", env="TFGRPO_BATCH_SIZE", ge=1, le=MAX_SAMPLE)
    """Items between two curations of the library."""
    with_replacement: bool = False
    """Draw the items of an epoch with replacement: an item may then be drawn several times before others are."""
    curriculum: Literal["none", "difficulty"] = "none"
    """``difficulty`` draws items with many flat groups less often; see ``docs/learning.md``."""
    temperature: TemperatureSettings = TemperatureSettings()
    experience_max_words: int = option(MAX_WORDS, env="TFGRPO_EXPERIENCE_MAX_WORDS", ge=4, le=MAX_WORDS)
    """Longest lesson, in words; a pack may only lower it."""
    experience_max_chars: int = Field(default=MAX_CHARS, ge=40, le=MAX_CHARS)
    """Longest lesson, in characters."""
    min_spread: float = Field(default=1e-6, ge=0.0)
    """Minimum population standard deviation of the rewards of an informative group."""
    reflection: Literal["pairs", "extremes", "all"] = "pairs"
    """What a reflection contrasts: the best attempt with the worst, and in a second call the next two with each other; the
    best and the worst alone; or every attempt in one call (as published)."""
    reflection_chars: int = Field(default=64_000, ge=4_000, le=10_000_000)
    """Most characters of the attempts in one reflection. What does not fit is condensed, by one call for each of the two
    attempts that are contrasted."""
    learn_from: Literal["mixed", "failures_too"] = "mixed"
    """``failures_too``: groups in which all attempts fail are held against the reference answer. Lessons from them count
    nothing until a group with different rewards says the same."""
    show_ground_truth: bool = True
    """Show the reference answer to the reflecting model (never to an actor)."""
    lessons_per_group: int = Field(default=2, ge=1, le=8)
    """Most lessons one group may propose."""
    measured_share: Fraction = 0.15
    """Attempts that measure the effects of single lessons, as a share of those of learning epochs and sweep; a third of it once
    lessons are proven better than none. 0: none."""
    capacity_factor: float = Field(default=4.0, ge=1.0, le=10.0)
    """Most known lessons as a multiple of the pack's experience slots; those of which least is known are forgotten."""
    edit_budget: int = Field(default=12, ge=1, le=1_000)
    """Operations one curation may apply in epoch 1; shrinks in proportion to the epochs left."""
    min_reward: float = 0.0
    """Reward that the best attempt of a group must exceed for a *do* lesson."""
    min_rank: Fraction = 0.5
    """Relative rank that the best attempt must reach for a lesson."""
    max_repairs: int = Field(default=2, ge=0, le=10)
    """Most repair calls for one structured answer; then a deterministic rule decides."""
    seed: int = option(0, flag="--seed", env="TFGRPO_SEED", ge=0)
    """Seed of every random choice of a run, together with the night."""
    night: int | None = Field(default=None, ge=0, le=1_000_000)
    """Nights of the task before this one. None: as many as its gate has decided. Learning continues where they ended."""
    half_night: bool | None = None
    """Take half of the items, in every epoch and the sweep. None: if the night before found that the library is saturated."""
    concurrency: int = option(32, flag="--concurrency", env="TFGRPO_CONCURRENCY", ge=1, le=MAX_CONCURRENCY)
    """Most concurrent actors; a group must fit into it."""
    max_lost_share: Fraction = 0.5
    """Share of a batch's rollouts that may fail, or stay ungraded because a rewarder failed, before the run stops. Also the
    share of an epoch's reflections and curations without a usable answer, once there are three of those."""
    allow_zero: bool = option(False, flag="--allow-zero")
    """Go on when no attempt of the first batch has a reward above the lowest. Off: the run stops there, and shows three of
    them beside their references."""
    schedule: ScheduleSettings = ScheduleSettings()
    retrieval: RetrievalSettings = RetrievalSettings()

    def lessons_of(self, contrasts: int) -> int:
        """Return how many lessons each of so many contrasts of a group may propose."""
        return max(1, self.lessons_per_group // contrasts)

    def seed_of(self, phase: Literal["train", "eval", "measure"]) -> int:
        """Return the seed of a phase: another one every night; of the sweep only from learning rules 4 on (``RunContext``)."""
        return derive_seed(self.seed, "night", self.night) if self.night and phase != "eval" else self.seed

    def items_of(self, population: int) -> int:
        """Return how many items an epoch takes of so many: at most ``sample_size``, and half of these in a half night."""
        size = min(self.sample_size, population)
        return size // 2 or size if self.half_night else size

    @property
    def actors_per_item(self) -> int:
        """The group size, or one when the feature flag is off (requirement 58)."""
        return self.group_size if self.enabled else 1

    @property
    def instance_bounds(self) -> tuple[int, int]:
        """Fewest and most actors of a group; the group size where absent (requirement 48)."""
        low, high = self.schedule.min_instances, self.schedule.max_instances
        return self.group_size if low is None else low, self.group_size if high is None else high


class GateSettings(Section):
    """Conditions for promoting the candidate library."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Coverage of the anytime-valid interval of the paired difference; a promotion needs evidence of 1 / (1 - confidence)."""
    group_size: int = Field(default=5, ge=1, le=MAX_GROUP_SIZE)
    """Attempts of each library at a held-out item."""
    patience_nights: int = Field(default=10, ge=1, le=MAX_EPOCHS)
    """Nights without a proof after which the evidence so far is given up and starts anew."""
    max_lost_share: Fraction = 0.2
    """Share of pairs that may be lost before the gate abstains."""
    max_regressions: Fraction = 0.1
    """Share of items that may flip from always right to always wrong."""
