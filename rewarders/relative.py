"""The ``relative`` rewarder: rank the attempts of a group by the totals of the other rewarders.

It ignores outputs, and refuses fewer than two attempts. ``tfgrpo.rewarders.judge.pairs`` ranks by comparing outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.options import Name, Options, accepts
from tfgrpo.rewarders.scorer import Abstained, RewardContext, Verdict
from tfgrpo.stores.errors import PipelineError, Problem, RewardError
from tfgrpo.stores.outcomes import RewardScore

if TYPE_CHECKING:
    from tfgrpo.rewarders.judge.pairs import PairwiseRewarder

Variant: TypeAlias = Literal["rank", "centered", "zscore"]


def relative(rewarder_id: str = "relative", **options: Any) -> RelativeRewarder | PairwiseRewarder:
    """Return the scorer of a pipeline file: by totals, or by comparisons when there is an option ``judge``.

    Raises ``PipelineError`` with every problem of the options.
    """
    variant, judge = options.pop("variant", "rank"), options.pop("judge", None)
    problems = [Problem(each, repr(options[each]), "judge, rewarder_id, variant") for each in sorted(options)]
    try:
        by_totals = RelativeRewarder(variant, rewarder_id)
    except PipelineError as error:
        problems += error.problems
    if isinstance(judge, Mapping):
        from tfgrpo.rewarders.judge.options import judge_options  # noqa: PLC0415 - only for judges
        from tfgrpo.rewarders.judge.pairs import PairwiseRewarder  # noqa: PLC0415 - as above

        try:
            made = judge_options(judge)
            for each in ("preset", "models"):
                if (value := getattr(made, each)) is not None:
                    accepted = "the rewarder judge: presets and panels do not compare"
                    problems.append(Problem(f"judge.{each}", repr(value), accepted))
        except PipelineError as error:
            problems += [Problem(f"judge.{each.source}", each.given, each.accepted) for each in error.problems]
    elif judge is not None:
        problems.append(Problem("judge", repr(judge), "options of a judge, or {} for all defaults"))
    if problems:
        raise PipelineError(problems)
    return by_totals if judge is None else PairwiseRewarder(made, variant, rewarder_id)


@dataclass(frozen=True, slots=True)
class RelativeRewarder(Options):
    """Rank of each attempt's total among the attempts of its group.

    A flat group gets 0.5 throughout under ``rank``, and 0.0 under the two others. It abstains on attempts without a total,
    which are not ranked.
    """

    variant: Annotated[Variant, accepts(", ".join(get_args(Variant)))] = "rank"
    """``rank``: 1 best to 0 worst, ties share the mean. ``centered``: total minus group mean.
    ``zscore``: the same over the population standard deviation (plus 1e-8)."""
    rewarder_id: Name = "relative"

    ranks: ClassVar[bool] = True

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Rank ``context.prior_scores``. Raises ``RewardError`` when fewer than two attempts have a total."""
        ranked = [attempt for attempt in context.outputs if attempt.rollout_id in context.prior_scores]
        if len(ranked) < 2:
            raise RewardError(f"{self.rewarder_id}: {len(ranked)} attempt(s) with a total; ranking needs at least two")
        totals = [float(context.prior_scores[attempt.rollout_id]) for attempt in ranked]
        try:
            values = relative_values(totals, self.variant)
        except ValueError as error:
            raise RewardError(f"{self.rewarder_id}: {error}") from error
        scores = {
            attempt.rollout_id: self._score(value, total, totals)
            for attempt, value, total in zip(ranked, values, totals, strict=True)
        }
        unranked = Abstained(self.rewarder_id, "no total from the other rewarders to rank")
        return [scores.get(attempt.rollout_id, unranked) for attempt in context.outputs]

    def _score(self, value: float, total: float, totals: Sequence[float]) -> Verdict:
        better = sum(other > total for other in totals)
        equal = sum(other == total for other in totals) - 1
        evidence = f"total {total:.6g}: {better} of {len(totals)} better, {equal} equal ({self.variant})"
        return RewardScore(self.rewarder_id, value, evidence)


def relative_values(totals: Sequence[float], variant: Variant) -> tuple[float, ...]:
    """Return the totals of one group relative to each other. Raises ``ValueError`` for none, and for what is no score."""
    if variant == "rank":
        return relative_ranks(totals)
    return group_advantage(totals, "mean_only" if variant == "centered" else "grpo").advantages
