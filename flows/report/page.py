"""Render ``report.html``: self-contained, and a pure function of the files of a task and a run.

Each line file is read once, line by line; only sums and a few texts are kept. A missing file, of a run that was stopped
before it was written, yields empty sums. A damaged one raises ``CorruptFile``; one of an earlier run costs its contrasts.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import isfunction
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, UndefinedError

from tfgrpo.flows.console import figures
from tfgrpo.flows.console.console import visible
from tfgrpo.flows.console.figures import labelled, shown_arm
from tfgrpo.flows.report import attempts
from tfgrpo.flows.report.attempts import PHASES, AttemptView, ItemTally, ViewLimits, item_views, worst_items
from tfgrpo.flows.report.calibration import compared_pairs
from tfgrpo.flows.report.night import COLUMNS, Night, picture, task_options
from tfgrpo.flows.run.lessons import STATES
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.ledger import add_counts
from tfgrpo.stores.metrics import Column, Summary, aggregate
from tfgrpo.stores.runs import UNFINISHED, expected_shape
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.decision import chance
from tfgrpo.tasks.models.wire import usage_of

JsonObject: TypeAlias = Mapping[str, Any]
_REFUSED_SHOWN = 60
_REASONS_SHOWN = 3
_CONTRASTS_SHOWN = 2
_EVIDENCE: Final = ViewLimits(chars=2_000)
_ROLES = {
    "rollout": "attempts",
    "agent": "attempts (own agent)",
    "gateway": "calls of own agents",
    "digest": "digests of long attempts",
    "reflect": "reflection",
    "curate": "curation",
    "second": "second reading of new lessons",
    "shorten": "shortening",
    "judge": "judging",
    "tool": "tools",
}
_ITEMS_SHOWN = 50
# Limits for each item on the page, so that it stays small: `tfgrpo show` has the rest.
_ITEM_LIMITS = ViewLimits(attempts=6, steps=6, chars=400)


def _groups(night: Night) -> dict[str, Any]:
    """Return how much reflections proposed, and what was refused or came without an answer, by reason."""
    proposals, texts = 0, dict[tuple[str, str], None]()
    refused, broken = Counter[str](), Counter[str]()

    def refuse(rejected: Iterable[tuple[str, str]]) -> None:
        for text, reason in rejected:
            refused[reason] += 1
            if len(texts) < _REFUSED_SHOWN:
                texts[text, reason] = None

    with expected_shape(night.run.groups):
        for row in read_objects(night.run.groups):
            proposals += len(row.get("proposals", ())) + len(row.get("rejected", ()))
            refuse(row.get("rejected", ()))
            if failure := row.get("reflection_failure"):
                broken[failure["error_type"]] += 1
    # What curation turned down was proposed by a reflection, and is counted there.
    refuse(night.block("tfgrpo").get("rejected", ()))
    return {"proposals": proposals, "refused": refused, "broken": broken, "texts": texts}


@dataclass(slots=True)
class Rollouts:
    """Sums of ``rollouts.jsonl``."""

    items: dict[str, ItemTally] = field(default_factory=partial(defaultdict, ItemTally))
    wanted: dict[str, AttemptView] = field(default_factory=dict)
    tokens: dict[tuple[int, str], Column] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    """Rollouts without a reward, by how they ended."""
    reasons: dict[str, dict[str, None]] = field(default_factory=dict)


def read_rollouts(run: RunPaths, wanted: Collection[str]) -> Rollouts:
    """Sum ``rollouts.jsonl`` up and keep the rollouts of the ids in ``wanted``."""
    rollouts = Rollouts()
    for row in read_objects(run.rollouts):
        rollouts.items[row["item_id"]].add(row)
        if row["rollout_id"] in wanted:
            rollouts.wanted[row["rollout_id"]] = AttemptView.of_row(row, _EVIDENCE.cut)
        column = rollouts.tokens.setdefault((row["epoch"], shown_arm(row["arm"])), Column())
        column.add(add_counts([row["prompt_tokens"], row["completion_tokens"]]))
        outcome = row["outcome"]
        if outcome["name"] != "scored":
            name = " · ".join(part for part in (outcome["name"], outcome.get("error_type")) if part)
            rollouts.lost[name] += 1
            reasons = rollouts.reasons.setdefault(name, {})
            if len(reasons) < _REASONS_SHOWN:
                reasons[outcome.get("reason", "")] = None
    return rollouts


@dataclass(slots=True)
class RoleCost:
    """Calls of one role."""

    calls: int = 0
    failures: int = 0
    prompt: int = 0
    completion: int = 0
    without_usage: int = 0
    usd: Column = field(default_factory=Column)
    latency_s: Column = field(default_factory=Column)

    def add(self, entry: JsonObject) -> None:
        """Count one entry of the journal."""
        if entry["kind"] == "failure":
            self.failures += 1
            return
        payload = entry["payload"]
        tally = payload.get("tally")
        # An attempt of an agent whose calls are entries of their own, or are its own account.
        if tally is not None and tally["calls"]:
            return
        self.calls += 1
        usage = usage_of(payload.get("usage"))
        if usage is not None:
            self.prompt += usage.prompt
            self.completion += usage.completion
        elif tally is not None or "usage" in payload:
            self.without_usage += 1
        self.usd.add(payload.get("cost_usd"))
        self.latency_s.add(payload.get("latency_s"))


class LessonView(NamedTuple):
    """One record of the store with its evidence."""

    record: ExperienceRecord
    groups: int
    """Groups it was drawn from, of which the page shows the first contrasts."""
    contrasts: Sequence[tuple[str, Sequence[AttemptView]]]
    """Prompt, empty if it cannot be read, and the best and the worst attempt; a single one if the others are lost."""
    known: JsonObject
    """State, effect, groups for and against and tokens, as of the end of the run; empty if it is not known any more."""


def learned(night: Night) -> tuple[dict[str, Any], Rollouts]:
    """Return the lessons with their evidence, and the sums of the run's rollouts.

    ``known`` lessons are by state, the better first; ``others`` this run stored, and they were reworded, merged or forgotten.
    """
    task, run, own, known = night.task, night.run, night.run_id, night.block("tfgrpo", "lessons")
    stores = [ExperienceStore(each.experiences, approved={}) for each in dict.fromkeys((task, task.original()))]
    records: dict[str, ExperienceRecord] = {}
    for record in chain.from_iterable(store.records() for store in stores):
        if record.experience_id in known or record.run_id == own:
            records.setdefault(record.experience_id, record)
    groups: dict[str, list[list[str]]] = {}
    for name, record in records.items():  # the evidence of a lesson is of one contrast, or of several
        of_group: dict[str, list[str]] = {}
        for rollout in record.evidence:
            of_group.setdefault(rollout.rpartition("/")[0], []).append(rollout)
        groups[name] = [*of_group.values()]
    shown = {rollout for each in groups.values() for members in each[:_CONTRASTS_SHOWN] for rollout in members}
    with expected_shape(run.rollouts):
        rollouts = read_rollouts(run, shown)
    earlier = [task.original().run(name) for name in sorted({record.run_id for record in records.values()} - {own})]
    attempted: dict[str, AttemptView] = {}
    unreadable: list[str] = []
    for each in earlier:
        with _left_out(unreadable), expected_shape(each.rollouts):
            attempted |= read_rollouts(each, shown).wanted
    attempted |= rollouts.wanted
    items, prompts = {attempt.item_id for attempt in attempted.values()}, dict[str, str]()
    for each in (*earlier, run):
        with nullcontext() if each is run else _left_out(unreadable), expected_shape(each.items):
            prompts |= {
                row["item_id"]: _EVIDENCE.cut(row["prompt"]) for row in read_objects(each.items) if row["item_id"] in items
            }
    lessons: list[LessonView] = []
    for name, record in records.items():
        contrasts = []
        for members in groups[name][:_CONTRASTS_SHOWN]:
            ranked = [attempted[each] for each in members if each in attempted]
            ranked.sort(key=lambda each: (each.reward is None, -(each.reward or 0.0)))
            if ranked:
                contrasts.append((prompts.get(ranked[0].item_id, ""), (ranked[0], *ranked[1:][-1:])))
        lessons.append(LessonView(record, len(groups[name]), contrasts, known.get(name, {})))
    in_order = [each for each in lessons if each.known]
    in_order.sort(key=lambda each: (STATES.index(each.known["state"]), -each.known["effect"]["mean"]))
    others, missing = [each for each in lessons if not each.known], len(known) - len(in_order)
    return {"known": in_order, "others": others, "missing": missing, "unreadable": unreadable}, rollouts


@contextmanager
def _left_out(warnings: list[str]) -> Iterator[None]:
    try:
        yield
    except (StoreError, OSError) as error:
        warnings.append(f"lessons are shown without what this file of an earlier run says of them: {error}")


def write_report(night: Night) -> Path:
    """Write the page of a run and return its path. Raises ``CorruptFile`` or ``StoreError`` naming the file."""
    task, run = night.task, night.run
    with expected_shape(run.root, UndefinedError):
        groups, (lessons, rollouts) = _groups(night), learned(night)
        packs = night.block("settings").get("packs_root")
        costs = read_costs(run)
        usd = {role: float(cost.usd.summary()["sum"] or 0.0) for role, cost in costs.items()}
        total = sum(usd.values())
        shown = worst_items(rollouts.items)[:_ITEMS_SHOWN]
        arms: list[tuple[str, str, JsonObject, Summary]] = []
        # Not from ``per-epoch.json``, which is written at the end of an epoch.
        for epoch, block in (aggregate(read_objects(run.metrics), run.metrics) if run.metrics.is_file() else {}).items():
            phase = PHASES.get(block["phase"], "")
            for name, label in labelled(block["arms"]):
                tokens = rollouts.tokens.get((int(epoch), name), Column()).summary()
                arms.append((epoch, phase if name == "group" else f"{phase}, {label}", block["arms"][name], tokens))
        page = _template().render(
            night=night,
            manifest=night.manifest,
            tfgrpo=night.block("tfgrpo"),
            task_options=task_options(task),
            packs=f" --packs-root {shlex.quote(packs)}" if packs else "",
            chart=picture(night.history),
            columns=COLUMNS,
            arms=arms,
            costs=[(name, costs[role], usd[role] / total if total else None) for role, name in labelled(costs, _ROLES)],
            rollouts=rollouts,
            groups=groups,
            lessons=lessons,
            texts={each.experience_id: f"{each.polarity}: {each.summary32}" for each, *_ in lessons["known"]},
            items=item_views(task, run, shown, rollouts.items, _ITEM_LIMITS),
            limits=_ITEM_LIMITS,
            items_left_out=len(rollouts.items) - len(shown),
        )
    replace_text(run.report, page)
    return run.report


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tfgrpo.flows"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    for module in (figures, attempts):
        own = (each for each in vars(module).values() if isfunction(each) and each.__module__ == module.__name__)
        environment.filters |= {each.__name__: each for each in own}
    environment.filters |= {"chance": chance, "compared_pairs": compared_pairs, "pluralize": pluralize}
    return environment.get_template("report.html.j2")


def read_costs(run: RunPaths) -> dict[str, RoleCost]:
    """Return the calls of each role with what they cost; none for a replay, which makes no calls."""
    roles: dict[str, RoleCost] = {}
    for entry in read_objects(run.journal):
        # …/role/attempt#digest
        parts = str(entry.get("key", "")).rpartition("#")[0].rsplit("/", 2)
        if len(parts) == 3 and parts[1] != UNFINISHED and isinstance(entry.get("payload"), dict):
            roles.setdefault(parts[1], RoleCost()).add(entry)
    return {role: cost for role, cost in roles.items() if cost.calls or cost.failures}
