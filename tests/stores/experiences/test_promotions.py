"""The champion is what the gate promoted last."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime, timedelta

import pytest
from pydantic import ValidationError

from tests.support.records.promotions import champion_ids, record_promotion
from tests.support.records.records import NOW
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences.library import Promotion, chain_problems, promotions


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


def test_decisions_are_read_oldest_first(tmp_path):
    path = tmp_path / "task" / "promotions.jsonl"
    made = [
        decision(),
        decision("undecided", estimate=None, low=None, high=None, pairs=0, decided_at=NOW + timedelta(1)),
    ]
    for one in made:
        record_promotion(path, one)
    first, second = promotions(path)
    assert [first, second.model_copy(update={"previous": None})] == made


def test_without_a_decision_there_is_no_champion(tmp_path):
    path = tmp_path / "promotions.jsonl"
    assert champion_ids(path) == ()
    record_promotion(path, decision("reject"))
    assert champion_ids(path) == ()


def test_the_last_promotion_is_champion_also_after_rejections(tmp_path):
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


def test_a_simulated_promotion_counts_only_without_a_real_one(tmp_path):
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
    with pytest.raises(CorruptFile, match="line 2 is not a decision"):
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
def test_an_invalid_decision_is_refused(changes):
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


def three(path):
    """Lines of a file with three decisions."""
    for run_id in ("one", "two", "three"):
        record_promotion(path, decision(run_id=run_id))
    return path.read_text().splitlines(keepends=True)


def test_removing_the_last_lines_leaves_a_valid_chain(tmp_path):
    path = tmp_path / "promotions.jsonl"
    first, *_ = three(path)
    assert chain_problems(path) == []
    path.write_text(first)
    assert chain_problems(path) == []
    record_promotion(path, decision(run_id="four"))
    assert chain_problems(path) == []
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert chain_problems(path) == []
    path.unlink()
    assert chain_problems(path) == []


@pytest.mark.parametrize("gone", [0, 1])
def test_a_line_that_was_removed_or_changed_breaks_the_chain(tmp_path, gone):
    path = tmp_path / "promotions.jsonl"
    lines = three(path)
    path.write_text("".join(line for place, line in enumerate(lines) if place != gone))
    expected = f"promotions.jsonl: line {gone + 1} does not continue the chain: a line before it was removed or changed"
    assert chain_problems(path) == [expected]
    path.write_text("".join(lines).replace('"pairs":20', '"pairs":21', 1))
    assert chain_problems(path) == [expected.replace(f"line {gone + 1}", "line 2")]


def test_an_incomplete_last_line_is_named(tmp_path):
    path = tmp_path / "promotions.jsonl"
    path.write_text("".join(three(path))[:-5])
    assert chain_problems(path) == ["promotions.jsonl: the last line is incomplete and does not count"]
    assert len(list(promotions(path))) == 2


def test_decisions_of_an_older_version_are_read_before_the_chain(tmp_path):
    path = tmp_path / "promotions.jsonl"
    old = decision().model_dump(mode="json", exclude={"signatures", "previous"}) | {"schema_version": 1}
    path.write_text((json.dumps(old) + "\n") * 2)
    record_promotion(path, decision(run_id="new"))
    assert [one.run_id for one in promotions(path)] == ["run-1", "run-1", "new"]
    assert chain_problems(path) == []
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]).replace('"pairs": 20', '"pairs": 2'))
    assert len(chain_problems(path)) == 1
