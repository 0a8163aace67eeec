"""Rewarders of process models: similar or equal to the reference, valid, self-consistent, agreed on by the group.

They parse and compare; no language model is called. An output without a process model scores 0. Without anything to
compare with they abstain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, get_args

from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Rewarder, Verdict, abstain_on_all
from tfgrpo.rewarders.powl import (
    Activity,
    Footprint,
    Model,
    Operator,
    Silent,
    footprint,
    footprint_similarity,
    group_consensus,
    labels_of,
    self_consistency,
    validate,
)
from tfgrpo.rewarders.powl.footprints import MODES, Mode
from tfgrpo.rewarders.powl.scoring.answers import first_line, model_in, reference_in
from tfgrpo.rewarders.powl.similarity import Aggregate, RelationWeights
from tfgrpo.stores.errors import OptionError, PowlError
from tfgrpo.stores.outcomes import RewardScore

MODEL_KEY: Final = "powl_model"
"""Metadata of an attempt: the model that its output was parsed to already."""
_Scored: TypeAlias = tuple[float, str]
"""Score and evidence of one model."""


@dataclass(frozen=True, slots=True)
class PowlFootprintRewarder:
    """Similarity of each model's footprint to the reference's, from 0 to 1.

    The reference is the item's answer, else ``reference`` or ``footprint`` of its metadata: a model as text or JSON, or a
    footprint as JSON. Without one it abstains.
    """

    mode: Mode = "block"
    """Reading of a footprint: ``block``, ``direct`` or ``order``."""
    aggregate: Aggregate = "pooled"
    """``pooled``: all relations together, times the overlap of activities. ``macro``: the mean over relations."""
    aliases: bool = False
    """Also accept SEQ, AND, →, ×, ∧, ↺ and any case."""
    direct_succession: float = 1.0
    """Weight of a pair of this relation, as the two below."""
    concurrency: float = 1.0
    exclusive: float = 1.0
    rewarder_id: str = "powl_footprint"

    @property
    def quick(self) -> bool:
        """Whether it is cheap enough for the event loop: a ``block`` footprint is."""
        return self.mode == "block"

    def __post_init__(self) -> None:
        _check_options(self.aliases, self.mode, self.aggregate)
        footprint_similarity(Silent(), Silent(), weights=self._weights)  # refuses unusable weights

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""

        def similarity(model: Model, reference: Footprint) -> _Scored:
            own = footprint(model, self.mode)
            score = footprint_similarity(own, reference, self.aggregate, weights=self._weights)
            shared = len(set(own.activities) & set(reference.activities))
            counts = (
                f"{shared} of {len(reference.activities)} activities of the reference, {len(own.activities)} its own"
            )
            return score, f"{self.mode}, {self.aggregate}: {counts}"

        return _against_reference(self, context, self.mode, self.aliases, similarity)

    @property
    def _weights(self) -> RelationWeights:
        return RelationWeights(self.direct_succession, self.concurrency, self.exclusive)


@dataclass(frozen=True, slots=True)
class PowlEqualRewarder:
    """1 when directly-follows relation, first and last activities are those of the reference, 0 otherwise.

    Two spellings of one behaviour are equal: a chain as SEQUENCE or as PARTIAL_ORDER, branches in another order. The
    comparison distinguishes block-structured models with unique labels (Leemans, Fahland and van der Aalst 2013,
    "Discovering block-structured process models from event logs"), except for some positions of silent steps; with
    repeated labels, different models can be taken for equal. The reference is that of ``powl_footprint``; without one it
    abstains.
    """

    aliases: bool = False
    """Also accept SEQ, AND, →, ×, ∧, ↺ and any case."""
    rewarder_id: str = "powl_equal"

    def __post_init__(self) -> None:
        _check_options(self.aliases)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. An output without a process model is wrong."""

        def equality(model: Model, reference: Footprint) -> _Scored:
            difference = _difference(footprint(model, "direct"), reference)
            return float(difference is None), difference or "the behaviour of the reference"

        return _against_reference(self, context, "direct", self.aliases, equality)


@dataclass(frozen=True, slots=True)
class PowlValidRewarder:
    """1 for a model without errors, 0 otherwise; usable as a gate."""

    aliases: bool = False
    labels: tuple[str, ...] | None = None
    """Allowed labels. None: any."""
    rewarder_id: str = "powl_valid"

    quick: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_options(self.aliases)
        given: object = self.labels  # any value of a pipeline file
        if given is None:
            return
        if not isinstance(given, list | tuple) or not all(isinstance(label, str) for label in given):
            raise OptionError(f"labels is {given!r}", "a list of labels")
        object.__setattr__(self, "labels", tuple(given))

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""

        def validity(model: Model) -> _Scored:
            errors = validate(model, allowed_labels=self.labels).errors
            if errors:
                return 0.0, "; ".join(map(str, errors[:3]))
            return 1.0, f"valid, {len(labels_of(model))} activities"

        return _each(self, context, self.aliases, validity)


@dataclass(frozen=True, slots=True)
class PowlSelfConsistencyRewarder:
    """Share of related pairs that a model does not contradict, from 0 to 1; needs no reference.

    It measures coherence, not correctness: a single activity contradicts nothing.
    """

    aliases: bool = False
    rewarder_id: str = "powl_self_consistency"

    quick: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_options(self.aliases)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""

        def coherence(model: Model) -> _Scored:
            return self_consistency(model), f"{len(labels_of(model))} activities, pairs that are not contradicted"

        return _each(self, context, self.aliases, coherence)


@dataclass(frozen=True, slots=True)
class PowlGroupConsensusRewarder:
    """Mean similarity of each model to the others of its group, from 0 to 1; needs no reference.

    Outputs without a model score 0 and are not compared with. It abstains on the only model of a group.
    """

    mode: Mode = "block"
    aggregate: Aggregate = "pooled"
    aliases: bool = False
    rewarder_id: str = "powl_group_consensus"

    compares: ClassVar[bool] = True
    """Cannot score a single attempt."""

    def __post_init__(self) -> None:
        _check_options(self.aliases, self.mode, self.aggregate)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""
        parsed = [_model_of(attempt, self.aliases) for attempt in context.outputs]
        models = [model for model in parsed if not isinstance(model, PowlError)]
        if len(models) < 2:
            return _verdicts(self, parsed, lambda _: "it is the only process model of its group")
        scores = iter(group_consensus(models, self.aggregate, mode=self.mode))
        evidence = f"{self.mode}, {self.aggregate}: mean similarity to {len(models) - 1} others"
        return _verdicts(self, parsed, lambda _: (next(scores), evidence))


POWL_REWARDERS: Final[Mapping[str, Callable[..., Rewarder]]] = MappingProxyType(
    {
        "powl_equal": PowlEqualRewarder,
        "powl_footprint": PowlFootprintRewarder,
        "powl_group_consensus": PowlGroupConsensusRewarder,
        "powl_self_consistency": PowlSelfConsistencyRewarder,
        "powl_valid": PowlValidRewarder,
    }
)
"""Constructors by name; options are their keyword arguments."""


def _against_reference(
    rewarder: Rewarder,
    context: RewardContext,
    mode: Mode,
    aliases: bool,
    scored: Callable[[Model, Footprint], _Scored],
) -> Sequence[Verdict]:
    try:
        reference = reference_in(context.answer, context.metadata, mode, aliases=aliases)
    except PowlError as error:
        return abstain_on_all(rewarder, context, f"the reference cannot be used: {first_line(error)}")
    if reference is None:
        return abstain_on_all(rewarder, context, "the item has no reference model")
    return _each(rewarder, context, aliases, lambda model: scored(model, reference))


def _each(
    rewarder: Rewarder, context: RewardContext, aliases: bool, scored: Callable[[Model], _Scored]
) -> list[Verdict]:
    return _verdicts(rewarder, [_model_of(attempt, aliases) for attempt in context.outputs], scored)


def _verdicts(
    rewarder: Rewarder, parsed: Sequence[Model | PowlError], scored: Callable[[Model], _Scored | str]
) -> list[Verdict]:
    """Score each model, or abstain for the reason that ``scored`` returns. No model scores 0."""
    verdicts: list[Verdict] = []
    for model in parsed:
        score = (0.0, f"no process model: {first_line(model)}") if isinstance(model, PowlError) else scored(model)
        named = rewarder.rewarder_id
        verdicts.append(Abstained(named, score) if isinstance(score, str) else RewardScore(named, *score))
    return verdicts


def _model_of(attempt: Attempt, aliases: bool) -> Model | PowlError:
    known = attempt.metadata.get(MODEL_KEY)
    if isinstance(known, Activity | Silent | Operator):
        return known
    try:
        return model_in(attempt.output, aliases=aliases)
    except PowlError as error:
        return error


def _difference(own: Footprint, reference: Footprint) -> str | None:
    """Return the first difference, from coarse to fine; None when they are equal."""
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


def _check_options(aliases: Any, mode: Any = "block", aggregate: Any = "pooled") -> None:
    for name, given, accepted in (("mode", mode, MODES), ("aggregate", aggregate, get_args(Aggregate))):
        if given not in accepted:
            raise OptionError(f"{name} is {given!r}", ", ".join(accepted))
    if not isinstance(aliases, bool):
        raise OptionError(f"aliases is {aliases!r}", "true or false")
