"""The history of a task's selections is read back as it was written, simulated and real apart."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.runs.selections import SelectionRound, record_round, recorded_rounds


def entry(name, **changed):
    values = {
        "selection_id": name,
        "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "item_id": "q1",
        "model": "m",
        "simulated": False,
        "stage": "VALIDITY_GAP",
        "measure": "judge",
        "format": "powl",
        "k": 4,
        "outcomes": {"ok": 3, "timeout": 1},
        "answered": 3,
        "valid": 3,
        "chosen": 2,
        "reward": 0.9,
        "mean_reward": 0.7,
        "calls": 8,
        "tokens": 100,
        "cost_usd": None,
        "duration_s": 1.5,
    }
    return SelectionRound(**{**values, **changed})


def test_rounds_are_read_in_order_and_by_kind_of_model(tmp_path):
    path = tmp_path / "selections.jsonl"
    rounds = [entry("a"), entry("b", simulated=True), entry("c", chosen=None, reward=None)]
    for each in rounds:
        record_round(path, each)
    assert list(recorded_rounds(path, simulated=False)) == [rounds[0], rounds[2]]
    assert list(recorded_rounds(path, simulated=True)) == [rounds[1]]
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_there_is_no_history(tmp_path):
    assert list(recorded_rounds(tmp_path / "none.jsonl", simulated=False)) == []


def test_an_invalid_line_is_an_error_with_its_number(tmp_path):
    path = tmp_path / "selections.jsonl"
    record_round(path, entry("a"))
    LineFile(path).append([{"no": "selection"}])
    with pytest.raises(CorruptFile, match="line 2 is not a selection"):
        list(recorded_rounds(path, simulated=False))
