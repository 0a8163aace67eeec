"""What a person should know of a night in at most ten lines: what is in force and why, what changed, the cost, what to look at.

Made from the records of the run and its task alone, so that terminal, report, Prefect and ``--json`` say the same. Lessons
and messages may hold a model's words: whoever shows a line treats it as text.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from textwrap import shorten
from typing import Any, Final, NamedTuple

from tfgrpo.flows.console.figures import plus_unknown, price_unknown, spending
from tfgrpo.flows.console.observer import EpochEnd, FirstBatch
from tfgrpo.flows.report.calibration import told
from tfgrpo.flows.report.nights import decisions_until
from tfgrpo.flows.run.credit import effect_text
from tfgrpo.pipelines.plan.forecast import Counts
from tfgrpo.stores.experiences.decisions import Decision, in_force, nights_unchanged
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.experiences.tests import sealed_tests
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger.state import NANO, Totals
from tfgrpo.stores.numeric import two_digits
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize

MOST_LINES: Final = 10
_EXCERPT_CHARS: Final = 60
_FEW_ITEMS: Final = 200
"""Below it the same items come every night."""
_FEW_CONFIRM: Final = 0.2
_ENOUGH_PROPOSALS: Final = 10
_EPOCH_FIELDS: Final = frozenset(each.name for each in fields(EpochEnd))

Json = Mapping[str, Any]


class Line(NamedTuple):
    """One line of the page."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Morning:
    """The morning page of one run."""

    verdict: str
    """What was decided, or the status of a run that ended otherwise."""
    headline: str
    about: str
    """Which night, task, run and model."""
    added: tuple[str, ...]
    """Ids of lessons that came into force."""
    removed: tuple[str, ...]
    in_force: tuple[str, ...]
    since: str | None
    """Run of the decision since which these lessons are in force; None for no lessons."""
    nights_unchanged: int
    facts: tuple[Line, ...]
    look: tuple[str, ...]
    """Everything to look at, the most important first."""
    report: str
    next: str
    """Command to type next."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The page, at most ten lines."""
        shown = list(self.look[: self.shown]) or ["nothing out of the ordinary"]
        if more := len(self.look[self.shown :]):
            shown[-1] += f" (and {more} more in the report)"
        look = [Line("look at", text) for text in shown]
        ends = (Line("report", self.report), Line("next", self.next))
        return (Line("night", f"{self.headline} ({self.about})"), *self.facts, *look, *ends)

    @property
    def shown(self) -> int:
        """How much of ``look`` is among the lines."""
        return MOST_LINES - len(self.facts) - 3

    def as_json(self) -> dict[str, Any]:
        """Return the page as JSON, with its lines."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "facts"}
        return {**own, "lines": [line._asdict() for line in self.lines]}


def morning_page(task: TaskPaths, run: RunPaths, store: ExperienceStore | None = None) -> Morning:
    """Return the page of a run. ``store`` finds lessons faster, by its index. Raises ``CorruptFile``."""
    with expected_shape(run.root):
        night = _Night.read(task, run, store or ExperienceStore(task.experiences, approved={}))
        facts = {
            "changed": _changed(night),
            "held out": _held_out(night),
            "since": _since(night),
            "cost": _cost(night),
            "learned": _learned(night),
            "judging": "; ".join(
                f"{judge}: {said}" for judge, said in told(night.block("tfgrpo", "calibration") or None)
            ),
        }
        return Morning(
            verdict=night.verdict,
            headline=_headline(night),
            about=_about(night),
            added=night.added,
            removed=night.removed,
            in_force=night.now,
            since=night.origin.run_id if night.origin and night.now else None,
            nights_unchanged=night.unchanged,
            facts=tuple(Line(label, text) for label, text in facts.items() if text),
            look=tuple(_look(night)),
            report=str(run.report),
            next=_next(night),
        )


@dataclass(frozen=True, slots=True)
class _Night:
    """Records of a run, and of its task up to its end."""

    task: TaskPaths
    manifest: Json
    decisions: Sequence[Decision]
    verdict: str
    decision: Json
    """Empty for a run that decided nothing."""
    before: tuple[str, ...]
    now: tuple[str, ...]
    """Ids of the lessons in force before the run, and after it."""
    texts: Mapping[str, str]

    @classmethod
    def read(cls, task: TaskPaths, run: RunPaths, store: ExperienceStore) -> _Night:
        manifest = {"run_id": run.root.name, "status": "running", **ManifestFile(run.manifest).read()}
        decision, learning = manifest.get("decision") or {}, manifest.get("tfgrpo") or {}
        decisions = decisions_until(task.original(), manifest)
        earlier = [*takewhile(lambda one: one.run_id != manifest["run_id"], decisions)]
        before, now = (one.experience_ids if one else () for one in map(in_force, (earlier, decisions)))
        wanted = {*before, *now, *learning.get("on_trial", ())}
        found = store.find(wanted)
        if task.original() is not task:
            found += ExperienceStore(task.original().experiences, approved={}).find(wanted)
        return cls(
            task=task,
            manifest=manifest,
            decisions=decisions,
            verdict=decision["decision"] if decision and manifest["status"] == "finished" else manifest["status"],
            decision=decision,
            before=before,
            now=now,
            texts={one.experience_id: f"{one.polarity}: {one.summary32}" for one in reversed(found)},
        )

    def block(self, *path: str) -> Json:
        """Return a part of the manifest; empty where an unfinished one lacks it."""
        found = self.manifest
        for name in path:
            found = found.get(name) or {}
        return found

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(name for name in self.now if name not in self.before)

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(name for name in self.before if name not in self.now)

    @property
    def origin(self) -> Decision | None:
        """The decision since which the same lessons are in force, or none."""
        same = [*takewhile(lambda one: one.experience_ids == self.now, reversed(self.decisions))]
        return same[-1] if same else None

    @property
    def unchanged(self) -> int:
        """Nights up to this one that left what is in force as it was."""
        return 0 if self.added or self.removed else nights_unchanged(self.decisions)

    @property
    def sealed(self) -> int:
        """Sealed items that the lessons in force were not tested on yet."""
        return int(self.block("dataset").get("sealed", 0)) if self.now and not self.tested else 0

    @property
    def tested(self) -> bool:
        """Whether the lessons in force were tested on sealed items."""
        mine = self.now, bool(self.manifest.get("simulated"))
        return any((one.experience_ids, one.simulated) == mine for one in sealed_tests(self.task.original().tests))

    def named(self, ids: Sequence[str], few: int) -> str:
        """Return the beginnings of the best lessons with their effects, and how many more there are."""
        lessons = self.block("tfgrpo", "lessons")
        ids = sorted(ids, key=lambda name: -lessons[name]["effect"]["mean"] if name in lessons else 0.0)
        texts = (
            f"“{shorten(self.texts.get(name, name), _EXCERPT_CHARS, placeholder=' …')}”"
            + (f", {lessons[name].get('kept_out') or effect_text(lessons[name]['effect'])}" if name in lessons else "")
            for name in ids[:few]
        )
        return "; ".join([*texts, *([f"and {len(ids) - few} more"] if len(ids) > few else [])])


def _headline(night: _Night) -> str:
    message = night.manifest.get("message") or "under way, or its process was killed"
    if night.verdict == night.manifest["status"]:
        return f"{night.verdict.capitalize()}: {message}"
    sentence: str = night.decision["sentence"]
    # What a message says before the decision, such as that a replay agrees.
    beyond, decided, _ = message.partition(f"; {sentence}")
    return f"{sentence}; {beyond}" if decided else sentence


def _about(night: _Night) -> str:
    run_id, task_id = night.manifest["run_id"], night.task.original().root.name
    nights = [one.run_id for one in night.decisions if one.ends_night]
    number = night.manifest.get("night") or (run_id in nights and nights.index(run_id) + 1)
    which = f"night {number} of {task_id}" if number else task_id
    marks = (
        ("replayed", night.task.original() is not night.task),
        ("SIMULATED model", night.manifest.get("simulated")),
    )
    return ", ".join([which, f"run {run_id}", *(text for text, marked in marks if marked)])


def _changed(night: _Night) -> str:
    on_trial = tuple(name for name in night.block("tfgrpo").get("on_trial", ()) if name not in night.now)
    parts = ((night.added, "new"), (night.removed, "left"), (on_trial, "on trial"))
    # A single kind of change has room for two texts.
    few = 2 if sum(bool(ids) for ids, _ in parts) == 1 else 1
    said = [f"{len(ids)} {what}: {night.named(ids, few)}" for ids, what in parts if ids]
    force = f"{pluralize(len(night.now), 'lesson')} in force"
    return ". ".join([force if night.added or night.removed else f"nothing, {force}", *said])


def _held_out(night: _Night) -> str:
    """Return the rewards of the sweep, and of few items that they are what the decision is about."""
    decision = night.decision
    if not decision:
        return "" if night.verdict == "finished" else "unknown: the sweep did not end"
    lessons, none = (decision["rewards"].get(arm) for arm in ("library", "none"))
    if not lessons or not none:
        return "no item was compared"
    over = pluralize(decision["pairs"], "item")
    said = f"reward {lessons['mean']:.3f} with lessons, {none['mean']:.3f} without, over {over}"
    learned = night.block("dataset").get("learn", _FEW_ITEMS)
    if learned < _FEW_ITEMS and not night.tested:
        said += "; the same items come every night, so this is about them: "
        said += "for others `tfgrpo test` on a sealed share is the proof"
    return said


def _since(night: _Night) -> str:
    origin, still = night.origin, night.block("saturated").get("explanation")
    if origin is None or (not night.now and origin is night.decisions[0]):
        said = f"nothing was in force yet: prompts carry no lessons{_wanted(night)}"
    elif origin.run_id == night.manifest["run_id"]:
        said = "this night"
    else:
        said = f"the {'night' if origin.ends_night else origin.decision} of {origin.decided_at:%Y-%m-%d}, run {origin.run_id}"
    if night.unchanged and night.now and not still:
        still = f"unchanged for {pluralize(night.unchanged, 'night')}"
    return f"{said}; {still}" if still else said


def _wanted(night: _Night) -> str:
    """Return the gain that nights like this one put into force, as the run's forecast has it."""
    bounds = night.block("forecast", "gain").get("five_nights")
    if not bounds:
        return ""
    ends = ("over 100" if each is None else two_digits(each) for each in bounds)
    return (
        f". A gain of {' to '.join(dict.fromkeys(ends))} points would be in force within five nights (80 % probability)"
    )


def _cost(night: _Night) -> str:
    if not night.block("ledger"):
        return "unknown: the run has not closed its books"
    totals = Totals.from_json(night.manifest["ledger"])
    ahead, caps = night.block("forecast", "calls"), night.block("settings", "budget")
    foreseen = f" (forecast {Counts(**ahead).phrase()})" if ahead else ""
    at_risk = f" and up to {totals.at_risk_tokens:,} of lost calls" if totals.at_risk_tokens else ""
    parts = [plus_unknown(pluralize(totals.calls, "call"), totals) + foreseen]
    if at_risk or not price_unknown(totals):  # else the price names them
        parts.append(plus_unknown(pluralize(totals.tokens, "token"), totals) + at_risk)
    spent = {
        "max_calls": totals.calls,
        "max_tokens": totals.tokens + totals.at_risk_tokens,
        "max_usd": (totals.nano_usd + totals.at_risk_nano) / NANO,
    }
    least = "at least " if totals.unmeasured_attempts else ""
    shares = [f"{least}{spent[name] / caps[name]:.0%} of budget.{name}" for name in spent if caps.get(name)]
    return ", ".join([*parts, spending(totals), *shares])


def _learned(night: _Night) -> str:
    counts = night.block("tfgrpo", "proposals")
    if not (total := sum(counts.values())):
        return ""
    known, rest = (
        [f"{counts.get(name, 0)} {name}" for name in names]
        for names in (("confirmed", "contradicted"), ("new", "useless"))
    )
    return f"{pluralize(total, 'proposal')}: {' and '.join(known)} a known lesson, {', '.join(rest)}"


def _look(night: _Night) -> Iterator[str]:
    """Yield what deserves a look: a first batch that teaches nothing, losses, what the night noted, sealed items, warnings."""
    if first := night.block("first_batch"):
        yield str(FirstBatch.from_json(first))
    rows = night.block("tfgrpo").get("epochs", ())
    ends = [EpochEnd(**{name: row[name] for name in _EPOCH_FIELDS if name in row}) for row in rows]
    lost, made = sum(end.lost for end in ends), sum(end.lost + end.scored for end in ends)
    asked, broken = (sum(getattr(end, f"learning_{name}") for end in ends) for name in ("asked", "lost"))
    if lost:
        mostly = max(ends, key=lambda end: end.lost).lost_mostly
        yield f"{lost:,} of {pluralize(made, 'rollout')} lost ({lost / made:.1%}), most often {mostly}"
    if broken:
        yield f"{broken:,} of {pluralize(asked, 'learning step')} lost ({broken / asked:.1%})"
    counts = night.block("tfgrpo", "proposals")
    total, confirmed = sum(counts.values()), counts.get("confirmed", 0)
    if total >= _ENOUGH_PROPOSALS and confirmed < _FEW_CONFIRM * total:
        few = f"only {confirmed}" if confirmed else "none"
        yield (
            f"{few} of {total} proposals confirmed a known lesson: reflections may see little in the attempts; "
            "a stronger model.reflection.name may see more"
        )
    yield from night.decision.get("notes", ())
    if night.sealed:
        yield f"the lessons in force were not tested on the {pluralize(night.sealed, 'sealed item')} yet"
    # What is said above is not said twice.
    known = {*night.decision.get("notes", ()), *(warning for end in ends for warning in end.warnings)}
    yield from (text for text in night.manifest.get("warnings", ()) if text not in known)


def _next(night: _Night) -> str:
    place, run_id = place_options(night.task.original()), night.manifest["run_id"]
    if night.block("first_batch").get("stops"):
        return f"tfgrpo report {run_id} {place}"  # the same run would stop there again
    if night.verdict in {"stopped", "failed", "running"}:
        if night.task.original() is not night.task:  # a replay is made anew
            return f"tfgrpo run --replay {run_id} {place}"
        message = night.manifest.get("message") or ""
        higher = "".join(_higher_caps(night, message)) if "the budget is spent: " in message else ""
        return f"tfgrpo run --resume {run_id} {place}{higher}"
    if night.sealed:
        return f"tfgrpo test {place}"
    if night.now:
        return f"tfgrpo experiences export {place}"
    return f"tfgrpo {'experiences review' if night.block('tfgrpo', 'lessons') else 'history --all'} {place}"


def _higher_caps(night: _Night, message: str) -> Iterator[str]:
    """Yield an option for each cap under which the run cannot end: at least the most that its forecast needs.

    What lost calls may have used comes on top. Where the forecast does not exceed the cap that was reached, twice that cap.
    """
    ahead, lost = night.block("forecast"), Totals.from_json(night.manifest.get("ledger") or {})
    usd = ahead["usd"]["high"] + lost.at_risk_nano / NANO if ahead.get("usd") else 0.0
    tokens = sum(ahead[kind]["high"] for kind in ("prompt_tokens", "completion_tokens") if kind in ahead)
    needed = {
        "max_calls": ahead["calls"]["high"] + lost.lost_calls if ahead else 0,
        "max_tokens": tokens + lost.at_risk_tokens,
        "max_usd": math.ceil(100.0 * usd) / 100.0,
    }
    for name, cap in night.block("settings", "budget").items():
        reached = f"the budget is spent: {name} " in message
        if name == "task_max_usd" and reached:  # what other runs of the task have spent is below it
            yield f" --set budget.{name}={cap + max(cap, needed['max_usd']):g}"
        elif cap is not None and (reached or cap < needed.get(name, 0)):
            yield f" --set budget.{name}={needed[name] if needed[name] > cap else 2 * cap}"


def place_options(task: TaskPaths) -> str:
    """Return the options that name a task on the command line."""
    out = str(task.root.parent)
    return f"--task-id {task.root.name}" + ("" if out == "out" else f" --out {shlex.quote(out)}")
