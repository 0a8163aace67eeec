"""Process models (POWL): reading, writing, checking and comparing them. Imports only the standard library."""

from tfgrpo.rewarders.powl.footprints import Footprint, footprint, footprint_from_value, footprint_to_value
from tfgrpo.rewarders.powl.json_form import model_in, parse_json, to_json, to_value
from tfgrpo.rewarders.powl.keys import label_fingerprint, structural_key
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Silent, labels_of
from tfgrpo.rewarders.powl.similarity import footprint_similarity, group_consensus, reference_in, self_consistency
from tfgrpo.rewarders.powl.text import parse_text, to_text
from tfgrpo.rewarders.powl.validation import validate
from tfgrpo.stores.errors import PowlError

__all__ = [
    "Activity",
    "Footprint",
    "Model",
    "Operator",
    "PowlError",
    "Silent",
    "footprint",
    "footprint_from_value",
    "footprint_similarity",
    "footprint_to_value",
    "group_consensus",
    "label_fingerprint",
    "labels_of",
    "model_in",
    "parse_json",
    "parse_text",
    "reference_in",
    "scoring",
    "self_consistency",
    "structural_key",
    "to_json",
    "to_text",
    "to_value",
    "validate",
]
