"""One night of a task, read once from its files, and the history of all its nights.

What is in force and why, what changed, the cost, what to look at: terminal, report, Prefect, Python and ``--json``
render this one value. A field of a record that all of them show is one line of ``facts``. Lessons and messages may be a
model's words: a line is shown as text.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate, groupby, takewhile
from statistics import NormalDist
from textwrap import shorten
from typing import Any, Final, NamedTuple, Self

from tfgrpo.flows.console.figures import NOTHING, percent, plus_unknown, points, price_unknown, spending, used_shares, whole
from tfgrpo.flows.console.observer import EpochEnd, FirstBatch
from tfgrpo.flows.run.index import RunEntry, runs_of
from tfgrpo.flows.run.lessons import effect_text
from tfgrpo.pipelines.plan.forecast import CountRange
from tfgrpo.rewarders.statistics.credit import RULES
from tfgrpo.stores.errors import ModelNotFound
from tfgrpo.stores.experiences.decisions import Decision, in_force, nights_unchanged, read_decisions, sealed_tests
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths, display_path
from tfgrpo.stores.ledger import NO_PRICE, Totals
from tfgrpo.stores.numeric import two_digits
from tfgrpo.stores.runs import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import sentence_of

COLUMNS: Final = ("no.", "date (UTC)", "decision", "gain (95 %)", "lessons", "calls", "cost", "run", "besides")
"""Columns of the history; *besides* has a person's reasons, an early end, and what model, pack or dataset is new."""
# Nights in the picture, the newest.
_MOST: Final = 60
_LABELS: Final = 20
_GRID_LINES: Final = 6
MOST_LINES: Final = 10
_EXCERPT_CHARS: Final = 60
# Below it the same items come every night.
_FEW_ITEMS: Final = 200
_FEW_CONFIRM: Final = 0.2
_FEW_DIFFER: Final = 0.1
_ENOUGH_PROPOSALS: Final = 10
# Probability to help from which on a lesson needs no slot but the pack's.
_SURE: Final = NormalDist().cdf(RULES.sure)
_EPOCH_FIELDS: Final = frozenset(each.name for each in fields(EpochEnd))
_JSON: Final = ("verdict", "headline", "about", "added", "removed", "in_force", "since", "nights_unchanged", "look", "next")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history: a night, or what a person changed."""

    run_id: str
    """For a person's change, what it does and the number of its line."""
    at: datetime
    """When it was decided; of a run without a decision, when it began."""
    outcome: str
    """The decision; of a run without one, how it ended."""
    why: str
    """The figures of a night, the reasons of a person, or how a run without a decision ended."""
    simulated: bool
    number: int | None = None
    """Number of the decision's line, from 1: what ``tfgrpo experiences rollback`` takes. None where nothing was decided."""
    night: int | None = None
    """Number of the night of its kind of model, by its start, from 1; None for a person's word."""
    decision: Decision | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    run: RunEntry | None = None
    """None for a person's word, and for a run whose files are gone."""
    news: tuple[str, ...] = ()
    """Model, pack and dataset, where they are others than in the run before."""

    @property
    def lessons(self) -> int | None:
        """Lessons in force from then on; None for a run that decided nothing."""
        return len(self.decision.experience_ids) if self.decision else None

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row in a table with ``COLUMNS``."""
        one, ledger = self.decision, self.run.ledger if self.run else None
        outcome = f"{self.outcome}{', proven' if one and one.proven else ''}"
        total = one.total if one else None
        if one and one.overtaken:  # its figures are not those of what is in force
            outcome, total = "decided nothing (overtaken)", None
        return (
            "" if self.number is None else str(self.number),
            f"{self.at:%Y-%m-%d %H:%M}",
            f"{outcome}{' (SIMULATED)' if self.simulated else ''}",
            points(total),
            f"{self.lessons} (+{len(self.added)} −{len(self.removed)})" if one else NOTHING,
            whole(ledger.calls if ledger else None),
            spending(ledger) if ledger else NOTHING,
            self.run_id,
            "; ".join(filter(None, (*([] if one and one.ends_night else [self.why]), *self.news))),
        )


def changes_of(decisions: Iterable[Decision]) -> Iterator[HistoryEntry]:
    """Yield what each decision changed in what was in force before, for simulated and real models apart."""
    before: dict[bool, tuple[str, ...]] = {}
    nights = {True: 0, False: 0}
    for number, one in enumerate(decisions, start=1):
        old, new = before.get(one.simulated, ()), one.experience_ids
        before[one.simulated] = new
        nights[one.simulated] = one.night or nights[one.simulated] + one.ends_night
        names = {reason: name for name, reason in reversed(one.reasons.items())}  # the newest of several wordings
        reasons = [f"{name}: {reason}" for reason, name in names.items()]
        why = "; ".join(filter(None, (*reasons, one.why, one.who and f"by {one.who}"))) or "without a reason"
        yield HistoryEntry(
            one.run_id,
            one.decided_at,
            one.decision,
            sentence_of(one) if one.ends_night else why,
            one.simulated,
            number,
            nights[one.simulated] if one.ends_night else None,
            one,
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
        )


def history_of(task: TaskPaths) -> list[HistoryEntry]:
    """Return every run of a task and every person's change of its library, the oldest first. Raise ``CorruptFile``."""
    runs = {run.run_id: run for run in reversed(runs_of(task))}
    news, last_used = dict[str, tuple[str, ...]](), dict[tuple[bool, str], str]()
    for run in runs.values():
        used = {(bool(run.simulated), name): one for name in ("model", "pack") if (one := getattr(run, name)) is not None}
        others = [f"{key[1]} {one}" for key, one in used.items() if last_used.get(key, one) != one]
        news[run.run_id] = (*others, *filter(None, [run.items_changed]))
        last_used |= used
    entries = [replace(each, run=runs.pop(each.run_id, None)) for each in changes_of(read_decisions(task.promotions))]
    # Decisions stay in their order, also those that a clock ahead of time dates after the next.
    moments = [each.at for each in entries]
    placed = dict(enumerate([*accumulate(reversed(moments), min)][::-1], start=1))
    for run in runs.values():
        about = (run.message or "", bool(run.simulated), None, run.night)
        entries.append(HistoryEntry(run.run_id, run.started_at, run.state, *about, run=run))
    named = (replace(each, news=news.get(each.run_id, ())) for each in entries)
    return sorted(named, key=lambda each: placed.get(each.number or 0, each.at))


class Scale(NamedTuple):
    """Linear scale: maps the values ``low`` to ``high`` to the positions ``start`` to ``end`` of an axis."""

    low: float
    high: float
    start: float
    end: float
    step: float = 1.0

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 2)

    @property
    def lines(self) -> list[float]:
        """Values for the grid lines."""
        return [self.low + self.step * number for number in range(round((self.high - self.low) / self.step) + 1)]


def picture(entries: Iterable[HistoryEntry]) -> dict[str, Any] | None:
    """Return what the picture of the newest nights is drawn from; None for fewer than two nights with a gain."""
    nights = [each for each in entries if each.decision is not None and each.decision.ends_night]
    shown = nights[-_MOST:]
    # A night is drawn in the middle of its stretch of the axis.
    gains = [(index + 0.5, each.decision.total) for index, each in enumerate(shown) if each.decision]
    drawn = [gain for _, gain in gains if gain is not None]
    if len(drawn) < 2:
        return None
    return {
        "nights": shown,
        "bands": [list(band) for has_gain, band in groupby(gains, lambda each: each[1] is not None) if has_gain],
        "every": -(-len(shown) // _LABELS),
        "x": Scale(0, len(shown), 66, 708),
        "y": round_scale(min(0.0, *(gain.low for gain in drawn)), max(1.0, *(gain.high for gain in drawn))),
        "earlier": len(nights) - len(shown),
    }


def round_scale(low: float, high: float) -> Scale:
    """Return a scale of a few round steps from below ``low`` to above ``high``, which differ."""
    least = (high - low) / _GRID_LINES
    unit = 10.0 ** math.floor(math.log10(least))
    step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= least)
    # An axis of a picture goes down: the lowest value has the greatest position.
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, 216, 26, step)


class PageLine(NamedTuple):
    """One line of the morning page."""

    label: str
    text: str


@dataclass(frozen=True)
class Night:
    """A run, and the history of its task up to it."""

    task: TaskPaths
    run: RunPaths
    manifest: Mapping[str, Any]
    decisions: Sequence[Decision]
    """About this kind of model, up to the run's own; of a run without one, up to its end."""
    before: tuple[str, ...]
    in_force: tuple[str, ...]
    """Ids of the lessons in force before the run, and after it."""
    texts: Mapping[str, str]

    @classmethod
    def of(cls, task: TaskPaths, run: RunPaths, store: ExperienceStore | None = None) -> Self:
        """Return the night of a run. ``store``: that of the task, where it is open already. Raise ``CorruptFile``."""
        with expected_shape(run.root):
            unwritten = {"run_id": run.root.name, "task_id": task.root.name, "status": "running"}
            manifest = {**unwritten, **ManifestFile(run.manifest).read()}
            simulated, ended = bool(manifest.get("simulated")), manifest.get("ended_at")
            every = [one for one in read_decisions(task.original().promotions) if one.simulated == simulated]
            earlier = [*takewhile(lambda one: one.run_id != manifest["run_id"], every)]
            decisions = every[: len(earlier) + 1]
            if len(earlier) == len(every) and ended is not None:  # it decided nothing
                decisions = earlier = [one for one in every if one.decided_at <= datetime.fromisoformat(ended)]
            before, now = (one.experience_ids if one else () for one in map(in_force, (earlier, decisions)))
            wanted = {*before, *now, *(manifest.get("tfgrpo") or {}).get("on_trial", ())}
            records = (store or ExperienceStore(task.experiences, approved={})).find(wanted)
            if task.original() is not task:
                records += ExperienceStore(task.original().experiences, approved={}).find(wanted)
            # Of several records with one id the first counts.
            texts = {one.experience_id: f"{one.polarity}: {one.summary32}" for one in reversed(records)}
            night = cls(task, run, manifest, decisions, before, now, texts)
            night.as_json()  # values of another shape fail here, where their file is known
            return night

    def block(self, *path: str) -> Mapping[str, Any]:
        """Return a part of the manifest; empty where an unfinished one lacks it."""
        part = self.manifest
        for name in path:
            part = part.get(name) or {}
        return part

    @cached_property
    def history(self) -> list[HistoryEntry]:
        """The nights of this kind of model and the changes by people, up to this one."""
        simulated = bool(self.manifest.get("simulated"))
        every = [each for each in history_of(self.task.original()) if each.simulated == simulated]
        return every[: len([*takewhile(lambda each: each.run_id != self.run_id, every)]) + 1]

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.manifest["run_id"])

    @property
    def replayed(self) -> bool:
        """Whether it is a replay of a run."""
        return self.task.original() is not self.task

    @property
    def decision(self) -> Mapping[str, Any]:
        """The decision with its figures; empty for a run that decided nothing."""
        return self.block("decision")

    @property
    def verdict(self) -> str:
        """What was decided, or the status of a run that ended otherwise."""
        status = str(self.manifest["status"])
        return str(self.decision["decision"]) if self.decision and status == "finished" else status

    @property
    def added(self) -> tuple[str, ...]:
        """Ids of the lessons that came into force."""
        return tuple(name for name in self.in_force if name not in self.before)

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids of the lessons that left."""
        return tuple(name for name in self.before if name not in self.in_force)

    @property
    def since(self) -> str | None:
        """Run of the decision since which these lessons are in force; None for no lessons."""
        return self._origin.run_id if self._origin and self.in_force else None

    @property
    def nights_unchanged(self) -> int:
        """Nights up to this one that left what is in force as it was."""
        return 0 if self.added or self.removed else nights_unchanged(self.decisions)

    @cached_property
    def facts(self) -> tuple[PageLine, ...]:
        """What the page says between its headline and what to look at."""
        lines = (
            PageLine("changed", self._changed()),
            PageLine("held out", self._held_out()),
            PageLine("since", self._since()),
            PageLine("cost", self._cost()),
            PageLine("learned", self._learned()),
        )
        return tuple(line for line in lines if line.text)

    @cached_property
    def look(self) -> tuple[str, ...]:
        """Everything to look at, the most important first."""
        return tuple(self._look())

    @property
    def shown(self) -> int:
        """How much of ``look`` is among the lines: what headline, facts, report and next command leave of ten."""
        return MOST_LINES - len(self.facts) - 3

    @property
    def lines(self) -> tuple[PageLine, ...]:
        """The morning page, at most ten lines."""
        shown = list(self.look[: self.shown])
        if not shown and self.verdict not in {"stopped", "failed"}:
            shown = ["nothing out of the ordinary"]
        if more := len(self.look[self.shown :]):
            shown[-1] += f" (and {more} more in the report)"
        look = [PageLine("look at", text) for text in shown]
        ends = (PageLine("report", display_path(self.run.report)), PageLine("next", self.next))
        return (PageLine("night", f"{self.headline} ({self.about})"), *self.facts, *look, *ends)

    def as_json(self) -> dict[str, Any]:
        """Return the page as JSON, with its lines."""
        lines = [line._asdict() for line in self.lines]
        return {name: getattr(self, name) for name in _JSON} | {"report": str(self.run.report), "lines": lines}

    @property
    def _origin(self) -> Decision | None:
        same = [*takewhile(lambda one: one.experience_ids == self.in_force, reversed(self.decisions))]
        return same[-1] if same else None

    @property
    def _tested(self) -> bool:
        mine = self.in_force, bool(self.manifest.get("simulated"))
        return any((one.experience_ids, one.simulated) == mine for one in sealed_tests(self.task.original().tests))

    @property
    def _sealed(self) -> int:
        return int(self.block("dataset").get("sealed", 0)) if self.in_force and not self._tested else 0

    def _named(self, ids: Sequence[str], few: int) -> str:
        lessons = self.block("tfgrpo", "lessons")
        ids = sorted(ids, key=lambda name: -lessons[name]["effect"]["mean"] if name in lessons else 0.0)
        texts = (
            f"“{shorten(self.texts.get(name, name), _EXCERPT_CHARS, placeholder=' …')}”"
            + (f", {lessons[name].get('kept_out') or effect_text(lessons[name]['effect'])}" if name in lessons else "")
            for name in ids[:few]
        )
        return "; ".join([*texts, *([f"and {len(ids) - few} more"] if len(ids) > few else [])])

    @cached_property
    def headline(self) -> str:
        """The decision with its figures, or how the run ended."""
        message = self.manifest.get("message") or "under way, or its process was killed"
        if self.verdict == self.manifest["status"]:
            return f"{self.verdict.capitalize()}: {message}"
        sentence: str = self.decision["sentence"]
        # What a message says before the decision, such as that a replay agrees.
        beyond, decided, _ = message.partition(f"; {sentence}")
        return f"{sentence}; {beyond}" if decided else sentence

    @cached_property
    def about(self) -> str:
        """Which night, task, run and model."""
        run_id, task_id = self.run_id, self.task.original().root.name
        number = self.manifest.get("night")
        which = f"night {number} of {task_id}" if number else task_id
        marks = (("replayed", self.replayed), ("SIMULATED model", self.manifest.get("simulated")))
        return ", ".join([which, f"run {run_id}", *(text for text, marked in marks if marked)])

    def _changed(self) -> str:
        on_trial = tuple(name for name in self.block("tfgrpo").get("on_trial", ()) if name not in self.in_force)
        parts = ((self.added, "new"), (self.removed, "left"), (on_trial, "on trial"))
        # A single kind of change has room for two texts.
        few = 2 if sum(bool(ids) for ids, _ in parts) == 1 else 1
        force = f"{pluralize(len(self.in_force), 'lesson')} in force"
        changes = [f"{len(ids)} {what}: {self._named(ids, few)}" for ids, what in parts if ids]
        return ". ".join([force if self.added or self.removed else f"nothing, {force}", *changes])

    def _held_out(self) -> str:
        decision = self.decision
        if not decision:
            return "" if self.verdict == "finished" else "unknown: the sweep did not end"
        lessons, none = (decision["rewards"].get(arm) for arm in ("library", "none"))
        if not lessons or not none:
            return "no item was compared"
        over = pluralize(decision["pairs"], "item")
        if not decision["pairs"]:  # their rows are left out, or no item has a reward on both sides
            over = f"{pluralize(decision['swept'], 'item')}, which count for nothing"
        rewards = f"reward {lessons['mean']:.3f} with lessons, {none['mean']:.3f} without, over {over}"
        if self.block("dataset").get("learn", _FEW_ITEMS) >= _FEW_ITEMS or self._tested:
            return rewards
        about = "the same items come every night, so this is about them"
        return f"{rewards}; {about}: for others `tfgrpo test` on a sealed share is the proof"

    def _since(self) -> str:
        origin, still = self._origin, self.block("saturated").get("explanation")
        if origin is None or (not self.in_force and origin is self.decisions[0]):
            since = "nothing was in force yet: prompts carry no lessons"
            if bounds := self.block("forecast", "gain").get("five_nights"):
                ends = " to ".join(dict.fromkeys("over 100" if each is None else two_digits(each) for each in bounds))
                since += f". A gain of {ends} points would be in force within five nights (80 % probability)"
        elif origin.run_id == self.run_id:
            since = "this night"
        elif origin.ends_night:
            since = f"the night of {origin.decided_at:%Y-%m-%d}, run {origin.run_id}"
        else:
            since = f"a person's {origin.decision} on {origin.decided_at:%Y-%m-%d}, {origin.run_id}"
        if self.nights_unchanged and self.in_force and not still:
            still = f"unchanged for {pluralize(self.nights_unchanged, 'night')}"
        return f"{since}; {still}" if still else since

    def _cost(self) -> str:
        if not self.block("ledger"):
            return "unknown: the run has not closed its books"
        totals = Totals.from_json(self.manifest["ledger"])
        ahead, caps = self.block("forecast", "calls"), self.block("settings", "budget")
        foreseen = f" (forecast {CountRange(**ahead).phrase()})" if ahead else ""
        at_risk = f" and up to {totals.at_risk_tokens:,} of unknown usage" if totals.at_risk_tokens else ""
        parts = [plus_unknown(pluralize(totals.calls, "call"), totals) + foreseen]
        if at_risk or not price_unknown(totals):  # else the price names them
            parts.append(plus_unknown(pluralize(totals.tokens, "token"), totals) + at_risk)
        least = "at least " if totals.unmeasured_attempts else ""
        used = used_shares(totals, caps, self.manifest["ledger"].get("task_usd"))
        shares = [f"{least}{percent(share)} of budget.{name}" for name, share in used.items()]
        wanted = ["set model.prices"] if price_unknown(totals) else []
        return ", ".join([*parts, "; ".join([spending(totals), *wanted]), *shares])

    def _learned(self) -> str:
        became = Counter(self.block("tfgrpo", "proposals"))
        if not became.total():
            return ""
        known = f"{became['confirmed']} confirmed and {became['contradicted']} contradicted a known lesson"
        others = f"{became['new']} said something new, {became['useless']} useless"
        refused = f", {became['refused']} refused" if became["refused"] else ""
        return f"{pluralize(became.total(), 'proposal')}: {known}, {others}{refused}"

    def _look(self) -> Iterator[str]:
        """Yield a first batch that teaches nothing, losses, what the night noted, sealed items, warnings."""
        if first := self.block("first_batch"):
            yield str(FirstBatch.from_json(first))
        rows = self.block("tfgrpo").get("epochs", ())
        ends = [EpochEnd(**{name: row[name] for name in _EPOCH_FIELDS if name in row}) for row in rows]
        attempts = self.block("tfgrpo", "lost")
        if lost := attempts.get("rollouts"):
            made = attempts["of"]
            yield f"{lost:,} of {pluralize(made, 'rollout')} lost ({100 * lost / made:.1f} %), most often {attempts['mostly']}"
        if broken := sum(end.learning_lost for end in ends):
            steps = sum(end.learning_asked for end in ends)
            yield f"{broken:,} of {pluralize(steps, 'learning step')} lost ({100 * broken / steps:.1f} %)"
        learned, size = [end for end in ends if end.phase == "train"], self.block("settings", "tfgrpo").get("group_size")
        groups = sum(end.scored + end.lost for end in learned) // size if size else 0
        if (differ := sum(end.informative for end in learned)) < _FEW_DIFFER * groups:
            few = f"{differ} of {pluralize(groups, 'group')} had a difference to learn from"
            more = "a higher tfgrpo.temperature.train or a larger tfgrpo.group_size finds more"
            yield f"attempts at an item end alike: {few}; {more}"
        counts, screened = Counter(self.block("tfgrpo", "proposals")), self.block("tfgrpo", "screened")
        made, confirmed = counts.total(), counts["confirmed"]
        total = made - counts["refused"]
        if made >= _ENOUGH_PROPOSALS and 3 * (refused := sum(screened.values())) > made:
            mostly = max(screened, key=screened.__getitem__)
            yield f"{refused} of {made} proposed lessons were refused by the screening, mostly: {mostly}"
        # In a first night nothing is known that could be confirmed.
        if self.manifest.get("night") != 1 and total >= _ENOUGH_PROPOSALS and confirmed < _FEW_CONFIRM * total:
            few = f"only {confirmed}" if confirmed else "none"
            yield (
                f"{few} of {total} proposals confirmed a known lesson: reflections may see little in the attempts; "
                "a stronger model.reflection.name may see more"
            )
        yield from self.decision.get("notes", ())
        slots, lessons = self.block("pack").get("slots"), self.block("tfgrpo", "lessons")
        carried = {name for name, each in lessons.items() if each["state"] in {"in force", "on trial"}}
        likely = [each for each in lessons.values() if each["state"] == "known" and each["effect"]["likely"] > _SURE]
        waiting = sum(not carried & {*each["opposites"]} for each in likely)  # for want of slots alone
        if waiting and len(carried) >= (slots or math.inf):
            yield (
                f"{pluralize(waiting, 'more lesson')} probably helpful, and without room: the pack has {slots} slots, "
                "its experience_slots"
            )
        if silent := self.block("ledger").get("silent_calls"):
            yield (
                f"{pluralize(silent, 'answered call')} reported no usage: against the caps each counts as the most that it may "
                "have used, far more than it did; of such an endpoint only budget.max_calls is exact"
            )
        if self._sealed:
            yield f"the lessons in force were not tested on the {pluralize(self._sealed, 'sealed item')} yet"
        # The manifest has these sentences among its warnings, too.
        already = {*self.decision.get("notes", ()), *(warning for end in ends for warning in end.warnings)}
        yield from (text for text in self.manifest.get("warnings", ()) if text not in already)

    @cached_property
    def next(self) -> str:
        """Command to type next."""
        options, run_id = task_options(self.task.original()), self.run_id
        message = str(self.manifest.get("message"))
        if self.block("first_batch").get("stops") or message.startswith((f"{ModelNotFound.__name__}: ", NO_PRICE)):
            return f"tfgrpo report {run_id} {options}"  # the same run would stop there again
        if self.verdict in {"stopped", "failed", "running"}:
            if self.replayed:  # a replay is made anew
                return f"tfgrpo run --replay {run_id} {options}"
            return f"tfgrpo run --resume {run_id} {options}{''.join(self._higher_caps())}"
        if self._sealed:
            return f"tfgrpo test {options}"
        if self.in_force:
            return f"tfgrpo experiences export {options}"
        return f"tfgrpo {'experiences review' if self.block('tfgrpo', 'lessons') else 'history'} {options}"

    def _higher_caps(self) -> Iterator[str]:
        """Yield twice what was reached or is likely, once a cap was."""
        # Not the most that the run may need, which is many times as much.
        ahead, caps, message = self.block("forecast"), self.block("settings", "budget"), f" {self.manifest.get('message')}"
        reached = [name for name in caps if f" {name} " in message]
        likely = {
            "max_calls": ahead["calls"]["likely"] if ahead else 0,
            "max_tokens": sum(ahead[kind]["likely"] for kind in ("prompt_tokens", "completion_tokens") if kind in ahead),
            "max_usd": math.ceil(100.0 * ahead["usd"]["likely"]) / 100.0 if ahead.get("usd") else 0.0,
        }
        for name, cap in caps.items() if reached else ():
            needed = likely[name.removeprefix("task_")]
            if cap is not None and (name in reached or cap < needed):
                yield f" --set budget.{name}={2 * max(cap, needed)}"


def task_options(task: TaskPaths) -> str:
    """Return the options that name a task on the command line."""
    out = display_path(task.root.parent)
    return f"--task-id {task.root.name}" + ("" if out == "out" else f" --out {shlex.quote(out)}")
