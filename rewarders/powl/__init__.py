"""Process models (POWL): reading, writing, checking and comparing them. Imports nothing but the standard library."""

from tfgrpo.rewarders.powl.consistency import group_consensus, self_consistency
from tfgrpo.rewarders.powl.footprints.footprint import footprint
from tfgrpo.rewarders.powl.footprints.relations import (
    Footprint,
    Mode,
    footprint_from_value,
    footprint_of_pairs,
    footprint_to_value,
)
from tfgrpo.rewarders.powl.keys import label_fingerprint, structural_key
from tfgrpo.rewarders.powl.mermaid import to_mermaid
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, OperatorKind, Silent, labels_of
from tfgrpo.rewarders.powl.parsing.json_parser import parse_json
from tfgrpo.rewarders.powl.parsing.text import parse_text
from tfgrpo.rewarders.powl.render import to_json, to_text, to_value
from tfgrpo.rewarders.powl.similarity import Aggregate, RelationWeights, footprint_similarity
from tfgrpo.rewarders.powl.validation import Finding, Validation, validate
from tfgrpo.stores.errors import PowlError

__all__ = [
    "Activity",
    "Aggregate",
    "Finding",
    "Footprint",
    "Mode",
    "Model",
    "Operator",
    "OperatorKind",
    "PowlError",
    "RelationWeights",
    "Silent",
    "Validation",
    "event_log",
    "footprint",
    "footprint_from_value",
    "footprint_of_pairs",
    "footprint_similarity",
    "footprint_to_value",
    "group_consensus",
    "label_fingerprint",
    "labels_of",
    "parse_json",
    "parse_text",
    "scoring",
    "self_consistency",
    "structural_key",
    "to_json",
    "to_mermaid",
    "to_text",
    "to_value",
    "validate",
]
