"""Rewarders of process models: similar or equal to the reference, valid, self-consistent, agreed on by the group.

They find the model in an answer (text or JSON, by the first character) and compare; no language model is called. An output
without a process model scores 0. Without anything to compare with they abstain. Each takes ``aliases``: also accept SEQ,
AND, →, ×, ∧, ↺ and any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, get_args

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import Flag, Name, Options
from tfgrpo.rewarders.powl.footprints import MODES, Footprint, Mode, footprint, footprint_of
from tfgrpo.rewarders.powl.json_form import model_in
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Silent, labels_of
from tfgrpo.rewarders.powl.similarity import (
    Aggregate,
    RelationWeights,
    footprint_similarity,
    group_consensus,
    reference_in,
    self_consistency,
)
from tfgrpo.rewarders.powl.validation import validate
from tfgrpo.rewarders.scorer import Abstained, RewardContext, Verdict, abstain_on_all
from tfgrpo.stores.errors import OptionError, PowlError
from tfgrpo.stores.outcomes import RewardScore

MODEL_KEY: Final = "powl_model"
"""Metadata of an attempt: the model that its output was parsed to already."""
REFERENCE_KEYS: Final = ("reference", "footprint")
"""Metadata of an item without an answer that may be its reference: a model or a footprint."""
_Measured: TypeAlias = tuple[float, str] | str
"""Score and evidence of one model, or the reason to abstain on it."""
_Measure: TypeAlias = Callable[[RewardContext, Sequence[Model]], Sequence[_Measured]]
"""Measures the models of a group. Raises ``PowlError`` with the reason to abstain on all attempts."""


@dataclass(frozen=True, slots=True)
class ModelRewarder(Options):
    """Scores the process model of each attempt by a measure."""

    rewarder_id: Name
    aliases: Flag
    measure: _Measure
    quick: bool = False
    """Whether it is cheap enough for the event loop."""
    compares: bool = False
    """Whether it cannot score a single attempt."""

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt. An output without a process model is wrong."""
        parsed: list[Model | PowlError] = []
        for attempt in context.outputs:
            known = attempt.metadata.get(MODEL_KEY)
            try:
                found = known if isinstance(known, Activity | Silent | Operator) else None
                parsed.append(found or model_in(attempt.output, aliases=self.aliases))
            except PowlError as error:
                parsed.append(error)
        try:
            measured = iter(self.measure(context, [each for each in parsed if not isinstance(each, PowlError)]))
        except PowlError as error:
            return abstain_on_all(self.rewarder_id, context, error.summary)
        name, verdicts = self.rewarder_id, []
        for model in parsed:
            given = (0.0, f"no process model: {model.summary}") if isinstance(model, PowlError) else next(measured)
            verdicts.append(Abstained(name, given) if isinstance(given, str) else RewardScore(name, *given))
        return verdicts


def powl_footprint(
    *,
    mode: Mode = "block",
    aggregate: Aggregate = "pooled",
    aliases: bool = False,
    direct_succession: float = 1.0,
    concurrency: float = 1.0,
    exclusive: float = 1.0,
    rewarder_id: str = "powl_footprint",
) -> ModelRewarder:
    """Similarity of each model's footprint to the reference's, from 0 to 1.

    The reference is the item's answer, else ``reference`` or ``footprint`` of its metadata: a model as text or JSON, or a
    footprint as JSON. Without one it abstains. ``mode``: reading of a footprint. ``aggregate``: ``pooled``, all relations
    together, times the overlap of activities; ``macro``, the mean over relations. ``direct_succession``, ``concurrency``,
    ``exclusive``: weight of a pair of this relation.
    """
    _check_reading(mode, aggregate)
    weights = RelationWeights(direct_succession, concurrency, exclusive)
    footprint_similarity(Silent(), Silent(), weights=weights)  # refuses unusable weights

    def measure(context: RewardContext, models: Sequence[Model]) -> list[_Measured]:
        reference = _reference(context, mode, aliases)
        measured: list[_Measured] = []
        for own in (footprint(model, mode) for model in models):
            shared, known = len({*own.activities} & {*reference.activities}), len(reference.activities)
            counts = f"{shared} of {known} activities of the reference, {len(own.activities)} its own"
            score = footprint_similarity(own, reference, aggregate, weights=weights)
            measured.append((score, f"{mode}, {aggregate}: {counts}"))
        return measured

    return ModelRewarder(rewarder_id, aliases, measure, quick=mode == "block")


def powl_equal(aliases: bool = False, rewarder_id: str = "powl_equal") -> ModelRewarder:
    """1 when directly-follows relation, first and last activities are those of the reference, 0 otherwise.

    Two spellings of one behaviour are equal: a chain as SEQUENCE or as PARTIAL_ORDER, branches in another order. The
    comparison distinguishes block-structured models with unique labels (Leemans, Fahland and van der Aalst 2013,
    "Discovering block-structured process models from event logs"), except for some positions of silent steps; with
    repeated labels, different models can be taken for equal. The reference is that of ``powl_footprint``; without one it
    abstains.
    """

    def measure(context: RewardContext, models: Sequence[Model]) -> list[_Measured]:
        reference = _reference(context, "direct", aliases)
        differences = [_difference(footprint(model, "direct"), reference) for model in models]
        return [(float(each is None), each or "the behaviour of the reference") for each in differences]

    return ModelRewarder(rewarder_id, aliases, measure)


def powl_valid(
    aliases: bool = False, labels: Sequence[str] | None = None, rewarder_id: str = "powl_valid"
) -> ModelRewarder:
    """1 for a model without errors, 0 otherwise; usable as a gate. ``labels``: the allowed ones; None: any."""
    given: object = labels  # any value of a pipeline file
    if given is not None and not (isinstance(given, list | tuple) and all(isinstance(label, str) for label in given)):
        raise OptionError(f"labels is {given!r}", "a list of labels")

    def measure(_: RewardContext, models: Sequence[Model]) -> list[_Measured]:
        errors = [validate(model, allowed_labels=labels).errors for model in models]
        return [
            (0.0, "; ".join(map(str, found[:3]))) if found else (1.0, f"valid, {len(labels_of(model))} activities")
            for model, found in zip(models, errors, strict=True)
        ]

    return ModelRewarder(rewarder_id, aliases, measure, quick=True)


def powl_self_consistency(aliases: bool = False, rewarder_id: str = "powl_self_consistency") -> ModelRewarder:
    """Share of related pairs that a model does not contradict, from 0 to 1; needs no reference.

    It measures coherence, not correctness: a single activity contradicts nothing.
    """

    def measure(_: RewardContext, models: Sequence[Model]) -> list[_Measured]:
        evidence = "{} activities, pairs that are not contradicted".format
        return [(self_consistency(model), evidence(len(labels_of(model)))) for model in models]

    return ModelRewarder(rewarder_id, aliases, measure, quick=True)


def powl_group_consensus(
    mode: Mode = "block",
    aggregate: Aggregate = "pooled",
    aliases: bool = False,
    rewarder_id: str = "powl_group_consensus",
) -> ModelRewarder:
    """Mean similarity of each model to the others of its group, from 0 to 1; needs no reference.

    Outputs without a model score 0 and are not compared with. It abstains on the only model of a group.
    """
    _check_reading(mode, aggregate)

    def measure(_: RewardContext, models: Sequence[Model]) -> list[_Measured]:
        if len(models) < 2:
            return ["it is the only process model of its group" for _ in models]
        evidence = f"{mode}, {aggregate}: mean similarity to {len(models) - 1} others"
        return [(score, evidence) for score in group_consensus(models, aggregate, mode=mode)]

    return ModelRewarder(rewarder_id, aliases, measure, compares=True)


_ALL: Final = (powl_equal, powl_footprint, powl_group_consensus, powl_self_consistency, powl_valid)
POWL_REWARDERS: Final[Mapping[str, Callable[..., ModelRewarder]]] = MappingProxyType(
    {each.__name__: each for each in _ALL}
)
"""Constructors by name; options are their keyword arguments."""


def _check_reading(mode: Any, aggregate: Any) -> None:
    for name, given, accepted in (("mode", mode, MODES), ("aggregate", aggregate, get_args(Aggregate))):
        if given not in accepted:
            raise OptionError(f"{name} is {given!r}", ", ".join(accepted))


def _reference(context: RewardContext, mode: Mode, aliases: bool) -> Footprint:
    """Return the footprint of the item's answer, else of its metadata. Raise ``PowlError`` for none that can be used."""
    listed = (context.metadata[key] for key in REFERENCE_KEYS if context.metadata.get(key))
    given = context.answer if context.answer.strip() else next(listed, None)
    if given is None:
        raise PowlError("the item has no reference model")
    try:
        reference = reference_in(given, aliases=aliases)
        if isinstance(reference, Footprint) and reference.mode != mode:
            raise PowlError(f"it is a footprint of mode {reference.mode}, and the mode asked for is {mode}")
    except PowlError as error:
        raise PowlError(f"the reference cannot be used: {error.summary}") from error
    return footprint_of(reference, mode)


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
