"""Does a process model behave as the reference does? All or nothing, beside the graded likeness of ``powl_footprint``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfgrpo.rewarders.base import RewardContext, Verdict, abstain_on_all
from tfgrpo.rewarders.powl import Footprint, footprint
from tfgrpo.rewarders.powl.scoring.answers import first_line, model_in, reference_in
from tfgrpo.stores.errors import PowlError
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class PowlEqualRewarder:
    """1 when who can directly follow whom, begin and end is as in the reference, 0 otherwise.

    Two spellings of one behaviour are equal: a chain as SEQUENCE or as PARTIAL_ORDER, branches in another order. What is
    compared tells block-structured models apart when each label is there once (Leemans, Fahland and van der Aalst 2013,
    "Discovering block-structured process models from event logs"), some placements of silent steps aside; with repeated
    labels, different models can be taken for equal. The reference is found as ``powl_footprint`` finds it; without one it
    abstains.
    """

    aliases: bool = False
    """Also take SEQ, AND, →, ×, ∧, ↺ and any case."""
    rewarder_id: str = "powl_equal"

    def __post_init__(self) -> None:
        if not isinstance(self.aliases, bool):
            raise ValueError(f"aliases is {self.aliases!r}; accepted: true or false")

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt. An output without a process model is wrong."""
        try:
            reference = reference_in(context.answer, context.metadata, "direct", aliases=self.aliases)
        except PowlError as error:
            return abstain_on_all(self, context, f"the reference cannot be used: {first_line(error)}")
        if reference is None:
            return abstain_on_all(self, context, "the item has no reference model")
        return [self._verdict(attempt.output, reference) for attempt in context.outputs]

    def _verdict(self, output: str, reference: Footprint) -> RewardScore:
        try:
            own = footprint(model_in(output, aliases=self.aliases), "direct")
        except PowlError as error:
            return RewardScore(self.rewarder_id, 0.0, f"no process model: {first_line(error)}")
        differs = _difference(own, reference)
        return RewardScore(self.rewarder_id, float(differs is None), differs or "the behaviour of the reference")


def _difference(own: Footprint, reference: Footprint) -> str | None:
    """The first thing in which they differ, from the coarse to the fine; None when in nothing."""
    if own.activities != reference.activities:
        missing = sorted(set(reference.activities) - set(own.activities))
        foreign = sorted(set(own.activities) - set(reference.activities))
        return f"other activities: {len(missing)} of the reference are missing, {len(foreign)} are not in it"
    for name, theirs, wanted in zip(own.rows._fields, own.rows, reference.rows, strict=True):
        if theirs != wanted:
            return f"other pairs in {name}"
    if reference.start_activities is None:  # a footprint that was given as pairs
        return None
    if (own.start_activities, own.end_activities) != (reference.start_activities, reference.end_activities):
        return "other activities at the beginning or the end"
    return None if own.min_trace_length == reference.min_trace_length else "other steps can be skipped"
