"""A signature binds a record to one version of one pack."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from pydantic import BaseModel

from tests.support.records.records import NOW, PACK, make_record
from tfgrpo.stores.experiences.record import (
    ExperienceRecord,
    PackStamp,
    Reward,
    ToolStat,
    sign_record,
    signature_holds,
)

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


@pytest.mark.parametrize(
    "change", [{"stamp": "b" * 64}, {"stamped_at": "2026-01-02T00:00:00+00:00"}, {"pack_id": "other"}]
)
def test_another_version_of_the_pack_retires_the_record(change):
    assert not signature_holds(make_record(), dataclasses.replace(PACK, **change))


def test_every_field_but_the_signature_is_listed_above():
    assert set(ExperienceRecord.model_fields) - {"stamp_signature"} == set(CHANGED)
    assert issubclass(ExperienceRecord, BaseModel)


@pytest.mark.parametrize("field", CHANGED)
def test_changing_any_field_breaks_the_signature(field):
    assert not signature_holds(make_record().model_copy(update={field: CHANGED[field]}), PACK)
