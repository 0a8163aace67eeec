"""What a person should know of a night in at most ten lines: what changed, is it better, since when, the cost, what to look at.

Made from the records of the run and its task alone, so that terminal, report, Prefect and ``--json`` say the same. Lessons
and messages may hold a model's words: whoever shows a line treats it as text.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from textwrap import shorten
from typing import Any, Final, NamedTuple

from tfgrpo.flows.console.figures import plus_unknown, price_unknown, spending
from tfgrpo.flows.console.observer import EpochEnd, FirstBatch
from tfgrpo.flows.report.calibration import told
from tfgrpo.flows.report.figures import smallest_gain
from tfgrpo.flows.report.nights import decisions_until
from tfgrpo.flows.run.effects import effect_text
from tfgrpo.pipelines.plan.forecast import Counts
from tfgrpo.stores.experiences.library import Promotion, in_force, nights_unchanged
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger.state import NANO, Totals
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize

MOST_LINES: Final = 10
_EXCERPT_CHARS: Final = 60
_ROUND: Final = 100
"""Figures from which a fraction is left out."""
_DOUBTFUL: Final = 0.75
"""Probability of harm above which a lesson in force is worth a look; above 0.9 it is retired."""
_HEADLINES: Final[Mapping[str, str]] = {
    "promote": "Promoted: the new library is better",
    "reject": "Rejected: the new library is not better",
    "undecided": "Undecided: the evidence does not tell the libraries apart",
}
_ANSWERS: Final[Mapping[str, str]] = {"promote": "yes", "reject": "no", "undecided": "not known yet"}
_UPDATES: Final[Mapping[str, str]] = {"promote": "it held its own", "reject": "no", "undecided": "held back"}
"""Of lessons that follow on a proven library, which a night seldom proves better than that."""
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
    """Decision of the gate, or the status of a run that ended otherwise."""
    headline: str
    about: str
    """Which night, task, run and model."""
    added: tuple[str, ...]
    """Ids of lessons that came into force."""
    removed: tuple[str, ...]
    in_force: tuple[str, ...]
    since: str | None
    """Run of the decision that put the library into force; None without one."""
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
            "better": _better(night),
            "missing": _missing(night),
            "since": _since(night),
            "cost": _cost(night),
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
            since=night.origin.run_id if night.origin else None,
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
    decisions: Sequence[Promotion]
    verdict: str
    gate: Json
    origin: Promotion | None
    """The decision that put the library into force, from which lessons may have been retired since."""
    before: tuple[str, ...]
    now: tuple[str, ...]
    """Ids of the lessons in force before the run, and after it."""
    candidate: tuple[str, ...]
    left: Mapping[str, str]
    """Why lessons left the library in force in this run, by id."""
    texts: Mapping[str, str]

    @classmethod
    def read(cls, task: TaskPaths, run: RunPaths, store: ExperienceStore) -> _Night:
        manifest = {"run_id": run.root.name, "status": "running", **ManifestFile(run.manifest).read()}
        gate, known = manifest.get("gate") or {}, manifest.get("tfgrpo") or {}
        decisions = decisions_until(task.original(), manifest)
        own = [one for one in decisions if one.run_id == manifest["run_id"]]
        earlier = decisions[: decisions.index(own[0])] if own else decisions
        before, now = (one.experience_ids if one else () for one in map(in_force, (earlier, decisions)))
        candidate = tuple(known.get("library", ())) if gate else ()
        wanted = {*before, *now, *candidate, *(known.get("accounts") or {})}
        found = store.find(wanted)
        if task.original() is not task:
            found += ExperienceStore(task.original().experiences, approved={}).find(wanted)
        return cls(
            task=task,
            manifest=manifest,
            decisions=decisions,
            verdict=gate["decision"] if gate and manifest["status"] == "finished" else manifest["status"],
            gate=gate,
            origin=in_force(one for one in decisions if one.decision != "retire"),
            before=before,
            now=now,
            candidate=candidate,
            left={name: why for one in own for name, why in one.reasons.items()},
            texts={one.experience_id: f"{one.polarity}: {one.summary32}" for one in reversed(found)},
        )

    def block(self, *path: str) -> Json:
        """Return a part of the manifest; empty where an older or unfinished one lacks it."""
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
    def unchanged(self) -> int:
        """Nights up to this one that left the library in force as it was."""
        return 0 if self.added or self.removed else nights_unchanged(self.decisions)

    @property
    def sealed(self) -> int:
        """Sealed items that the library in force was not tested on yet."""
        sealed = int(self.block("dataset").get("sealed", 0))
        if not sealed or not self.now:
            return 0
        from tfgrpo.stores.experiences.tests import sealed_tests  # noqa: PLC0415 - few datasets have sealed items

        mine = self.now, bool(self.manifest.get("simulated"))
        tested = any((one.experience_ids, one.simulated) == mine for one in sealed_tests(self.task.original().tests))
        return 0 if tested else sealed

    def text(self, name: str) -> str:
        """Return the beginning of a lesson; its id where the store lacks it."""
        return f"“{shorten(self.texts.get(name, name), _EXCERPT_CHARS, placeholder=' …')}”"

    def excerpts(self, sign: str, ids: Sequence[str], few: int) -> str:
        """Return the first texts with the reason why they left, and how many more there are."""
        named = (f"{sign} {self.text(name)}, {self.left.get(name, '')}".removesuffix(", ") for name in ids[:few])
        return "; ".join([*named, *([f"and {len(ids) - few} more"] if len(ids) > few else [])])


def _headline(night: _Night) -> str:
    message = night.manifest.get("message") or "under way, or its process was killed"
    if night.verdict not in _HEADLINES:
        return f"{night.verdict.capitalize()}: {message}"
    follows = night.block("gate", "evidence").get("follows")
    if night.verdict == "undecided" and not night.gate.get("champion"):
        same = follows and set(night.gate.get("experience_ids", ())) == set(night.now)
        return "Unchanged: no lesson joins or leaves" if same else "Undecided: nothing was compared"
    # What a message says before the decision, such as that a replay agrees.
    beyond, decided, _ = message.partition(f"; {night.verdict}: ")
    headline = "Promoted: the proven library is updated" if follows and night.verdict == "promote" else None
    return (headline or _HEADLINES[night.verdict]) + (f"; {beyond}" if decided else "")


def _about(night: _Night) -> str:
    run_id, task_id = night.manifest["run_id"], night.task.original().root.name
    nights = [one.run_id for one in night.decisions if one.ends_night]
    which = f"night {nights.index(run_id) + 1} of {task_id}" if run_id in nights else task_id
    marks = (
        ("replayed", night.task.original() is not night.task),
        ("half of the items", night.block("forecast").get("half_night")),
        ("SIMULATED model", night.manifest.get("simulated")),
    )
    return ", ".join([which, f"run {run_id}", *(text for text, marked in marks if marked)])


def _changed(night: _Night) -> str:
    new = tuple(name for name in night.candidate if name not in night.now)
    tried = "turned down" if night.verdict == "reject" else "under test"
    parts = (("+", night.added, "added"), ("−", night.removed, "removed"), ("+", new, tried))
    # A single kind of change has room for two texts.
    few = 2 if sum(bool(ids) for _, ids, _ in parts) == 1 else 1
    said = [f"{len(ids)} {what}: {night.excerpts(sign, ids, few)}" for sign, ids, what in parts if ids]
    force = f"{pluralize(len(night.now), 'lesson')} in force"
    return ". ".join([force if night.added or night.removed else f"nothing, {force}", *said])


def _better(night: _Night) -> str:
    gate = night.gate
    if not gate:
        return "" if night.verdict == "finished" else "not known: the held-out sweep did not end"
    evidence, why = night.block("gate", "evidence"), gate.get("explanation") or "nothing was compared"
    before, after, difference = (gate.get(name) for name in ("champion", "candidate", "difference"))
    answer = (_UPDATES if evidence.get("follows") else _ANSWERS)[gate["decision"]]
    if evidence.get("follows") and evidence.get("gain"):
        gain = f"than no lessons: {_interval(evidence['gain'])}, in the learning batches"
        answer = f"{gain}; than before: {answer}" if before else f"{gain}; than before"
    if not before or not after:
        return f"{answer}: {why}"
    rewards = f"held-out reward {before['estimate']:.3f} before, {after['estimate']:.3f} after"
    said = f"{answer}: {rewards}, over {pluralize(gate['pairs'], 'item')}; {why}"
    if difference and f"{difference['estimate']:+.3f}" not in why:
        said += f"; difference {_interval(difference)}"
    return said


def _interval(each: Json) -> str:
    return f"{each['estimate']:+.3f}, interval {each['low']:+.3f} … {each['high']:+.3f}"


def _missing(night: _Night) -> str:
    """Return how much evidence an undecided night lacks, and what would decide."""
    evidence = night.block("gate", "evidence")
    if night.gate.get("decision") != "undecided" or not night.gate.get("champion"):
        return ""
    if not evidence:
        return "an interval above zero: more held-out items, or more attempts of each (gate.group_size)"
    if evidence.get("given_up"):
        return "the next night begins with new evidence" + _visible_gain(night)
    value, factor = evidence["value"], evidence["needed"] / evidence["value"]
    if factor <= 1.0:
        return "no evidence, of which there is enough: what the reasons name"
    pace = "so far none speaks for the new library"
    if value > 1.0:
        more = math.ceil(math.log(factor) / math.log(value) * evidence["nights"])
        pace = f"{pluralize(more, 'more night')} at the pace so far"
    lacking = f"{factor:,.0f}" if factor >= _ROUND else f"{factor:.3g}"
    return f"a factor of {lacking} in evidence, {pace}{_visible_gain(night)}"


def _visible_gain(night: _Night) -> str:
    gain = smallest_gain(night.block("forecast", "gain"))
    return f"; {gain}" if gain else ""


def _since(night: _Night) -> str:
    origin, still = night.origin, night.block("saturated").get("explanation")
    if origin is None:
        said = "no library was ever promoted: prompts carry no lessons"
    elif origin.run_id == night.manifest["run_id"]:
        said = "this night"
    else:
        what = "rollback" if origin.decision == "rollback" else "promotion" if origin.ends_night else "import"
        said = f"the {what} of {origin.decided_at:%Y-%m-%d}, run {origin.run_id}"
        if gone := len(origin.experience_ids) - len(night.now):
            said += f", {pluralize(gone, 'lesson')} retired since"
        if night.unchanged and not still:
            still = f"unchanged for {pluralize(night.unchanged, 'night')}"
    return f"{said}; {still}" if still else said


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


def _look(night: _Night) -> Iterator[str]:
    """Yield what deserves a look: a first batch that teaches nothing, losses, doubts, sealed items, then other warnings."""
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
    yield from _doubts(night)
    if night.sealed:
        yield f"the library in force was not tested on the {pluralize(night.sealed, 'sealed item')} yet"
    # What is said above, or as the reason of a change, is not said twice.
    known = {warning for end in ends for warning in end.warnings}
    gone = tuple(f"lesson {name} " for name in night.left)
    yield from (text for text in night.manifest.get("warnings", ()) if text not in known and not text.startswith(gone))


def _doubts(night: _Night) -> Iterator[str]:
    """Yield that lessons do worse than none, contradictions with support on both sides or the weaker in force, and harm."""
    gain = night.block("gate", "evidence").get("gain")
    if night.now and gain and gain["high"] < 0.0:
        yield f"lessons did worse than none in this night's learning batches: {_interval(gain)}"
    accounts: Mapping[str, Json] = night.block("tfgrpo", "accounts")
    net = {name: (account["net"], name) for name, account in accounts.items()}
    pairs = [(one, other) for one in net for other in accounts[one].get("opposites", ()) if net[one] > net[other]]
    unsettled = [pair for pair in pairs if net[pair[1]][0] > 0 or pair[1] in night.now]
    if unsettled:
        worst = max(unsettled, key=lambda pair: net[pair[1]])
        sides = (f"{night.text(one)} (net {net[one][0]:.1f}{', in force' * (one in night.now)})" for one in worst)
        between = f"{len(unsettled)} of {pluralize(len(pairs), 'contradiction')} between known lessons"
        yield f"{between} not settled: {' against '.join(sides)}"
    effects = {name: effect for name in night.now if (effect := accounts.get(name, {}).get("effect"))}
    harmful = {name: effect["harm"] for name, effect in effects.items() if effect["harm"] > _DOUBTFUL}
    if harmful:
        name = max(harmful, key=harmful.__getitem__)
        said = f"{night.text(name)} {effect_text(effects[name])}"
        yield f"{pluralize(len(harmful), 'lesson')} in force may do harm: {said}"


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
    if night.verdict == "promote":
        return f"tfgrpo experiences export {place}"
    return f"tfgrpo {'experiences review' if night.block('tfgrpo', 'accounts') else 'history --all'} {place}"


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
