"""The history of a task's selections is read back as it was written, simulated and real apart."""

from __future__ import annotations

from datetime import UTC, datetime

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
