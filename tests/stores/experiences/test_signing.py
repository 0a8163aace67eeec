"""A signature binds a record to one version of one pack."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from pydantic import BaseModel

from tests.support.records.records import PACK, make_record
from tfgrpo.stores.experiences.record import (
    ExperienceRecord,
    PackStamp,
    Reward,
    ToolStat,
    sign_record,
    signature_holds,
    stamp_record,
)

CHANGED = {
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


def test_a_stamped_record_verifies_under_its_pack():
    assert signature_holds(make_record(), PACK)
    assert len(make_record().stamp_signature) == 64


def test_signing_is_a_known_function_of_stamp_timestamp_and_content():
    fields = {"a": 1, "stamp_signature": "ignored", "created_at": "ignored"}
    assert sign_record(fields, PackStamp("p", "s", "t")) == (
        # printf '%s' '{"record":{"a":1},"stamp":"s","stamped_at":"t"}' | sha256sum
        "2113823ba81637af0440fcf5bb4af7fc36aa429c7f954389909374cc488064b9"
    )


@pytest.mark.parametrize(
    "change", [{"stamp": "b" * 64}, {"stamped_at": "2026-01-02T00:00:00+00:00"}, {"pack_id": "other"}]
)
def test_another_version_of_the_pack_retires_the_record(change):
    assert not signature_holds(make_record(), dataclasses.replace(PACK, **change))


def test_every_field_but_signature_and_clock_is_listed_below():
    unsigned = {"schema_version", "stamp_signature", "created_at"}
    assert set(ExperienceRecord.model_fields) - unsigned == set(CHANGED)
    assert issubclass(ExperienceRecord, BaseModel)


@pytest.mark.parametrize("field", CHANGED)
def test_changing_any_field_breaks_the_signature(field):
    assert not signature_holds(make_record().model_copy(update={field: CHANGED[field]}), PACK)


def test_the_clock_is_signed_but_for_records_of_the_older_version():
    record = make_record()
    later = {"created_at": record.created_at + timedelta(days=1)}
    assert not signature_holds(record.model_copy(update=later), PACK)
    old = stamp_record(record.model_copy(update={"schema_version": 1}), PACK)
    assert signature_holds(old.model_copy(update=later), PACK)
    assert not signature_holds(record.model_copy(update={"schema_version": 1, **later}), PACK)


@pytest.mark.parametrize(
    ("version", "signature"),
    [
        (1, "e0f62ae82009d343b7a6a20ac30166daa0655ed7b00dcbc08b89d5746c09c4ed"),
        (2, "e0e2824f93531dc8b3baea92326712b4cb7ae45c2fc01c37b19f75500474ea36"),
    ],
)
def test_a_record_of_an_older_version_verifies_as_it_was_written(version, signature):
    line = (
        f'{{"schema_version":{version},"experience_id":"exp-1","run_id":"run-1","task_id":"task-1","domain":"general",'
        '"pack_id":"general","tags":[],"epoch":1,"batch":0,"group_id":"g1","operation":"add","supersedes":[],'
        '"summary32":"Check the units of exp-1.","polarity":"do","reward":{"gt_score":1.0,"relative_rank":1.0},'
        f'"tool_stats":[],"evidence":["g1/0"],"stamp_signature":"{signature}","created_at":"2026-01-02T03:04:05Z"}}'
    )
    assert signature_holds(ExperienceRecord.model_validate_json(line), PACK)


def test_an_unstamped_record_does_not_verify():
    assert not signature_holds(make_record().model_copy(update={"stamp_signature": ""}), PACK)
