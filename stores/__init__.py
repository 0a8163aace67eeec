"""What is recorded, and how? The ground floor: shapes of everything stored, and the files it is stored in.

Names are imported when they are asked for, so that a room that needs the failures alone does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stores.atomic import KeyedJsonl, append_lines, read_lines, replace_json, replace_text
    from stores.canonical import canonical_json, canonical_text, sha256_hex
    from stores.clock import Clock, utc_now
    from stores.errors import (
        ActorError,
        BudgetRefused,
        ConfigError,
        CorruptFile,
        DatasetError,
        EndpointError,
        ModelAuthRefused,
        ModelCallError,
        ModelRateLimited,
        ModelReplyMalformed,
        ModelRequestRejected,
        ModelServerFault,
        ModelTimeout,
        ModelUnreachable,
        PackError,
        PipelineError,
        Problem,
        RecordRejected,
        RepairExhausted,
        ReplayMiss,
        RewardError,
        RewarderTimeout,
        RunAborted,
        SettingsError,
        StoreError,
        TfgrpoError,
    )
    from stores.experience_lines import Skipped
    from stores.experience_store import ExperienceStore, best_of, support_of, value_order
    from stores.identifiers import check_identifier, sanitize_identifier
    from stores.journal import CallKey, Journal
    from stores.layout import RunPaths, TaskPaths
    from stores.ledger import Ledger, Reservation
    from stores.ledger_state import Budget, Totals
    from stores.library import Library, fold
    from stores.lineage import StoredBatch
    from stores.manifest import ManifestFile
    from stores.metrics_store import GroupMetrics, MetricsStore, ToolUse
    from stores.models import ExperienceRecord, Operation, Polarity, Reward, ToolStat
    from stores.outcomes import Failed, Outcome, OutcomeName, Refused, RewardScore, Scored, Ungraded, scored_rewards
    from stores.prices import Price, PriceBook
    from stores.promotions import Promotion, champion_ids, record_promotion
    from stores.seeds import derive_seed, stream
    from stores.signing import PackStamp, sign_record, signature_holds, stamp_record
    from stores.task_state import read_state, write_state
    from stores.telemetry import Telemetry, TelemetryOptions, configure
    from stores.words import MAX_CHARS, MAX_WORDS, clean_text, count_words, first_words

__all__ = [
    "MAX_CHARS",
    "MAX_WORDS",
    "ActorError",
    "Budget",
    "BudgetRefused",
    "CallKey",
    "Clock",
    "ConfigError",
    "CorruptFile",
    "DatasetError",
    "EndpointError",
    "ExperienceRecord",
    "ExperienceStore",
    "Failed",
    "GroupMetrics",
    "Journal",
    "KeyedJsonl",
    "Ledger",
    "Library",
    "ManifestFile",
    "MetricsStore",
    "ModelAuthRefused",
    "ModelCallError",
    "ModelRateLimited",
    "ModelReplyMalformed",
    "ModelRequestRejected",
    "ModelServerFault",
    "ModelTimeout",
    "ModelUnreachable",
    "Operation",
    "Outcome",
    "OutcomeName",
    "PackError",
    "PackStamp",
    "PipelineError",
    "Polarity",
    "Price",
    "PriceBook",
    "Problem",
    "Promotion",
    "RecordRejected",
    "Refused",
    "RepairExhausted",
    "ReplayMiss",
    "Reservation",
    "Reward",
    "RewardError",
    "RewardScore",
    "RewarderTimeout",
    "RunAborted",
    "RunPaths",
    "Scored",
    "SettingsError",
    "Skipped",
    "StoreError",
    "StoredBatch",
    "TaskPaths",
    "Telemetry",
    "TelemetryOptions",
    "TfgrpoError",
    "ToolStat",
    "ToolUse",
    "Totals",
    "Ungraded",
    "append_lines",
    "best_of",
    "canonical_json",
    "canonical_text",
    "champion_ids",
    "check_identifier",
    "clean_text",
    "configure",
    "count_words",
    "derive_seed",
    "first_words",
    "fold",
    "read_lines",
    "read_state",
    "record_promotion",
    "replace_json",
    "replace_text",
    "sanitize_identifier",
    "scored_rewards",
    "sha256_hex",
    "sign_record",
    "signature_holds",
    "stamp_record",
    "stream",
    "support_of",
    "utc_now",
    "value_order",
    "write_state",
]

_HOMES = {
    "MAX_CHARS": "words",
    "MAX_WORDS": "words",
    "ActorError": "errors",
    "Budget": "ledger_state",
    "BudgetRefused": "errors",
    "CallKey": "journal",
    "Clock": "clock",
    "ConfigError": "errors",
    "CorruptFile": "errors",
    "DatasetError": "errors",
    "EndpointError": "errors",
    "ExperienceRecord": "models",
    "ExperienceStore": "experience_store",
    "Failed": "outcomes",
    "GroupMetrics": "metrics_store",
    "Journal": "journal",
    "KeyedJsonl": "atomic",
    "Ledger": "ledger",
    "Library": "library",
    "ManifestFile": "manifest",
    "MetricsStore": "metrics_store",
    "ModelAuthRefused": "errors",
    "ModelCallError": "errors",
    "ModelRateLimited": "errors",
    "ModelReplyMalformed": "errors",
    "ModelRequestRejected": "errors",
    "ModelServerFault": "errors",
    "ModelTimeout": "errors",
    "ModelUnreachable": "errors",
    "Operation": "models",
    "Outcome": "outcomes",
    "OutcomeName": "outcomes",
    "PackError": "errors",
    "PackStamp": "signing",
    "PipelineError": "errors",
    "Polarity": "models",
    "Price": "prices",
    "PriceBook": "prices",
    "Problem": "errors",
    "Promotion": "promotions",
    "RecordRejected": "errors",
    "Refused": "outcomes",
    "RepairExhausted": "errors",
    "ReplayMiss": "errors",
    "Reservation": "ledger",
    "Reward": "models",
    "RewardError": "errors",
    "RewardScore": "outcomes",
    "RewarderTimeout": "errors",
    "RunAborted": "errors",
    "RunPaths": "layout",
    "Scored": "outcomes",
    "SettingsError": "errors",
    "Skipped": "experience_lines",
    "StoreError": "errors",
    "StoredBatch": "lineage",
    "TaskPaths": "layout",
    "Telemetry": "telemetry",
    "TelemetryOptions": "telemetry",
    "TfgrpoError": "errors",
    "ToolStat": "models",
    "ToolUse": "metrics_store",
    "Totals": "ledger_state",
    "Ungraded": "outcomes",
    "append_lines": "atomic",
    "best_of": "experience_store",
    "canonical_json": "canonical",
    "canonical_text": "canonical",
    "champion_ids": "promotions",
    "check_identifier": "identifiers",
    "clean_text": "words",
    "configure": "telemetry",
    "count_words": "words",
    "derive_seed": "seeds",
    "first_words": "words",
    "fold": "library",
    "read_lines": "atomic",
    "read_state": "task_state",
    "record_promotion": "promotions",
    "replace_json": "atomic",
    "replace_text": "atomic",
    "sanitize_identifier": "identifiers",
    "scored_rewards": "outcomes",
    "sha256_hex": "canonical",
    "sign_record": "signing",
    "signature_holds": "signing",
    "stamp_record": "signing",
    "stream": "seeds",
    "support_of": "experience_store",
    "utc_now": "clock",
    "value_order": "experience_store",
    "write_state": "task_state",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
