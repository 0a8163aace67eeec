"""A stored experience is strict, and its signature binds it to one version of one pack."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel, ValidationError

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


def test_thirty_two_words_fit_and_thirty_three_do_not():
    assert record(summary32=" ".join(["word"] * 32))
    with pytest.raises(ValidationError, match="33 words; at most 32"):
        record(summary32=" ".join(["word"] * 33))


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 0},
        {"epoch": True},
        {"epoch": "1"},
        {"epoch": 1.0},
        {"batch": -1},
        {"domain": ""},
        {"operation": "keep"},
        {"polarity": "maybe"},
        {"run_id": "../run"},
        {"task_id": "CON"},
        {"pack_id": "a/b"},
        {"stamp_signature": "A" * 64},
        {"stamp_signature": "abc"},
        {"created_at": datetime(2026, 1, 1)},
        {"created_at": "2026-01-01T00:00:00Z"},
        {"evidence": ["a/0"]},
        {"schema_version": 2},
        {"operation": "delete"},
        {"cause": "word " * 61},
        {"surprise": 1},
        {"summary32": "   "},
    ],
    ids=str,
)
def test_invalid_records_are_refused(changes):
    with pytest.raises(ValidationError):
        record(**changes)


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
@pytest.mark.parametrize("targets", range(4))
def test_each_operation_supersedes_as_many_as_it_means(operation, targets):
    changes = {"operation": operation, "supersedes": tuple(f"exp-{number}" for number in range(targets))}
    if targets in _FITTING[operation]:
        assert record(**changes).operation == operation
    else:
        with pytest.raises(ValidationError, match=f"{operation} cannot supersede {targets}"):
            record(**changes)


CHANGED = {
    "schema_version": 2,
    "created_at": NOW + timedelta(days=1),
    "experience_id": "exp-other",
    "run_id": "run-2",
    "task_id": "task-2",
    "domain": "other",
    "pack_id": "other",
    "tags": ("t",),
    "epoch": 2,
    "batch": 1,
    "group_id": "g-other",
    "operation": "modify",
    "supersedes": ("exp-0",),
    "summary32": "Another lesson.",
    "cause": "Another reason.",
    "polarity": "avoid",
    "reward": Reward(gt_score=0.5, relative_rank=0.5),
    "tool_stats": (ToolStat(tool="t", tokens=1, latency_ms=0.0),),
    "evidence": ("x/0",),
}


def test_signing_is_a_known_function_of_stamp_timestamp_and_content():
    fields = {"a": 1, "stamp_signature": "ignored"}
    assert sign_record(fields, PackStamp("p", "s", "t")) == (
        # printf '%s' '{"record":{"a":1},"stamp":"s","stamped_at":"t"}' | sha256sum
        "2113823ba81637af0440fcf5bb4af7fc36aa429c7f954389909374cc488064b9"
    )


@pytest.mark.parametrize("change", [{"stamp": "b" * 64}, {"stamped_at": "2026-01-02T00:00:00+00:00"}, {"pack_id": "other"}])
def test_another_version_of_the_pack_retires_the_record(change):
    assert not signature_holds(make_record(), dataclasses.replace(PACK, **change))


def test_every_field_but_the_signature_is_listed_above():
    assert set(ExperienceRecord.model_fields) - {"stamp_signature"} == set(CHANGED)
    assert issubclass(ExperienceRecord, BaseModel)


@pytest.mark.parametrize("field", CHANGED)
def test_changing_any_field_breaks_the_signature(field):
    assert not signature_holds(make_record().model_copy(update={field: CHANGED[field]}), PACK)
