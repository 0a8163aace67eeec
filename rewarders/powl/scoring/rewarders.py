"""How good is a process model? Four rewarders: like the reference, valid, coherent in itself, agreed on by its group.

They read and compare; no model is asked. An output that holds no process model is a wrong answer and gets 0. Where
there is nothing to compare with they abstain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, get_args

from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Rewarder, Verdict, abstain_on_all
from tfgrpo.rewarders.powl import (
    Activity,
    Aggregate,
    Mode,
    Model,
    Operator,
    RelationWeights,
    Silent,
    footprint,
    footprint_similarity,
    group_consensus,
    labels_of,
    self_consistency,
    validate,
)
from tfgrpo.rewarders.powl.scoring.answers import first_line, model_in, reference_in
from tfgrpo.stores.errors import PowlError
from tfgrpo.stores.outcomes import RewardScore

MODEL_KEY: Final = "powl_model"
"""In an attempt's metadata: the model that its output was read as already."""
_Read: TypeAlias = Model | PowlError
_MODES: Final = get_args(Mode)
_AGGREGATES: Final = get_args(Aggregate)
_ANY: Final = Activity("any")


@dataclass(frozen=True, slots=True)
class PowlFootprintRewarder:
    """Likeness of each model's footprint to the reference's, from 0 to 1.

    The reference is the item's answer, else ``reference`` or ``footprint`` of its metadata: a model as text or JSON, or a
    footprint as JSON. Without one it abstains.
    """

    mode: Mode = "block"
    """Reading of a footprint: ``block``, ``direct`` or ``order``."""
    aggregate: Aggregate = "pooled"
    """``pooled``: all relations together, times the overlap of activities. ``macro``: the mean over relations."""
    aliases: bool = False
    """Also take SEQ, AND, →, ×, ∧, ↺ and any case."""
    direct_succession: float = 1.0
    """Weight of a pair of this relation; so the two below."""
    concurrency: float = 1.0
    exclusive: float = 1.0
    rewarder_id: str = "powl_footprint"

    @property
    def quick(self) -> bool:
        """Whether it is cheap enough for the event loop: a footprint of the tree alone is."""
        return self.mode == "block"

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, _MODES)
        _check_choice("aggregate", self.aggregate, _AGGREGATES)
        _check_flag("aliases", self.aliases)
        footprint_similarity(_ANY, _ANY, weights=self._weights)  # refuses weights that mean nothing

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""
        try:
            reference = reference_in(context.answer, context.metadata, self.mode, aliases=self.aliases)
        except PowlError as error:
            return abstain_on_all(self, context, f"the reference cannot be used: {first_line(error)}")
        if reference is None:
            return abstain_on_all(self, context, "the item has no reference model")

        def likeness(model: Model) -> tuple[float, str]:
            own = footprint(model, self.mode)
            score = footprint_similarity(own, reference, self.aggregate, weights=self._weights)
            shared = len(set(own.activities) & set(reference.activities))
            said = f"{shared} of {len(reference.activities)} activities of the reference, {len(own.activities)} its own"
            return score, f"{self.mode}, {self.aggregate}: {said}"

        return [_verdict(self, _read(attempt, self.aliases), likeness) for attempt in context.outputs]

    @property
    def _weights(self) -> RelationWeights:
        return RelationWeights(self.direct_succession, self.concurrency, self.exclusive)


@dataclass(frozen=True, slots=True)
class PowlValidRewarder:
    """1 for a model without a single error, 0 otherwise; fit for a gate."""

    aliases: bool = False
    labels: tuple[str, ...] | None = None
    """Labels that are allowed. None: any."""
    rewarder_id: str = "powl_valid"

    quick: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_flag("aliases", self.aliases)
        given: object = self.labels  # a pipeline file says what it likes
        if given is None:
            return
        if not isinstance(given, list | tuple) or not all(isinstance(label, str) for label in given):
            raise ValueError(f"labels is {given!r}; accepted: a list of labels")
        object.__setattr__(self, "labels", tuple(given))

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""

        def validity(model: Model) -> tuple[float, str]:
            errors = validate(model, allowed_labels=self.labels).errors
            return (
                (0.0, "; ".join(map(str, errors[:3])))
                if errors
                else (1.0, f"valid, {len(labels_of(model))} activities")
            )

        return [_verdict(self, _read(attempt, self.aliases), validity) for attempt in context.outputs]


@dataclass(frozen=True, slots=True)
class PowlSelfConsistencyRewarder:
    """How little each model contradicts itself, from 0 to 1; no reference is needed.

    It says that a model is coherent, not that it is right: a single activity contradicts nothing.
    """

    aliases: bool = False
    rewarder_id: str = "powl_self_consistency"

    quick: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_flag("aliases", self.aliases)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""

        def coherence(model: Model) -> tuple[float, str]:
            return self_consistency(model), f"{len(labels_of(model))} activities, pairs that are not contradicted"

        return [_verdict(self, _read(attempt, self.aliases), coherence) for attempt in context.outputs]


@dataclass(frozen=True, slots=True)
class PowlGroupConsensusRewarder:
    """Mean likeness of each model to the others of its group, from 0 to 1; no reference is needed.

    Outputs without a model get 0 and take no part. It abstains on a model that is the only one.
    """

    mode: Mode = "block"
    aggregate: Aggregate = "pooled"
    aliases: bool = False
    rewarder_id: str = "powl_group_consensus"

    compares: ClassVar[bool] = True
    """Has nothing to say of a single attempt."""

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, _MODES)
        _check_choice("aggregate", self.aggregate, _AGGREGATES)
        _check_flag("aliases", self.aliases)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""
        read = [_read(attempt, self.aliases) for attempt in context.outputs]
        models = [model for model in read if not isinstance(model, PowlError)]
        if len(models) < 2:
            reason = "it is the only process model of its group"
            return [
                _wrong(self, each) if isinstance(each, PowlError) else Abstained(self.rewarder_id, reason)
                for each in read
            ]
        scores = iter(group_consensus(models, self.aggregate, mode=self.mode))
        evidence = f"{self.mode}, {self.aggregate}: mean likeness to {len(models) - 1} others"
        return [
            _wrong(self, each) if isinstance(each, PowlError) else RewardScore(self.rewarder_id, next(scores), evidence)
            for each in read
        ]


POWL_REWARDERS: Final[Mapping[str, Callable[..., Rewarder]]] = MappingProxyType(
    {
        "powl_footprint": PowlFootprintRewarder,
        "powl_group_consensus": PowlGroupConsensusRewarder,
        "powl_self_consistency": PowlSelfConsistencyRewarder,
        "powl_valid": PowlValidRewarder,
    }
)
"""By name, each built by a call with its options."""


def _read(attempt: Attempt, aliases: bool) -> _Read:
    known = attempt.metadata.get(MODEL_KEY)
    if isinstance(known, Activity | Silent | Operator):
        return known
    try:
        return model_in(attempt.output, aliases=aliases)
    except PowlError as error:
        return error


def _verdict(rewarder: Rewarder, read: _Read, judged: Callable[[Model], tuple[float, str]]) -> RewardScore:
    if isinstance(read, PowlError):
        return _wrong(rewarder, read)
    score, evidence = judged(read)
    return RewardScore(rewarder.rewarder_id, score, evidence)


def _wrong(rewarder: Rewarder, error: PowlError) -> RewardScore:
    return RewardScore(rewarder.rewarder_id, 0.0, f"no process model: {first_line(error)}")


def _check_choice(name: str, given: object, accepted: Sequence[Any]) -> None:
    if given not in accepted:
        raise ValueError(f"{name} is {given!r}; accepted: {', '.join(accepted)}")


def _check_flag(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise ValueError(f"{name} is {given!r}; accepted: true or false")
