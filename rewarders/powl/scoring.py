"""Rewarders of process models: similar or equal to the reference, valid, self-consistent, agreed on by the group.

An output without a process model scores 0. Without anything to compare with they abstain. Each takes ``aliases``: also
accept SEQ, AND, →, ×, ∧, ↺ and any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, TypeAlias, get_args

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import Flag, Name, NonNegative, Options, accepts
from tfgrpo.rewarders.powl.footprints import (
    MODES,
    RELATIONS,
    Aggregate,
    Footprint,
    FootprintMode,
    RelationWeights,
    footprint,
    footprint_of,
    footprint_similarity,
    group_consensus,
    reference_in,
    self_consistency,
)
from tfgrpo.rewarders.powl.model import Model, labels_of, validate
from tfgrpo.rewarders.powl.text import model_in
from tfgrpo.rewarders.scorer import Abstained, RewardContext, Verdict, abstain_on_all
from tfgrpo.stores.errors import PipelineError, PowlError
from tfgrpo.stores.outcomes import RewardScore

MODEL_KEY: Final = "powl_model"
"""Metadata of an attempt: the model that its output was parsed to already."""
REFERENCE_KEYS: Final = ("reference", "footprint")
"""Metadata of an item without an answer that may be its reference: a model or a footprint."""
_Measured: TypeAlias = tuple[float, str] | str
_Mode = Annotated[FootprintMode, accepts(", ".join(MODES))]
_Aggregate = Annotated[Aggregate, accepts(", ".join(get_args(Aggregate)))]


@dataclass(frozen=True, slots=True)
class _ModelScorer(Options):
    aliases: Flag = False
    rewarder_id: Name = "powl"

    quick: ClassVar[bool] = False

    def measure(self, context: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        """Raise ``PowlError`` with the reason to abstain on all attempts."""
        raise NotImplementedError

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        parsed: list[Model | PowlError] = []
        for attempt in context.outputs:
            own: Model | None = attempt.metadata.get(MODEL_KEY)
            try:
                parsed.append(own or model_in(attempt.output, aliases=self.aliases))
            except PowlError as error:
                parsed.append(error)
        try:
            measured = iter(self.measure(context, [each for each in parsed if not isinstance(each, PowlError)]))
        except PowlError as error:
            return abstain_on_all(self.rewarder_id, context, error.summary)
        name, verdicts = self.rewarder_id, []
        for model in parsed:
            score = (0.0, f"no process model: {model.summary}") if isinstance(model, PowlError) else next(measured)
            verdicts.append(Abstained(name, score) if isinstance(score, str) else RewardScore(name, *score))
        return verdicts


@dataclass(frozen=True, slots=True)
class PowlFootprint(_ModelScorer):
    """Similarity of each model's footprint to that of the answer, else of ``reference`` or ``footprint`` in the metadata."""

    rewarder_id: Name = "powl_footprint"
    mode: _Mode = "block"
    aggregate: _Aggregate = "pooled"
    """``pooled``: all relations together, times the overlap of activities; ``macro``: the mean over relations."""
    direct_succession: NonNegative = 1.0
    """Weight of a pair of this relation, as the next two."""
    concurrency: NonNegative = 1.0
    exclusive: NonNegative = 1.0

    def __post_init__(self) -> None:
        weights = (self.direct_succession, self.concurrency, self.exclusive)
        if not any(weights):
            raise PipelineError.one("exclusive", repr(self.exclusive), f"a number above 0 for one of {', '.join(RELATIONS)}")

    @property
    def quick(self) -> bool:  # type: ignore[override]  # of the mode, where others have one answer
        """Whether it is cheap enough for the event loop."""
        return self.mode == "block"

    def measure(self, context: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        reference = _reference(context, self.mode, self.aliases)
        weights = RelationWeights(self.direct_succession, self.concurrency, self.exclusive)
        measured: list[_Measured] = []
        for own in (footprint(model, self.mode) for model in models):
            shared, wanted = len({*own.activities} & {*reference.activities}), len(reference.activities)
            counts = f"{shared} of {wanted} activities of the reference, {len(own.activities)} its own"
            score = footprint_similarity(own, reference, self.aggregate, weights=weights)
            measured.append((score, f"{self.mode}, {self.aggregate}: {counts}"))
        return measured


@dataclass(frozen=True, slots=True)
class PowlEqual(_ModelScorer):
    """1 when directly-follows relation, first and last activities are those of the reference, 0 otherwise.

    The comparison distinguishes block-structured models with unique labels (Leemans, Fahland and van der Aalst 2013,
    "Discovering block-structured process models from event logs"), except for some positions of silent steps; with
    repeated labels, different models can be taken for equal. The reference is that of ``powl_footprint``.
    """

    rewarder_id: Name = "powl_equal"

    def measure(self, context: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        reference = _reference(context, "direct", self.aliases)
        differences = [_difference(footprint(model, "direct"), reference) for model in models]
        return [(float(each is None), each or "the behaviour of the reference") for each in differences]


@dataclass(frozen=True, slots=True)
class PowlValid(_ModelScorer):
    """1 for a model without errors, 0 otherwise; usable as a gate."""

    rewarder_id: Name = "powl_valid"
    labels: Annotated[tuple[str, ...] | None, accepts("a list of labels")] = None

    quick: ClassVar[bool] = True

    def measure(self, _: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        measured: list[_Measured] = []
        for model in models:
            errors = validate(model, allowed_labels=self.labels).errors
            evidence = "; ".join(map(str, errors[:3])) or f"valid, {len(labels_of(model))} activities"
            measured.append((float(not errors), evidence))
        return measured


@dataclass(frozen=True, slots=True)
class PowlSelfConsistency(_ModelScorer):
    """Share of related pairs that a model does not contradict, from 0 to 1: it measures coherence, not correctness."""

    rewarder_id: Name = "powl_self_consistency"

    quick: ClassVar[bool] = True

    def measure(self, _: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        evidence = "{} activities, pairs that are not contradicted".format
        return [(self_consistency(model), evidence(len(labels_of(model)))) for model in models]


@dataclass(frozen=True, slots=True)
class PowlGroupConsensus(_ModelScorer):
    """Mean similarity of each model to the others of its group, from 0 to 1. It abstains on the only model of a group."""

    rewarder_id: Name = "powl_group_consensus"
    mode: _Mode = "block"
    aggregate: _Aggregate = "pooled"

    compares: ClassVar[bool] = True

    def measure(self, _: RewardContext, models: Sequence[Model]) -> Sequence[_Measured]:
        if len(models) < 2:
            return ["it is the only process model of its group" for _ in models]
        evidence = f"{self.mode}, {self.aggregate}: mean similarity to {len(models) - 1} others"
        return [(score, evidence) for score in group_consensus(models, self.aggregate, mode=self.mode)]


def _reference(context: RewardContext, mode: FootprintMode, aliases: bool) -> Footprint:
    listed = (context.metadata[key] for key in REFERENCE_KEYS if context.metadata.get(key))
    written = context.answer if context.answer.strip() else next(listed, None)
    if written is None:
        raise PowlError("the item has no reference model")
    try:
        reference = reference_in(written, aliases=aliases)
        if isinstance(reference, Footprint) and reference.mode != mode:
            raise PowlError(f"it is a footprint of mode {reference.mode}, and the mode asked for is {mode}")
    except PowlError as error:
        raise PowlError(f"the reference cannot be used: {error.summary}") from error
    return footprint_of(reference, mode)


def _difference(own: Footprint, reference: Footprint) -> str | None:
    if own.activities != reference.activities:
        missing = sorted(set(reference.activities) - set(own.activities))
        extra = sorted(set(own.activities) - set(reference.activities))
        return f"other activities: {len(missing)} of the reference are missing, {len(extra)} are not in it"
    for name, theirs, wanted in zip(own.rows._fields, own.rows, reference.rows, strict=True):
        if theirs != wanted:
            return f"other pairs in {name}"
    if reference.start_activities is None:  # a footprint that was given as pairs
        return None
    if (own.start_activities, own.end_activities) != (reference.start_activities, reference.end_activities):
        return "other activities at the beginning or the end"
    return None if own.min_trace_length == reference.min_trace_length else "other steps can be skipped"
