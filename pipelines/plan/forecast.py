"""Forecast calls, tokens and money of a run from its plan, and the gain that its nights put into force.

Each is given by bounds and a likely figure between them. Low: one turn a rollout, no group with a contrast, no sweep, equal
outputs in every group. High: all turns, two contrasts in every group, every structured answer repaired as often as allowed,
every lesson shortened once, both sides of the sweep, every output judged separately; where attempts may be long, two digests
for each reflection. Retries after faults are not included. With n items, groups of G, t turns, m contrasts and S batches, an
epoch is n·(G·t) + m + 2·S calls, plus those of judges: a batch has one curation and one question for what recurs, and more
curations if its proposals do not fit into one reply; a real model also reads the new lessons again. The sweep has a group
size of its own.

Likely, for the first run of a task: one turn a rollout (three with tools), a third of the groups with contrasts, no
repairs or shortenings, both sides, every output judged once, and a quarter of the upper bound of tokens for each call, a
sixteenth for learning calls. For later runs: where the last decided run with the same model ended between its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort
from tfgrpo.pipelines.settings.model_choice import ModelChoice
from tfgrpo.pipelines.settings.tree import MAX_PROPOSALS, MOST_KNOWN, MOST_REMEMBERED, ModelRole, Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.judge.model import JudgeLoad
from tfgrpo.rewarders.statistics.credit import MIXED, RULES, SETTLED, PlannedNight, gains_in_force
from tfgrpo.stores.ledger import NANO, Totals
from tfgrpo.stores.numeric import at_most, two_digits
from tfgrpo.stores.text import MAX_CHARS


@dataclass(frozen=True, slots=True)
class CountRange:
    """A number of things between two bounds."""

    low: int = 0
    high: int = 0
    likely: int = 0

    def __add__(self, other: CountRange) -> CountRange:
        return CountRange(self.low + other.low, self.high + other.high, self.likely + other.likely)

    def phrase(self, noun: str = "") -> str:
        """Return the likely figure and the upper bound as text; the lower one is nothing to plan by."""
        return f"about {_likely(self)} {noun}".rstrip() + f", at most {at_most(self.high)}"

    def at(self, share: float) -> CountRange:
        """Return the same bounds with the likely figure at a share of their distance: 0 is the lower, 1 the upper."""
        return replace(self, likely=round(self.low + share * (self.high - self.low)))


@dataclass(frozen=True, slots=True)
class Amounts:
    """A quantity between two bounds."""

    low: float
    high: float
    likely: float

    def at(self, share: float) -> Amounts:
        """Return the quantity as ``CountRange.at`` does."""
        return replace(self, likely=self.low + share * (self.high - self.low))


def _likely(bounds: CountRange | Amounts) -> str:
    return two_digits(bounds.likely) if float(f"{bounds.likely:.2g}") <= bounds.high else at_most(bounds.high)


_INFORMATIVE_ONE_IN = 3
_TOKENS_ONE_IN = 4
# Learning calls use less of their limit than attempts, and repairs are rare.
_LEARNING_TOKENS_ONE_IN = 16
_TOOL_TURNS = 3
_BYTES_PER_TOKEN_LOW, _BYTES_PER_TOKEN_HIGH = 2.5, 6.0
_MESSAGE_TOKENS = 40
_REPLY_TOKENS_LOW = 4
_TOOL_REPLY_TOKENS = 1000
_COMPLAINT_TOKENS = 300
# Words of one grader about one attempt.
_GRADER_TOKENS = 800
# Instruction of a digest.
_DIGEST_TOKENS = 500
# Instruction of the second reading of new lessons.
_SECOND_TOKENS = 500
_CAUSE_TOKENS = 200
NIGHTS = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class VisibleGain:
    """True gains over no lessons, in points, that come into force within some nights with a probability of 80 %.

    Each is given for the least and the most noise; None: above 100 points.
    """

    one_night: tuple[float | None, float | None]
    five_nights: tuple[float | None, float | None]
    ten_nights: tuple[float | None, float | None]
    planned: PlannedNight

    @classmethod
    def of(cls, planned: PlannedNight, noise: tuple[float, float] = (SETTLED, MIXED)) -> VisibleGain:
        """Return the gains at the least and the most variance of one attempt, as a share of the squared range."""
        least, most = (gains_in_force(planned, variance, NIGHTS) for variance in noise)
        one, five, ten = zip(least, most, strict=True)
        return cls(one, five, ten, planned)

    def __str__(self) -> str:
        one, five, ten = map(_range, (self.one_night, self.five_nights, self.ten_nights))
        return (
            f"a total gain of {one} point{'' if one == '1' else 's'} over no lessons would be in force after one night "
            f"with 80 % probability, {five} within {NIGHTS[1]}, {ten} within {NIGHTS[2]}"
        )


def _range(gains: tuple[float | None, float | None]) -> str:
    low, high = ("over 100" if gain is None else two_digits(gain) for gain in gains)
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of one run."""

    calls: CountRange
    prompt_tokens: CountRange
    completion_tokens: CountRange
    usd: Amounts | None
    """None when the price of a model in use is unknown."""
    simulated: bool
    gain: VisibleGain | None = None
    """What nights like this one put into force; None without a sweep."""
    saturated: bool = False
    """Whether the sweep has half of its items, because no night changed what is in force for a while."""

    def __str__(self) -> str:
        money = "price unknown"
        if self.usd is not None:
            money = f"about {_likely(self.usd)} USD, at most {at_most(self.usd.high)}"
        tokens = self.prompt_tokens + self.completion_tokens
        label = " (SIMULATED)" if self.simulated else ""
        half = "; half as many items in the sweep, for the task is saturated" if self.saturated else ""
        return f"{self.calls.phrase('calls')}; {tokens.phrase('tokens')}; {money}{label}{half}"

    def after(self, manifest: Mapping[str, Any]) -> Forecast:
        """Return the forecast corrected by an earlier run, as far as that run measured and forecast the same."""
        ahead, spent = manifest["forecast"], Totals.from_json(manifest["ledger"])
        if spent.unmeasured_attempts:
            return self
        kinds = ("prompt_tokens", "completion_tokens")
        foreseen = {bound: sum(ahead[kind][bound] for kind in kinds) for bound in ("low", "high")}
        tokens = _share(spent.tokens, foreseen)
        usd = self.usd
        if usd is not None and ahead["usd"] is not None and not spent.unknown_price_calls:
            usd = usd.at(_share(spent.usd, ahead["usd"]))
        return replace(
            self,
            calls=self.calls.at(_share(spent.calls, ahead["calls"])),
            prompt_tokens=self.prompt_tokens.at(tokens),
            completion_tokens=self.completion_tokens.at(tokens),
            usd=usd,
        )


def _share(value: float, bounds: Mapping[str, float]) -> float:
    """Return the position of a figure between two bounds, from 0 to 1."""
    low, high = bounds["low"], bounds["high"]
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0


@dataclass(frozen=True, slots=True)
class _Use:
    calls: CountRange = CountRange()
    prompt: CountRange = CountRange()
    completion: CountRange = CountRange()
    tokens_one_in: int = _TOKENS_ONE_IN

    def __add__(self, other: _Use) -> _Use:
        return _Use(self.calls + other.calls, self.prompt + other.prompt, self.completion + other.completion)

    def with_likely_tokens(self) -> _Use:
        """Return the same use with the likely tokens: a share of the most, as of the calls, and of what a call may use."""
        share = self.calls.likely / (self.tokens_one_in * self.calls.high) if self.calls.high else 0.0
        prompt, completion = (
            replace(tokens, likely=max(tokens.low, round(tokens.high * share))) for tokens in (self.prompt, self.completion)
        )
        return _Use(self.calls, prompt, completion)


_RoleUse: TypeAlias = tuple[ModelRole, str, _Use]


def forecast(
    settings: Settings,
    *,
    models: ModelChoice,
    pack: LoadedPack,
    cohorts: Sequence[Cohort],
    evaluation: Sequence[Item],
    judges: Callable[[int], Sequence[JudgeLoad]] = lambda _: (),
    measured: Sequence[Item] = (),
    saturated: bool = False,
) -> Forecast:
    """Return the forecast of a run over these cohorts and this sweep; an empty ``evaluation`` has no comparison.

    ``measured``: items of the groups of a run that measures lessons. ``judges``: the calls of the rewarders for a group of a
    size. ``saturated``: whether ``evaluation`` is half of a sweep.
    """
    estimate = _Estimate(settings, pack, models)
    learned_on = [item for cohort in cohorts for item in cohort.items]
    phases: tuple[tuple[Sequence[Item], int, Callable[[_Use], _Use]], ...] = (
        (learned_on, settings.tfgrpo.actors_per_item, lambda use: use),
        (evaluation, settings.gate.group_size, lambda use: _or_none(use + use)),
        (measured, settings.tfgrpo.measuring_size, _or_none),
    )
    learning = estimate.learning(cohorts) if settings.tfgrpo.enabled else _Use()
    uses: list[_RoleUse] = [("reflection", models.reflection_name, learning.with_likely_tokens())]
    for items, size, bounded in phases:
        uses.append(("actor", models.name, bounded(estimate.rollouts(items, size)).with_likely_tokens()))
        for load in judges(size):
            judged = bounded(estimate.judging(load, items)).with_likely_tokens()
            uses.append(("judge", models.judge(load.options.model), judged))
    total = sum((use for _, _, use in uses), _Use())
    first = settings.tfgrpo.group_size // 2
    planned = PlannedNight(
        groups=len(learned_on),
        halves=(first, settings.tfgrpo.group_size - first),
        swept=len(evaluation),
        attempts=settings.gate.group_size,
    )
    return Forecast(
        calls=total.calls,
        prompt_tokens=total.prompt,
        completion_tokens=total.completion,
        usd=_money(models, uses),
        simulated=models.simulated,
        gain=VisibleGain.of(planned) if evaluation and cohorts else None,
        saturated=saturated,
    )


class _Estimate:
    def __init__(self, settings: Settings, pack: LoadedPack, models: ModelChoice) -> None:
        self._learning, self._model = settings.tfgrpo, settings.model
        self._reply, self._judgement, self._learned = (
            models.roles[role].max_tokens for role in ("actor", "judge", "reflection")
        )
        kind, most = settings.actor.kind, settings.actor.max_turns
        self._turns = CountRange(
            low=1 if kind in ("chat", "tools") else 0,  # a user's own agent may call no model
            high=1 if kind == "chat" else most,
            likely=min(most, _TOOL_TURNS) if kind == "tools" else 1,
        )
        self._read_again = 0 if models.simulated else 1
        self._chat, self._graders = kind == "chat", len(settings.rewarders)
        self._slots = pack.manifest.experience_slots
        self._system = _tokens([pack.text])
        self._templates = {role: _tokens([text]).high for role, text in pack.templates.items()}
        self._lesson = math.ceil(MAX_CHARS / _BYTES_PER_TOKEN_LOW) + 4

    def rollouts(self, items: Sequence[Item], size: int) -> _Use:
        turns, reply, rollouts = self._turns, self._reply, len(items) * size
        prompts = _tokens(item.system_prompt + item.prompt for item in items)
        # Every turn sends all earlier turns again.
        resent = turns.high * (turns.high - 1) // 2 * (reply + _TOOL_REPLY_TOKENS)
        system = self._system.high + self._templates["lessons"] + self._slots * self._lesson
        return _Use(
            calls=CountRange(rollouts * turns.low, rollouts * turns.high, rollouts * turns.likely),
            prompt=CountRange(
                turns.low * (rollouts * self._system.low + size * prompts.low),
                turns.high * (rollouts * system + size * prompts.high) + rollouts * resent,
            ),
            completion=CountRange(rollouts * turns.low * _REPLY_TOKENS_LOW, rollouts * turns.high * reply),
        )

    def judging(self, load: JudgeLoad, items: Sequence[Item]) -> _Use:
        groups, reply = len(items), load.options.max_tokens or self._judgement
        longest = min(self._reply + _MESSAGE_TOKENS, math.ceil(4 * load.options.max_chars / _BYTES_PER_TOKEN_LOW))
        instructions = _tokens([load.instructions])
        tasks, answers = _tokens(item.prompt for item in items), _tokens(item.answer for item in items)
        # A repeated request includes the earlier replies and their faults.
        again = load.options.retries * (reply + _COMPLAINT_TOKENS)
        high = groups * (instructions.high + load.shown * longest + again) + tasks.high + answers.high
        low = groups * (instructions.low + load.shown * _REPLY_TOKENS_LOW) + tasks.low
        calls = (load.calls_low, load.calls_high, load.questions)
        return _Use(
            calls=CountRange(*(groups * each for each in calls)),
            prompt=CountRange(load.calls_low * low, load.calls_high * high),
            completion=CountRange(groups * load.calls_low * _REPLY_TOKENS_LOW, groups * load.calls_high * reply),
        )

    def learning(self, cohorts: Sequence[Cohort]) -> _Use:
        items = [item for cohort in cohorts for item in cohort.items]
        batches = [batch for cohort in cohorts for batch in cohort.batches]
        total = sum((self._curation(len(batch)) for batch in batches), self._reflections(items))
        likely = math.ceil(len(items) / _INFORMATIVE_ONE_IN) * self._contrasts + (2 + self._read_again) * len(batches)
        completion = CountRange(0, total.calls.high * self._learned)
        return _Use(replace(total.calls, likely=likely), total.prompt, completion, _LEARNING_TOKENS_ONE_IN)

    @property
    def _contrasts(self) -> int:
        """Most contrasts of one group: of two attempts there is one."""
        return min(RULES.contrasts, self._learning.actors_per_item - 1)

    def _reflections(self, items: Sequence[Item]) -> _Use:
        reflections = self._contrasts * len(items)
        room = math.ceil(self._learning.REFLECTION_CHARS / _BYTES_PER_TOKEN_LOW)
        whole = 2 * (self._reply + _MESSAGE_TOKENS)
        # Results of tools, and what an agent of one's own returns, may be of any length.
        attempts = min(whole, room) if self._chat else room
        beside = 2 * self._graders * _GRADER_TOKENS + 2 * self._slots * self._lesson
        read = self._contrasts * _tokens(item.prompt + item.answer for item in items).high
        prompts = reflections * (self._templates["reflect"] + attempts + beside) + read
        # The two attempts contrasted are condensed where they may not fit.
        long = not self._chat or whole * _BYTES_PER_TOKEN_HIGH > self._learning.REFLECTION_CHARS
        digests = 2 * reflections if long else 0
        condensed = self._answered(digests, digests * (_DIGEST_TOKENS + room) + 2 * read * (digests > 0), texts=0)
        return condensed + self._answered(reflections, prompts, texts=self._learning.lessons_of(self._contrasts))

    def _curation(self, groups: int) -> _Use:
        size = self._model.curation_size
        proposals = min(MAX_PROPOSALS, groups * self._learning.LESSONS_PER_GROUP)
        replies, each = max(1, math.ceil(proposals / size)), min(proposals, size)
        library = MOST_KNOWN * (self._lesson + _CAUSE_TOKENS)
        shown = self._templates["curate"] + library + (each + MOST_REMEMBERED) * self._lesson
        causes = self._templates["reflect"] + groups * self._contrasts * _CAUSE_TOKENS
        curated = self._answered(replies, replies * shown, texts=each)
        again = self._answered(self._read_again, _SECOND_TOKENS + proposals * self._lesson, texts=0)
        return curated + self._answered(1, causes, texts=self._learning.LESSONS_PER_GROUP) + again

    def _answered(self, answers: int, prompts: int, *, texts: int) -> _Use:
        repairs = self._learning.MAX_REPAIRS
        replies = repairs * (repairs + 1) // 2 * self._learned
        repaired = repairs * self._templates["repair"] + replies
        shortened = texts * (self._templates["shorten"] + 2 * self._lesson)
        return _Use(
            calls=CountRange(0, answers * (1 + repairs + texts)),
            prompt=CountRange(0, (1 + repairs) * prompts + answers * (repaired + shortened)),
        )


def _or_none(use: _Use) -> _Use:
    """Return the use of what may not be run at all, such as a sweep without lessons."""
    return _Use(replace(use.calls, low=0), replace(use.prompt, low=0), replace(use.completion, low=0))


def _tokens(texts: Iterable[str]) -> CountRange:
    """Return the tokens of messages without a tokenizer: 6 to 2.5 bytes of UTF-8 each, plus the frame of a message."""
    low = high = 0
    for text in texts:
        size = len(text.encode())
        low += math.floor(size / _BYTES_PER_TOKEN_HIGH)
        high += _MESSAGE_TOKENS + math.ceil(size / _BYTES_PER_TOKEN_LOW)
    return CountRange(low, high)


def _money(models: ModelChoice, uses: Iterable[_RoleUse]) -> Amounts | None:
    low = high = likely = 0
    for role, model, use in uses:
        price = models.price_list(role).get(model)
        if price is None:
            return None
        cached = price.cost(use.prompt.low, use.completion.low, use.prompt.low)
        low += min(cached, price.cost(use.prompt.low, use.completion.low))
        high += price.cost(use.prompt.high, use.completion.high)
        likely += price.cost(use.prompt.likely, use.completion.likely)
    return Amounts(low / NANO, high / NANO, likely / NANO)
