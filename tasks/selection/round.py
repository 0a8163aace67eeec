"""Run K candidates for one request concurrently, read them in the answer format, grade them together, and choose one.

A format is text, JSON or process models, a picklable value with its instructions, reading and checks, the last with
hints. A flaw becomes a reason that a model can act on. This writes no file and raises only cancellation: failures are
in the value it returns.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.tree import MemoryMode, SelectionSettings
from tfgrpo.prompt_packs.safety import attack_in
from tfgrpo.rewarders.judge.model import corrected
from tfgrpo.rewarders.powl import Activity, Operator, Silent, model_in, validate
from tfgrpo.rewarders.powl.scoring import MODEL_KEY
from tfgrpo.rewarders.scorer import Abstained, Attempt
from tfgrpo.stores.errors import BudgetRefused, PowlError, RepairExhausted, SelectionFailed, error_kind
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.ledger import Totals, Usage
from tfgrpo.stores.numeric import two_decimals
from tfgrpo.stores.outcomes import Failed, GroupKey, Refused, RewardScore, status_of
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.text import pluralize, shorten_middle
from tfgrpo.tasks.group import GroupJudge, compare, observe_scores, span_attributes
from tfgrpo.tasks.learning.ask import parse_answer
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.selection.history import PatternStats, Remembered, rank_patterns
from tfgrpo.tasks.shapes import GroupSpec, PackText

CandidateEnd: TypeAlias = Literal[
    "ok", "parse_error", "validation_error", "transport_error", "timeout", "actor_error", "refused"
]
# Most structures of each kind in a prompt, as earlier best-of-K systems show; more would take the room of the task.
_HINTS: Final = 3
_SHOWN_CHARS: Final = 600
# Most findings of a validator in one reason.
_FINDINGS: Final = 5
# Errors in a process model other than syntax: number of children, name of an operator.
_BROKEN_RULE: Final = re.compile(r"LOOP takes exactly two|is no operator|two commas with nothing between")
_QUOTED_CHARS: Final = 20_000
_CUT_OFF: Final = "the answer was cut off at the token limit: give a shorter one"
_TEXTS: Final[Mapping[str, str]] = packaged_yaml(__file__, "prompts.yaml")


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """What became of a candidate, or of one of its answers."""

    name: CandidateEnd = "ok"
    reason: str = ""
    value: Any = None
    """The last readable answer as process model or JSON value; None for text."""
    repairable: bool = True
    """Whether the actor is asked again for an answer that cannot be used."""
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Any text that is not blank."""

    name: str = "text"
    instructions: str = ""

    def read(self, text: str) -> CandidateOutcome:
        """Accept all but blank text."""
        return CandidateOutcome() if text.strip() else CandidateOutcome("parse_error", "the answer is empty")


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """One JSON value, bare or in one code fence, valid by the schema if there is one."""

    schema: Mapping[str, Any] | None = None
    repair: Literal["all", "syntax"] = "all"
    name: str = "json"

    @property
    def instructions(self) -> str:
        """Instructions, with the schema if there is one."""
        schema = "" if self.schema is None else f" It follows this JSON schema: {canonical_json(self.schema)}"
        return _TEXTS["json"] + schema

    def read(self, text: str) -> CandidateOutcome:
        """Parse strictly, then check against the schema."""
        # Apart: a fault of syntax is sent back in any case, one against the schema only with ``repair`` all.
        try:
            value = parse_answer(text, {})
        except ValueError as error:
            return CandidateOutcome("parse_error", str(error))
        if self.schema is not None:
            try:
                parse_answer(text, self.schema)
            except ValueError as error:
                return CandidateOutcome("validation_error", str(error), value, self.repair == "all")
        return CandidateOutcome(value=value)


@dataclass(frozen=True, slots=True)
class PowlFormat:
    """A valid process model as text or JSON."""

    repair: Literal["all", "syntax"] = "all"
    """``syntax``: errors in a readable model (a LOOP of one child, findings) are not sent back."""
    instructions: str = field(default=_TEXTS["powl"], repr=False)
    name: str = "powl"

    def read(self, text: str) -> CandidateOutcome:
        """Parse, then validate."""
        try:
            model = model_in(text)
        except PowlError as error:
            again = self.repair == "all" or not _BROKEN_RULE.search(error.reason)
            return CandidateOutcome("parse_error", str(error), repairable=again)
        if errors := validate(model).errors:
            reason = "; ".join(str(finding) for finding in errors[:_FINDINGS])
            return CandidateOutcome("validation_error", reason, model, self.repair == "all")
        return CandidateOutcome(value=model)


AnswerFormat: TypeAlias = TextFormat | JsonFormat | PowlFormat
"""Has a name for people, instructions to the actor, and ``read`` for an answer, which never raises."""


def hint_of(memory: Remembered, mode: MemoryMode) -> str:
    """Return structures of earlier selections as a block of quoted data for the prompt, or empty."""
    if mode not in {"exploit", "explore"}:
        return ""
    ranked = rank_patterns(memory.patterns)
    if mode == "exploit":
        lines = [*_lines("did well", ranked.good), *_lines("did badly", ranked.bad)]
    else:
        lines = _lines("tried", ranked.tried)
    return "\n".join([_TEXTS[mode], *lines, "</structures>"]) if lines else ""


def _lines(verdict: str, patterns: Sequence[PatternStats]) -> list[str]:
    # Models wrote them: those that look like an instruction, an address or a secret are skipped.
    fit = [pattern for pattern in patterns if len(pattern.text) <= _SHOWN_CHARS and attack_in(pattern.text) is None]
    return [
        f"- {verdict}, {two_decimals(pattern.mean)} over {pattern.count}: {canonical_json(pattern.text)}"
        for pattern in fit[:_HINTS]
    ]


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """Specification of one selection."""

    selection_id: str
    item: Item
    """The request. Its answer is for rewarders only."""
    pack: PackText
    """System text with the lessons in force, before the format's instructions and the hint."""
    settings: SelectionSettings = field(default_factory=SelectionSettings)
    format: AnswerFormat = field(default_factory=TextFormat)
    hint: str = ""

    @property
    def system(self) -> PackText:
        """System text of all candidates: pack and lessons, instructions of the format, hint."""
        text = "\n\n".join(part for part in (self.pack.system, self.format.instructions, self.hint) if part)
        return self.pack if text == self.pack.system else replace(self.pack, system=text, digest=sha256_hex(text))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the K candidates: outcome, answer, scores and usage."""

    index: int
    outcome: CandidateOutcome
    text: str
    """Its last answer, even if flawed; empty without one."""
    refused: tuple[tuple[str, str], ...]
    """Answers sent back for repair, each with the reason, oldest first."""
    temperature: float
    seed: int
    usage: Usage
    latency_s: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What scorers may know of how its last answer was made, with the cost and the time of all."""
    reward: float | None = None
    advantage: float | None = None
    scores: tuple[RewardScore, ...] = ()
    ungraded: str = ""

    @property
    def valid(self) -> bool:
        """Whether its answer is usable."""
        return self.outcome.name == "ok"


@dataclass(frozen=True, slots=True)
class SelectionChoice:
    """The chosen candidate, or why none may be chosen."""

    index: int | None
    why: str
    over_budget: bool = False


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """Calls, tokens and money of a selection, including judges and lost calls."""

    calls: int
    tokens: int
    usd: float | None
    """None when the price of any call is unknown."""
    at_risk_usd: float
    """Most that calls without usage may have cost in addition."""
    unmeasured_attempts: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """One best-of-K round."""

    spec: SelectionSpec
    candidates: tuple[Candidate, ...]
    choice: SelectionChoice
    mean_reward: float | None
    spread: float | None
    faults: Mapping[str, str]
    cost: SelectionCost
    duration_s: float

    @property
    def best(self) -> Candidate:
        """The chosen candidate. Raises ``SelectionFailed`` with the reason if there is none."""
        if self.choice.index is None:
            raise SelectionFailed(self.choice.why)
        return self.candidates[self.choice.index]

    @property
    def is_over(self) -> bool:
        """Whether asking again could change nothing: one is chosen, or all have answered and their grades are known."""
        lost = any(candidate.outcome.error_type for candidate in self.candidates)
        ungraded = self.mean_reward is None and any(candidate.ungraded for candidate in self.candidates)
        return self.choice.index is not None or not (lost or ungraded)

    @property
    def outcomes(self) -> Mapping[CandidateEnd, int]:
        """Number of candidates by outcome."""
        return Counter(candidate.outcome.name for candidate in self.candidates)


async def select_best(spec: SelectionSpec, runtime: Runtime, *, before: Totals | None = None) -> Selection:
    """Run one selection with the runtime's actor, rewarders and slots.

    ``before``: what its ledger had counted before the selection began; None: that of now.
    """
    start, telemetry, before = perf_counter(), runtime.telemetry, before or runtime.ledger.totals()
    group = GroupSpec(
        group_id=spec.selection_id,
        key=GroupKey(0, "eval", "group", 0, spec.item.id, run=spec.selection_id),
        item=spec.item,
        size=spec.settings.k,
        # Each candidate has its own.
        temperature=0.0,
        pack=spec.system,
        reflect=False,
    )
    about = span_attributes(group) | {"arm": group.key.arm}
    with telemetry.attached(runtime.context.carrier), telemetry.span("tfgrpo.group", **about) as span:
        made = await asyncio.gather(*(_candidate(spec, index, group, runtime) for index in range(group.size)))
        await runtime.sync()
        usable = _usable(spec, made)
        judge = GroupJudge(group, runtime)
        attempts = []
        for each in usable:
            value, facts = each.outcome.value, dict(each.facts)
            # Rewarders use the process model that was read already.
            if isinstance(value, Activity | Silent | Operator):
                facts[MODEL_KEY] = value
            attempts.append(Attempt(str(each.index), each.index, each.text, each.usage.completion_tokens, facts))
        scores = scrubbed(await runtime.scorers.score_group(runtime.rewarders, judge.context(attempts)), runtime.scrub)
        comparison = compare(scores.totals)
        candidates = list(made)
        for each, verdicts in zip(usable, scores.verdicts, strict=True):
            name, silent = str(each.index), [verdict.message for verdict in verdicts if isinstance(verdict, Abstained)]
            graded = candidates[each.index] = replace(
                each,
                reward=comparison.rewards.get(name),
                advantage=comparison.advantages.get(name),
                scores=tuple(verdict for verdict in verdicts if isinstance(verdict, RewardScore)),
                ungraded="" if name in comparison.rewards else "; ".join(silent) or "no rewarder gave a score",
            )
            observe_scores(span, graded.scores, runtime.rewarders, rollout_index=each.index)
        return Selection(
            spec=spec,
            candidates=tuple(candidates),
            choice=_choose(spec, candidates, over_budget=judge.spend.budget_refused is not None),
            mean_reward=comparison.mean,
            spread=comparison.spread,
            faults=scores.faults,
            cost=_cost(before, runtime.ledger.totals(), candidates, judge),
            duration_s=perf_counter() - start,
        )


def _cost(before: Totals, after: Totals, candidates: Sequence[Candidate], judge: GroupJudge) -> SelectionCost:
    # By the ledger, which counts lost calls too.
    usage = Usage.total([*(candidate.usage for candidate in candidates), judge.spend.usage])
    priced = usage.cost_usd is not None and after.unknown_price_calls == before.unknown_price_calls
    return SelectionCost(
        calls=after.calls - before.calls,
        tokens=after.tokens - before.tokens,
        usd=after.usd - before.usd if priced else None,
        at_risk_usd=after.at_risk_usd - before.at_risk_usd,
        unmeasured_attempts=after.unmeasured_attempts - before.unmeasured_attempts,
    )


def _usable(spec: SelectionSpec, candidates: Sequence[Candidate]) -> list[Candidate]:
    # For best effort without a valid one, all that have an answer.
    valid = [candidate for candidate in candidates if candidate.valid]
    if valid or spec.settings.none_valid == "raise":
        return valid
    return [candidate for candidate in candidates if candidate.text.strip()]


def _choose(spec: SelectionSpec, candidates: Sequence[Candidate], *, over_budget: bool = False) -> SelectionChoice:
    # By advantage the choice would be the same.
    settings, usable = spec.settings, _usable(spec, candidates)
    valid = sum(candidate.valid for candidate in usable)
    among, unusable = pluralize(len(candidates), "candidate"), lost_and_flawed(candidates)
    if not usable or (valid < settings.min_success and settings.none_valid == "raise"):
        needed = f", {settings.min_success} needed" if settings.min_success > 1 else ""
        refused = any(candidate.outcome.name == "refused" for candidate in candidates)
        return SelectionChoice(None, f"{valid or 'none'} of {among} valid{needed}: {unusable}", over_budget or refused)
    rewards = {each.index: each.reward for each in usable if each.reward is not None}
    if not rewards:
        reasons = "; ".join(dict.fromkeys(candidate.ungraded for candidate in usable))
        why = f"none of the {pluralize(len(usable), 'usable candidate')} could be graded: {reasons}"
        if settings.none_valid == "raise":
            return SelectionChoice(None, why, over_budget)
        return SelectionChoice(usable[0].index, f"best effort, the first that can be used: {why}")
    short = "" if valid >= settings.min_success else f"best effort, {valid} of {among} valid ({unusable}): "
    index = max(rewards, key=lambda each: rewards[each])
    equals = sum(reward == rewards[index] for reward in rewards.values())
    tie = f", the first of {equals} that have it" if equals > 1 else ""
    graded = pluralize(len(rewards), "graded candidate")
    return SelectionChoice(index, f"{short}highest reward of {graded}, {rewards[index]:.4g}{tie}")


async def _candidate(spec: SelectionSpec, index: int, group: GroupSpec, runtime: Runtime) -> Candidate:
    # Each attempt, repairs too, is a rollout with its limits and spans; a repair has other seeds and call keys.
    temperature = spec.settings.temperatures[index % len(spec.settings.temperatures)]
    rollouts: list[FinishedRollout] = []
    texts: list[str] = []
    outcome = CandidateOutcome()
    sent_back: tuple[tuple[str, str], ...] = ()

    async def draft(refused: Sequence[tuple[str, str]]) -> str:
        nonlocal sent_back
        sent_back, drafted = tuple(refused), replace(group, temperature=temperature)
        if refused:
            quoted = {"earlier_answer": shorten_middle(refused[-1][0], _QUOTED_CHARS), "reason": refused[-1][1]}
            prompt = f"{group.item.prompt}\n\n{_TEXTS['revision']}\n{canonical_json(quoted)}"
            again = replace(group.key, draw=len(refused))
            drafted = replace(drafted, item=replace(group.item, prompt=prompt), key=again)
        rollouts.append(await run_rollout(drafted, index, runtime))
        texts.append(runtime.scrub(rollouts[-1].output))
        return texts[-1]

    def read(text: str) -> None:
        nonlocal outcome
        loss = rollouts[-1].loss
        if isinstance(loss, Failed | Refused):
            end: CandidateEnd = "refused" if isinstance(loss, Refused) else "actor_error"
            kind = BudgetRefused.__name__ if isinstance(loss, Refused) else loss.error_type
            if (status := status_of(error_kind(kind))) in ("timeout", "transport_error"):
                end = status
            outcome = CandidateOutcome(end, loss.reason, outcome.value, error_type=kind)
            return
        cut_off = loss is not None and loss.error_type == "truncated"
        outcome = CandidateOutcome("parse_error", _CUT_OFF) if cut_off else spec.format.read(text)
        if outcome.name != "ok" and outcome.repairable:
            raise ValueError(outcome.reason)

    with suppress(RepairExhausted):
        await corrected(read, draft, spec.settings.max_validations + 1, spec.format.name)
    usage, latency_s = Usage.total(each.usage for each in rollouts), sum(each.latency_s for each in rollouts)
    return Candidate(
        index=index,
        outcome=outcome,
        text=next((text for text in reversed(texts) if text.strip()), ""),
        refused=sent_back,
        temperature=temperature,
        seed=rollouts[-1].seed,
        usage=usage,
        latency_s=latency_s,
        facts={**rollouts[-1].facts, "cost_usd": usage.cost_usd, "latency_s": latency_s},
    )


def lost_and_flawed(candidates: Sequence[Candidate]) -> str:
    """Return the number of unusable candidates by outcome, with the first reason of each; empty without any."""
    reasons: dict[str, list[str]] = {}
    for candidate in candidates:
        if not candidate.valid:
            reasons.setdefault(candidate.outcome.name, []).append(candidate.outcome.reason)
    return "; ".join(f"{len(each)} {name} ({first_line(each[0])})" for name, each in reasons.items())


def first_line(reason: str) -> str:
    """Return the first line of a reason, at most 160 characters."""
    first = " ".join(reason.split("\n", maxsplit=1)[0].split())
    return first if len(first) <= 160 else f"{first[:159]}…"
