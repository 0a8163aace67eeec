"""The champion is what the gate promoted last."""

from __future__ import annotations

import errno
import os
from datetime import datetime, timedelta

import pytest
from pydantic import ValidationError

from stores.errors import CorruptFile, StoreError
from stores.promotions import Promotion, champion_ids, promotions, record_promotion
from tests.stores.records import NOW


def decision(kind="promote", ids=("exp-1",), **changes):
    fields = {
        "run_id": "run-1",
        "decided_at": NOW,
        "decision": kind,
        "experience_ids": tuple(ids),
        "library_id": "0" * 16,
        "estimate": 0.25,
        "low": 0.05,
        "high": 0.45,
        "pairs": 20,
        "simulated": False,
    }
    return Promotion(**{**fields, **changes})


def test_decisions_come_back_oldest_first(tmp_path):
    path = tmp_path / "task" / "promotions.jsonl"
    made = [
        decision(),
        decision("undecided", estimate=None, low=None, high=None, pairs=0, decided_at=NOW + timedelta(1)),
    ]
    for one in made:
        record_promotion(path, one)
    assert list(promotions(path)) == made


def test_without_a_decision_there_is_no_champion(tmp_path):
    path = tmp_path / "promotions.jsonl"
    assert champion_ids(path) == ()
    record_promotion(path, decision("reject"))
    assert champion_ids(path) == ()


def test_what_was_promoted_last_is_champion_whatever_was_rejected_since(tmp_path):
    path = tmp_path / "promotions.jsonl"
    for one in (
        decision(ids=("a", "b")),
        decision("reject", ("c",)),
        decision(ids=("b", "d")),
        decision("undecided", ("e",)),
    ):
        record_promotion(path, one)
    assert champion_ids(path) == ("b", "d")


def test_a_simulated_promotion_is_no_champion_for_a_real_model_nor_the_other_way_round(tmp_path):
    path = tmp_path / "promotions.jsonl"
    record_promotion(path, decision(ids=("real",)))
    record_promotion(path, decision(ids=("pretended",), simulated=True))
    assert champion_ids(path, simulated=False) == ("real",)
    assert champion_ids(path, simulated=True) == ("pretended",)
    assert champion_ids(path) == ("real",)


def test_a_rehearsal_pushes_no_real_lesson_out_of_force_and_counts_where_there_is_nothing_else(tmp_path):
    path = tmp_path / "promotions.jsonl"
    record_promotion(path, decision(ids=("pretended",), simulated=True))
    assert champion_ids(path) == ("pretended",)
    record_promotion(path, decision(ids=("real",)))
    record_promotion(path, decision(ids=("pretended again",), simulated=True))
    assert champion_ids(path) == ("real",)


def test_an_empty_library_can_be_promoted_to_take_lessons_back(tmp_path):
    path = tmp_path / "promotions.jsonl"
    record_promotion(path, decision(ids=("a",)))
    record_promotion(path, decision(ids=()))
    assert champion_ids(path) == ()


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"decision": "promote"}'])
def test_a_damaged_line_never_silently_changes_the_champion(tmp_path, line):
    path = tmp_path / "promotions.jsonl"
    record_promotion(path, decision(ids=("a",)))
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(CorruptFile, match="line 2 is no decision"):
        champion_ids(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": "maybe"},
        {"estimate": float("nan")},
        {"decided_at": datetime(2026, 1, 1)},
        {"pairs": "20"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_decision_that_is_none_is_refused(changes):
    with pytest.raises(ValidationError):
        decision(**changes)


def test_a_decision_that_the_disk_does_not_confirm_is_not_recorded(tmp_path, monkeypatch):
    path = tmp_path / "promotions.jsonl"

    def full(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            record_promotion(path, decision())
    assert list(promotions(path)) == []
