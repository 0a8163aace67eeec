"""Process models (POWL): reading, writing, checking and comparing them. Imports nothing but the standard library."""

from rewarders.powl.consistency import group_consensus, self_consistency
from rewarders.powl.footprint import footprint
from rewarders.powl.json_parser import parse_json
from rewarders.powl.keys import label_fingerprint, structural_key
from rewarders.powl.mermaid import to_mermaid
from rewarders.powl.model import Activity, Model, Operator, OperatorKind, Silent, labels_of
from rewarders.powl.relations import (
    Footprint,
    Mode,
    footprint_from_value,
    footprint_of_pairs,
    footprint_to_value,
)
from rewarders.powl.render import to_json, to_text, to_value
from rewarders.powl.similarity import Aggregate, RelationWeights, footprint_similarity
from rewarders.powl.text import parse_text
from rewarders.powl.validation import Finding, Validation, validate
from stores.errors import PowlError

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
    "self_consistency",
    "structural_key",
    "to_json",
    "to_mermaid",
    "to_text",
    "to_value",
    "validate",
]
