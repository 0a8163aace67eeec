"""Event logs without pm4py: suffixes of logs, and the error."""

from __future__ import annotations

import sys

import pytest

from tfgrpo.rewarders.powl.event_log import discover_model, is_event_log
from tfgrpo.stores.errors import DatasetError


def test_a_log_is_known_by_its_name(tmp_path):
    assert all(is_event_log(tmp_path / name) for name in ("a.xes", "A.XES", "a.xes.gz", "a.csv"))
    assert not is_event_log(tmp_path / "a.json")


def test_a_missing_pm4py_is_reported(monkeypatch, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("case:concept:name,concept:name,time:timestamp\n1,a,2026-01-01T10:00:00\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "pm4py", None)
    with pytest.raises(DatasetError, match=r"pm4py is not installed; accepted: pip install 'tfgrpo\[pm4py\]'"):
        discover_model(log)
