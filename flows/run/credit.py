"""Read what a task knows of its lessons, and phrase it: the same figures for commands, pages and manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any, Final, NamedTuple

from tfgrpo.flows.run.index import nights_begun, runs_of
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.statistics.credit import RULES, Effect
from tfgrpo.rewarders.statistics.summary import mean_and_error
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.credit import CreditLine, Row, read_credit
from tfgrpo.stores.experiences.decisions import WAY_OUT, Decision, in_force, kept_out, lost_credit, read_decisions
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import CONFIDENCE, signed
from tfgrpo.tasks.learning.credit import Credit, KnownLesson, Memory, credit_of
from tfgrpo.tasks.shapes import estimated_tokens

_ID_DIGITS: Final = 16


def conditions_of(plan: Plan) -> str:
    """Return the digest of what differences are measured under: model, kind of actor, pack, rewarders with their models.

    Sweeps under another pack were of lessons that its stamp has ended: they say nothing about those that come after.
    """
    names = ("name", "weight", "options", "score_range")
    under = {
        "model": plan.models.name,
        "actor": plan.settings.actor.kind,
        "pack": plan.pack.manifest.stamp,
        "rewarders": [each.model_dump(mode="json", include=set(names)) for each in plan.settings.rewarders],
        "judges": plan.models.judges,
    }
    return sha256_hex(canonical_json(under))[:_ID_DIGITS]


def memory_of(
    store: ExperienceStore,
    lines: Sequence[CreditLine],
    decisions: Sequence[Decision],
    *,
    simulated: bool,
    night: int,
    slots: int,
    conditions: str | None = None,
    in_force_ids: Sequence[str] | None = None,
) -> Memory:
    """Return what a task knows about one kind of model, with only the lessons whose stamps verify.

    ``conditions`` None: those of the newest row. ``in_force_ids`` None: what the decisions say is in force.
    """
    lines = [line for line in lines if line.simulated == simulated]
    if in_force_ids is None:
        last = in_force(decisions, simulated=simulated)
        in_force_ids = last.experience_ids if last else ()
    if conditions is None:
        conditions = next((line.conditions for line in reversed(lines) if isinstance(line, Row)), "")
    named = {
        name
        for line in lines
        for name in ((*line.one, *line.other) if isinstance(line, Row) else (line.experience_id,))
    }
    records: dict[str, ExperienceRecord] = {}
    for record in filter(store.verify_stamp, store.find([*named, *in_force_ids])):
        records.setdefault(record.experience_id, record)
    return Memory(
        records=tuple(records.values()),
        lines=tuple(lines),
        night=night,
        conditions=conditions,
        slots=slots,
        in_force=tuple(in_force_ids),
        kept_out=kept_out(decisions, simulated=simulated),
    )


def credit_lines(paths: TaskPaths) -> list[CreditLine]:
    """Return all credit of a task. Raises ``CorruptFile``, too if some is lost: the figures would be others."""
    if lost := lost_credit(paths.promotions):
        raise CorruptFile(f"{lost}; accepted: {WAY_OUT}")
    return read_credit(paths.credit)


def task_credit(paths: TaskPaths, store: ExperienceStore, *, simulated: bool) -> Credit:
    """Return what a task knows of its lessons as of now, for commands and pages. Raises ``CorruptFile``."""
    decisions, lines = list(read_decisions(paths.promotions)), credit_lines(paths)
    # ``tfgrpo.night`` may be set, to a later one than there are.
    night = max((line.night for line in lines if line.simulated == simulated), default=0)
    night = max(night, nights_begun(paths, simulated=simulated) - 1)
    slots = (run.slots for run in runs_of(paths) if run.simulated == simulated and isinstance(run.slots, int))
    room = next(slots, RULES.most_on_trial)
    return credit_of(memory_of(store, lines, decisions, simulated=simulated, night=night, slots=room))


def effect_json(effect: Effect, attempts: int) -> dict[str, Any]:
    """Return an effect in points, with its interval of 95 % and the attempts behind it."""
    interval = effect.interval(attempts, CONFIDENCE)
    return {
        "mean": effect.mean,
        "low": interval.low,
        "high": interval.high,
        "likely": effect.likely,
        "attempts": attempts,
    }


def effect_text(effect: Mapping[str, Any] | None) -> str:
    """Return an effect of ``effect_json`` in words; a dash for none."""
    if effect is None:
        return "–"
    mean, low, high = (signed(effect[name]) for name in ("mean", "low", "high"))
    return f"{mean} points ({low} … {high}), {pluralize(effect['attempts'], 'attempt')}"


def lesson_json(lesson: KnownLesson, credit: Credit, in_force_ids: Sequence[str]) -> dict[str, Any]:
    """Return what is known of a lesson besides its record: its state, effect, words for and against, and tokens."""
    return {
        "state": lesson_state(lesson, credit, in_force_ids),
        "effect": effect_json(lesson.effect, lesson.attempts),
        "support": lesson.net,
        "groups_for": lesson.groups_for,
        "groups_against": lesson.groups_against,
        "nights": lesson.nights,
        "opposites": list(lesson.opposites),
        "kept_out": lesson.kept_out,
        "tokens": estimated_tokens(f"- {lesson.record.polarity}: {lesson.record.summary32}\n"),
    }


def lesson_state(lesson: KnownLesson, credit: Credit, in_force_ids: Sequence[str]) -> str:
    """Return ``in force``, ``kept out``, ``on trial`` or ``known``."""
    if not lesson.ids.isdisjoint(in_force_ids):
        return "in force"
    if lesson.kept_out:
        return "kept out"
    return "on trial" if lesson.record in credit.on_trial else "known"


class ProductionGain(NamedTuple):
    """Scores of conversations in production while one library was in force, with its lessons and without, by lot."""

    library: str
    lessons: int
    """Conversations with the lessons that have an outcome."""
    held_out: int
    mean_lessons: float | None
    mean_held_out: float | None
    gain: float | None
    low: float | None
    """Interval of 95 %, of the normal approximation; None with fewer than two conversations of a kind."""
    high: float | None

    def __str__(self) -> str:
        if self.gain is None:
            return (
                f"library {self.library}: {self.lessons} with lessons, {self.held_out} without; both kinds are needed"
            )
        interval = "" if self.low is None or self.high is None else f" (95 %: {self.low:+.3f} … {self.high:+.3f})"
        return (
            f"library {self.library}: {self.gain:+.3f}{interval}, {self.lessons} with lessons, {self.held_out} without"
        )


def production_gains(paths: TaskPaths) -> Iterator[ProductionGain]:
    """Yield the gain of each library that has outcomes. Raises ``CorruptFile``."""
    for library, (one, other) in _outcomes(paths).items():
        first, second = (mean_and_error(side) if side else None for side in (one, other))
        gain = first.mean - second.mean if first and second else None
        error = None if not first or not second or first.se is None or second.se is None else hypot(first.se, second.se)
        bounds = (None, None) if gain is None or error is None else (gain - 1.96 * error, gain + 1.96 * error)
        means = (first.mean if first else None, second.mean if second else None)
        yield ProductionGain(library, len(one), len(other), *means, gain, *bounds)


def production_rows(paths: TaskPaths) -> Iterator[Row]:
    """Yield a row for each library: of its outcomes that are in no row yet, once there are some with lessons and without.

    Its conditions are those of the newest row: the outcomes join what decides. Raises ``CorruptFile``.
    """
    known = {each.library_id: each for each in read_decisions(paths.promotions)}
    rows = [line for line in read_credit(paths.credit) if isinstance(line, Row)]
    for library, sides in _outcomes(paths).items():
        if (decision := known.get(library)) is None:
            continue
        used = [row for row in rows if row.source == "outcome" and row.item_id == library]
        one = sides[0][sum(len(row.rewards_one) for row in used) :]
        other = sides[1][sum(len(row.rewards_other) for row in used) :]
        alike = [row.conditions for row in rows if row.simulated == decision.simulated]
        if one and other and alike:
            yield Row(
                line_id=f"production/{library}/{len(used)}",
                run_id="production",
                night=max(0, nights_begun(paths, simulated=decision.simulated) - 1),
                source="outcome",
                item_id=library,
                one=decision.experience_ids,
                other=(),
                rewards_one=tuple(one),
                rewards_other=tuple(other),
                conditions=alike[-1],
                simulated=decision.simulated,
                created_at=utc_now(),
            )


def _outcomes(paths: TaskPaths) -> dict[str, tuple[list[float], list[float]]]:
    """Return the scores with lessons and without, by library, in the order in which they came."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for line in read_objects(paths.outcomes):
        if (library := str(line["library"])) != "none":
            found.setdefault(library, ([], []))[line["arm"] != "lessons"].append(float(line["score"]))
    return found
