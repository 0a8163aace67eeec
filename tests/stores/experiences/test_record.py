"""A stored experience is strict, and its signature binds it to one version of one pack."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from tests.support.records.records import NOW, PACK, make_record
from tfgrpo.stores.experiences.store import ExperienceRecord, PackStamp, Reward, ToolStat, sign_record, signature_holds

FIELDS = {
    "experience_id": "exp-1",
    "run_id": "run-1",
    "task_id": "task-1",
    "domain": "general",
    "pack_id": "general",
    "epoch": 1,
    "batch": 0,
    "group_id": "run-1:e1:train:00000",
    "operation": "add",
    "summary32": "Carry the tens before adding the hundreds.",
    "polarity": "do",
    "reward": Reward(gt_score=1.0, relative_rank=1.0),
    "tool_stats": (ToolStat(tool="calculator", tokens=3, latency_ms=1.5, cost_usd=None),),
    "evidence": ("run-1:e1:train:00000/0",),
    "stamp_signature": "a" * 64,
    "created_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
}


def record(**changes):
    return ExperienceRecord(**{**FIELDS, **changes})


def test_a_line_carries_every_field_of_the_specification():
    line = json.loads(record().model_dump_json())
    assert {"run_id", "task_id", "epoch", "group_id", "summary32", "reward", "tool_stats", "stamp_signature"} <= set(line)
    assert set(line["reward"]) == {"gt_score", "relative_rank"}
    assert set(line["tool_stats"][0]) == {"tool", "tokens", "latency_ms", "cost_usd"}
    assert line["tool_stats"][0]["cost_usd"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 0},
        {"epoch": "1"},
        {"batch": -1},
        {"domain": ""},
        {"run_id": "../run"},
        {"task_id": "CON"},
        {"stamp_signature": "abc"},
        {"created_at": datetime(2026, 1, 1)},
        {"created_at": "2026-01-01T00:00:00Z"},
        {"evidence": ["a/0"]},
        {"schema_version": 2},
        {"cause": "word " * 61},
        {"surprise": 1},
        {"summary32": "   "},
    ],
    ids=str,
)
def test_invalid_records_are_refused(changes):
    with pytest.raises(ValidationError):
        record(**changes)
    assert record(summary32=" ".join(["word"] * 32)), "one word more is refused by the store, with the reason"


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
@pytest.mark.parametrize("rank", [1.01, -0.01])
def test_rewards_are_finite_and_ranks_lie_between_zero_and_one(score, rank):
    for values in ({"gt_score": score, "relative_rank": 0.5}, {"gt_score": 1.0, "relative_rank": rank}):
        with pytest.raises(ValidationError):
            Reward(**values)
    with pytest.raises(ValidationError, match="3 validation errors"):
        ToolStat(tool="", tokens=-1, latency_ms=-0.1)


_FITTING = {"add": {0}, "modify": {1}, "merge": {2, 3}}


@pytest.mark.parametrize("operation", _FITTING)
def test_each_operation_supersedes_as_many_as_it_means(operation):
    for targets in range(4):
        changes = {"operation": operation, "supersedes": tuple(f"exp-{number}" for number in range(targets))}
        if targets in _FITTING[operation]:
            assert record(**changes).operation == operation
        else:
            with pytest.raises(ValidationError, match=f"{operation} cannot supersede {targets}"):
                record(**changes)


def test_signing_is_a_known_function_of_stamp_timestamp_and_content():
    fields = {"a": 1, "stamp_signature": "ignored"}
    assert sign_record(fields, PackStamp("p", "s", "t")) == (
        # printf '%s' '{"record":{"a":1},"stamp":"s","stamped_at":"t"}' | sha256sum
        "2113823ba81637af0440fcf5bb4af7fc36aa429c7f954389909374cc488064b9"
    )


CHANGED = {
    "schema_version": 2, "operation": "modify", "polarity": "avoid", "epoch": 2, "batch": 1, "tags": ("t",),
    "supersedes": ("exp-0",), "evidence": ("x/0",), "created_at": NOW + timedelta(days=1),
    "reward": Reward(gt_score=0.5, relative_rank=0.5), "tool_stats": (ToolStat(tool="t", tokens=1, latency_ms=0.0),),
}  # fmt: skip
"""Another value of each field that is no text."""


def test_another_version_of_the_pack_retires_the_record_and_so_does_a_change_of_any_field():
    for change in ({"stamp": "b" * 64}, {"stamped_at": "2026-01-02T00:00:00+00:00"}, {"pack_id": "other"}):
        assert not signature_holds(make_record(), dataclasses.replace(PACK, **change))
    assert signature_holds(make_record(), PACK)
    for field in set(ExperienceRecord.model_fields) - {"stamp_signature"}:
        assert not signature_holds(make_record().model_copy(update={field: CHANGED.get(field, "changed")}), PACK), field
