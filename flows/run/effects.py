"""Effects of the lessons of a task, from the groups that measured them; effects are shares of the range of the reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tfgrpo.rewarders.statistics.effects import Effect, MeasuredGroup, lesson_effects
from tfgrpo.stores.experiences.library import nights_before, promotions
from tfgrpo.stores.experiences.measured import MeasuredLine, read_measured
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.shapes import estimated_tokens

MOST_LESSONS: Final = 14
"""Lessons that are measured together."""
_MEMORY: Final = 44
"""Nights after which a measurement weighs less than a hundredth."""


def effects_of(lines: Iterable[MeasuredLine], night: int) -> dict[str, Effect]:
    """Return the effect of every lesson that was measured, by id, as of a night."""
    groups = [
        MeasuredGroup(
            frozenset(line.drawn),
            frozenset(line.complement),
            tuple(reward / line.spread for reward in line.with_drawn),
            tuple(reward / line.spread for reward in line.with_complement),
            line.night,
        )
        for line in lines
        if 0 <= night - line.night <= _MEMORY
    ]
    return lesson_effects(groups, night)


def task_effects(paths: TaskPaths, *, simulated: bool) -> dict[str, Effect]:
    """Return the effects as of now, for the model that measured last. Raises ``CorruptFile``."""
    lines = [line for line in read_measured(paths.measured) if line.simulated == simulated]
    # ``tfgrpo.night`` may be set, to a later one than the decisions count.
    night = max(nights_before(promotions(paths.promotions)), *(line.night for line in lines)) if lines else 0
    return effects_of((line for line in lines if line.model == lines[-1].model), night)


def most_uncertain(
    entries: Sequence[ExperienceRecord], effects: Mapping[str, Effect], most: int = MOST_LESSONS
) -> tuple[ExperienceRecord, ...]:
    """Return at most so many lessons in their order: those never measured first, then those of the widest interval."""
    errors = [effects[one.experience_id].sd if one.experience_id in effects else float("inf") for one in entries]
    chosen = sorted(range(len(entries)), key=lambda number: -errors[number])[:most]
    return tuple(entries[number] for number in sorted(chosen))


def sum_of_effects(
    before: Iterable[ExperienceRecord], after: Iterable[ExperienceRecord], effects: Mapping[str, Effect]
) -> float | None:
    """Return what a change of the library should bring if effects add up; None unless a lesson of it was measured."""
    old, new = ({one.experience_id for one in library} for library in (before, after))
    known = [name for name in sorted(old ^ new) if name in effects]
    return sum(effects[name].mean * (1 if name in new else -1) for name in known) if known else None


def effect_json(effect: Effect | None) -> dict[str, Any] | None:
    """Return the effect with its interval of 95 %; None for a lesson that was not measured."""
    if effect is None:
        return None
    found = effect.interval()
    return {
        "estimate": effect.mean,
        "low": found.low,
        "high": found.high,
        "rollouts": effect.rollouts,
        "harm": effect.harm,
    }


def effect_text(effect: Effect | Mapping[str, Any] | None) -> str:
    """Return the effect in points, a hundredth of the range each, with its interval; a dash if it was not measured."""
    known = effect_json(effect) if isinstance(effect, Effect) else effect
    if known is None:
        return "–"
    low, high = (f"{100 * known[bound]:+.1f}" for bound in ("low", "high"))
    return f"{100 * known['estimate']:+.1f} points ({low} … {high}), {known['rollouts']:,} rollouts"


def measured_json(record: ExperienceRecord, effect: Effect | None) -> dict[str, Any]:
    """Return what a lesson was measured to do, and what it costs in each prompt."""
    return {"effect": effect_json(effect), "tokens": lesson_tokens(record)}


def lesson_tokens(record: ExperienceRecord) -> int:
    """Return the tokens that a lesson adds to each prompt, estimated by the length of its line."""
    return estimated_tokens(f"- {record.polarity}: {record.summary32}\n")
