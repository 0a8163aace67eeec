"""Process models (POWL): reading, writing, checking and comparing them. Imports only the standard library."""

from tfgrpo.rewarders.powl.footprints import (
    Footprint,
    footprint,
    footprint_from_value,
    footprint_similarity,
    group_consensus,
    reference_in,
    self_consistency,
)
from tfgrpo.rewarders.powl.model import (
    Activity,
    Model,
    Operator,
    Silent,
    label_fingerprint,
    labels_of,
    structural_key,
    validate,
)
from tfgrpo.rewarders.powl.text import model_in, parse_json, parse_text, to_json, to_text, to_value
from tfgrpo.stores.errors import PowlError

__all__ = [
    "Activity", "Footprint", "Model", "Operator", "PowlError", "Silent", "footprint", "footprint_from_value",
    "footprint_similarity", "group_consensus", "label_fingerprint", "labels_of", "model_in", "parse_json",
    "parse_text", "reference_in", "scoring", "self_consistency", "structural_key", "to_json", "to_text",
    "to_value", "validate",
]  # fmt: skip
