"""How many calls, tokens and dollars lie ahead? Bounds computed from the plan, before the first call.

Low: one turn a rollout, nothing informative, one arm in the sweep, every group's outputs the same. High: every turn used,
every group informative, every structured answer repaired as often as allowed, every lesson shortened once, both arms,
every output judged apart. It does not foresee calls
sent again after faults. With n items, groups of G, t turns, m informative groups and S batches, an epoch is
n·(G·t) + m + S calls, and those of judges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipelines.items import Item
from pipelines.model_choice import ModelChoice
from pipelines.sampling import Cohort
from pipelines.settings import Settings
from prompt_packs.models import LoadedPack
from rewarders.judge_seam import JudgeLoad
from stores.prices import NANO


@dataclass(frozen=True, slots=True)
class Counts:
    """A number of things that lies between two bounds."""

    low: int
    high: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Amounts:
    """A quantity that lies between two bounds."""

    low: float
    high: float


_BYTES_PER_TOKEN = Amounts(2.5, 6.0)
_MESSAGE_TOKENS = 40
_REPLY_TOKENS_LOW = 4
_TOOL_REPLY_TOKENS = 1000
_COMPLAINT_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run may need, in bounds."""

    calls: Counts
    prompt_tokens: Counts
    completion_tokens: Counts
    usd: Amounts | None
    """None when the price of a model in use is unknown."""
    seconds: Amounts | None
    """None when nobody knows how long a call takes, which is so for every real endpoint."""
    simulated: bool

    def __str__(self) -> str:
        tokens = self.prompt_tokens + self.completion_tokens
        money = "price unknown" if self.usd is None else f"{self.usd.low:.4f} to {self.usd.high:.4f} USD"
        label = " (SIMULATED)" if self.simulated else ""
        return (
            f"{self.calls.low:,} to {self.calls.high:,} calls, {tokens.low:,} to {tokens.high:,} tokens, {money}{label}"
        )


@dataclass(frozen=True, slots=True)
class _Use:
    """Calls and tokens of one model."""

    calls: Counts = Counts(0, 0)
    prompt: Counts = Counts(0, 0)
    completion: Counts = Counts(0, 0)

    def __add__(self, other: _Use) -> _Use:
        return _Use(self.calls + other.calls, self.prompt + other.prompt, self.completion + other.completion)


def forecast(
    settings: Settings,
    *,
    models: ModelChoice,
    pack: LoadedPack,
    cohorts: Sequence[Cohort],
    evaluation: Sequence[Item],
    judges: Sequence[JudgeLoad] = (),
) -> Forecast:
    """Bounds for a run over these cohorts and this sweep. Empty ``evaluation`` means that nothing is compared.

    ``judges``: what the rewarders ask of a model for each group.
    """
    estimate = _Estimate(settings, pack)
    acting = estimate.rollouts([item for cohort in cohorts for item in cohort.items])
    acting += estimate.sweep(evaluation)
    learning = estimate.reflection(cohorts) if settings.tfgrpo.enabled else _Use()
    learned_on = [item for cohort in cohorts for item in cohort.items]
    judging = [(models.judge(load.model), estimate.judging(load, learned_on, evaluation)) for load in judges]
    total = sum((use for _, use in judging), acting + learning)
    return Forecast(
        calls=total.calls,
        prompt_tokens=total.prompt,
        completion_tokens=total.completion,
        usd=_money(models, ((models.name, acting), (models.reflection_name, learning), *judging)),
        seconds=_simulated_seconds(settings, total.calls) if models.simulated else None,
        simulated=models.simulated,
    )


class _Estimate:
    """The formulas, with what they need of settings and pack at hand."""

    def __init__(self, settings: Settings, pack: LoadedPack) -> None:
        self._learning = settings.tfgrpo
        self._reply = settings.model.max_tokens
        self._turns = 1 if settings.actor.kind == "chat" else settings.actor.max_turns
        self._size = settings.tfgrpo.group_size if settings.tfgrpo.enabled else 1
        self._slots = pack.manifest.experience_slots
        self._pack_text = "".join((pack.system_text, *pack.inject_texts))
        self._templates = {role: _tokens(text).high for role, text in pack.templates.items()}
        self._lesson = math.ceil(settings.tfgrpo.experience_max_chars / _BYTES_PER_TOKEN.low) + 4

    def rollouts(self, items: Iterable[Item]) -> _Use:
        """One group on each item."""
        total = _Use()
        system, turns = _tokens(self._pack_text), self._turns
        lessons = self._slots * self._lesson
        for item in items:
            first = system + _tokens(item.system_prompt + item.prompt)
            # Every turn sends all earlier ones again.
            resent = turns * (turns - 1) // 2 * (self._reply + _TOOL_REPLY_TOKENS)
            total += _Use(
                calls=Counts(self._size, self._size * turns),
                prompt=Counts(self._size * first.low, self._size * (turns * (first.high + lessons) + resent)),
                completion=Counts(self._size * _REPLY_TOKENS_LOW, self._size * turns * self._reply),
            )
        return total

    def sweep(self, items: Iterable[Item]) -> _Use:
        """One arm when nothing was learned, else two."""
        return _one_or_two_arms(self.rollouts(items))

    def judging(self, load: JudgeLoad, learned_on: Iterable[Item], evaluation: Iterable[Item]) -> _Use:
        """What one judge asks, of every group whose attempts brought an output."""
        swept = self._judged(load, evaluation)
        return self._judged(load, learned_on) + _one_or_two_arms(swept)

    def _judged(self, load: JudgeLoad, items: Iterable[Item]) -> _Use:
        total = _Use()
        reply = load.max_tokens or self._reply
        longest = min(self._reply + _MESSAGE_TOKENS, math.ceil(4 * load.max_chars / _BYTES_PER_TOKEN.low))
        instructions = _tokens(load.instructions)
        for item in items:
            task = _tokens(item.prompt)
            answers = _tokens(item.answer).high
            # A repetition shows the replies before it, with what was wrong with each.
            again = load.retries * (reply + _COMPLAINT_TOKENS)
            high = instructions.high + task.high + answers + load.shown * longest + again
            low = instructions.low + task.low + load.shown * _REPLY_TOKENS_LOW
            total += _Use(
                calls=Counts(load.calls_low, load.calls_high),
                prompt=Counts(load.calls_low * low, load.calls_high * high),
                completion=Counts(load.calls_low * _REPLY_TOKENS_LOW, load.calls_high * reply),
            )
        return total

    def reflection(self, cohorts: Iterable[Cohort]) -> _Use:
        """Reflecting on every group, curating every batch; nothing at all when no group is informative."""
        calls = prompt = 0
        for cohort in cohorts:
            for item in cohort.items:
                more_calls, more_prompt = self._group(item)
                calls, prompt = calls + more_calls, prompt + more_prompt
            for batch in cohort.batches:
                more_calls, more_prompt = self._curation(len(batch))
                calls, prompt = calls + more_calls, prompt + more_prompt
        return _Use(Counts(0, calls), Counts(0, prompt), Counts(0, calls * self._reply))

    def _group(self, item: Item) -> tuple[int, int]:
        shown = self._size if self._learning.reflection == "all" else 2
        attempts = shown * self._turns * (self._reply + _MESSAGE_TOKENS)
        prompt = self._templates["reflect"] + _tokens(item.prompt + item.answer).high + attempts
        return self._answered(prompt, texts=self._learning.lessons_per_group)

    def _curation(self, groups: int) -> tuple[int, int]:
        capacity = math.ceil(self._slots * self._learning.capacity_factor)
        lessons = 2 * capacity + groups * self._learning.lessons_per_group
        return self._answered(self._templates["curate"] + lessons * self._lesson, texts=self._learning.edit_budget)

    def _answered(self, prompt: int, *, texts: int) -> tuple[int, int]:
        """Calls and prompt tokens of one structured answer at worst: repaired to the limit, every text shortened."""
        repairs = self._learning.max_repairs
        repaired = repairs * (prompt + self._templates["repair"]) + repairs * (repairs + 1) // 2 * self._reply
        shortened = texts * (self._templates["shorten"] + 2 * self._lesson)
        return 1 + repairs + texts, prompt + repaired + shortened


def _one_or_two_arms(arm: _Use) -> _Use:
    return arm + _Use(*(Counts(0, part.high) for part in (arm.calls, arm.prompt, arm.completion)))


def _tokens(text: str) -> Counts:
    """Tokens of one message, without a tokenizer: between 6 and 2.5 bytes of UTF-8 each, with the frame around it."""
    size = len(text.encode())
    return Counts(math.floor(size / _BYTES_PER_TOKEN.high), _MESSAGE_TOKENS + math.ceil(size / _BYTES_PER_TOKEN.low))


def _money(models: ModelChoice, uses: Iterable[tuple[str, _Use]]) -> Amounts | None:
    low = high = 0
    book = models.price_book
    for model, use in uses:
        price = book.price(model)
        if price is None:
            return None
        cached = price.cost(use.prompt.low, use.completion.low, use.prompt.low)
        low += min(cached, price.cost(use.prompt.low, use.completion.low))
        high += price.cost(use.prompt.high, use.completion.high)
    return Amounts(low / NANO, high / NANO)


def _simulated_seconds(settings: Settings, calls: Counts) -> Amounts:
    """Latency alone at full concurrency, to latency and 20 ms of work a call one after another by group."""
    latency = settings.simulated.latency_s
    return Amounts(calls.low * latency / settings.tfgrpo.concurrency, calls.high * (latency / 2 + 0.02))
